"""Requests and tokens by day, key, team and model: what this process has counted, and what all processes have stored.

A process adds its counts to the store every few seconds, and once more when it ends: the table has the sums of all workers and
replicas, and outlives them. Without a store the counts last as long as the process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from responses_gateway.state import Store, StoreUnavailable
from responses_gateway.state.usage import LABELS, UsageTable, add_amounts, today
from responses_gateway.telemetry.metrics import Metrics

# Seconds between two additions to the store.
_INTERVAL = 10.0
# Days for which usage is kept.
DAYS_KEPT = 400
# Amounts by the values of some labels.
Sums = dict[tuple[int | str, ...], list[int]]


class TokenUsage:
    """Answers what was used. `store` is the one of all processes, if there is one."""

    def __init__(self, metrics: Metrics, store: Store | None) -> None:
        self._metrics = metrics
        self._table = UsageTable(store.database) if store is not None else None
        self._task = asyncio.create_task(self._keep_up())

    async def close(self) -> None:
        """Store what is left."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._store_counts()

    async def unstored(self, first: int, last: int, by: Sequence[str]) -> Sums:
        """Return what this process has counted and cannot store, from day `first` to day `last`, for each combination of the
        labels `by`; all else is in the store by then."""
        await self._store_counts()
        places = [LABELS.index(label) for label in by]
        counted = self._metrics.usage.items()
        return summed({tuple(row[at] for at in places): amounts} for row, amounts in counted if first <= row[0] <= last)

    async def stored(self, first: int, last: int, by: Sequence[str]) -> Sums:
        """Return the same of what is in the store. Raise `StoreUnavailable`."""
        return {} if self._table is None else await self._table.sums(first, last, by)

    async def sums(self, first: int, last: int, by: Sequence[str]) -> Sums:
        """Return both together. Raise `StoreUnavailable`."""
        return summed([await self.unstored(first, last, by), await self.stored(first, last, by)])

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL)
            await self._store_counts()

    async def _store_counts(self) -> None:
        """Store what was counted; what cannot be stored stays, for as long as it would be kept."""
        metrics = self._metrics
        metrics.flush()  # adds the requests that have just ended
        oldest = today() - DAYS_KEPT
        counted = {row: amounts for row, amounts in metrics.usage.items() if row[0] >= oldest}
        metrics.usage = counted
        if self._table is None or not counted:
            return
        metrics.usage = {}
        try:
            await self._table.add(counted, oldest)
        except StoreUnavailable:  # `Background` logs outages
            for row, amounts in counted.items():
                add_amounts(metrics.usage, row, amounts)


def summed(parts: Iterable[Mapping[tuple[int | str, ...], Sequence[int]]]) -> Sums:
    """Return the sums of several parts."""
    total: Sums = {}
    for part in parts:
        for labels, amounts in part.items():
            add_amounts(total, labels, amounts)
    return total
