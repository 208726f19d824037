"""Requests and tokens by day, key, team and model: what this process has counted, and what all processes have stored.

A process adds its counts to the store when a request has ended, at most once a second, and once more when it ends: the table
has the sums of all workers and replicas, and outlives them. Without a store the counts last as long as the process."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from responses_gateway.server.generation.request_log.facts import Account, RequestFacts
from responses_gateway.state import Store, StoreUnavailable
from responses_gateway.state.usage import AMOUNTS, DAY, LABELS, UsageTable, add_amounts, today
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.wire.deltas import Usage

_UNKNOWN = Usage(None, None)
# Seconds between two additions to the store, because a busy process is not to write for each request.
_INTERVAL = 1.0
# Seconds for which what has ended is collected after a pause.
_SOON = 0.02
# Days for which usage is kept.
DAYS_KEPT = 400
# The values of all labels.
Row = tuple[int, str, str, str]
# Amounts by the values of some labels.
Sums = dict[tuple[int | str, ...], list[int]]


class TokenUsage:
    """Counts what is used, and answers for it. `store` is the one of all processes, if there is one."""

    def __init__(self, metrics: Metrics, store: Store | None) -> None:
        """`metrics.flush` has to `count` what has just ended."""
        self.counted: defaultdict[Row, list[int]] = defaultdict(_nothing)  # until it is stored
        self.ended = asyncio.Event()  # there is something to be counted, or stored
        self._metrics = metrics
        self._table = UsageTable(store.database) if store is not None else None
        self._task = None if store is None else asyncio.create_task(self._keep_up())

    def add(self, account: Account, model: str, used: Usage) -> None:
        """Count a request that makes no response, and that a backend has answered."""
        amounts = (1, used.input or 0, used.cached or 0, used.output or 0, used.reasoning or 0)
        add_amounts(self.counted, (today(), account.key or "", account.team or "", self._metrics.model(model)), amounts)
        self.ended.set()

    def count(self, ended: Iterable[tuple[RequestFacts, str]]) -> None:
        """Count the `AMOUNTS` of requests that a backend has answered, each with the label of its model; an estimate of the
        output where one was cut off before the backend reported usage."""
        for facts, model in ended:
            answer = facts.answer
            if answer is None or not answer.chunks:
                continue
            usage = answer.usage or _UNKNOWN
            output = usage.output
            if output is None:
                output = max(answer.chunks, sum(facts.tokens_by_kind.values()))
            day = int((facts.ended or 0) // DAY)
            amounts = self.counted[day, facts.account.key or "", facts.account.team or "", model]
            amounts[0] += 1
            amounts[1] += usage.input or 0
            amounts[2] += usage.cached or 0
            amounts[3] += output
            amounts[4] += usage.reasoning or facts.tokens_by_kind.get("reasoning", 0)

    async def close(self) -> None:
        """Store what is left."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._store_counts()

    async def unstored(self, first: int, last: int, by: Sequence[str]) -> Sums:
        """Return what this process has counted and cannot store, from day `first` to day `last`, for each combination of the
        labels `by`; all else is in the store by then."""
        await self._store_counts()
        places = [LABELS.index(label) for label in by]
        counted = self.counted.items()
        return summed({tuple(row[at] for at in places): amounts} for row, amounts in counted if first <= row[0] <= last)

    async def stored(self, first: int, last: int, by: Sequence[str]) -> Sums:
        """Return the same of what is in the store. Raise `StoreUnavailable`."""
        return {} if self._table is None else await self._table.sums(first, last, by)

    async def sums(self, first: int, last: int, by: Sequence[str]) -> Sums:
        """Return both together. Raise `StoreUnavailable`."""
        return summed([await self.unstored(first, last, by), await self.stored(first, last, by)])

    async def _keep_up(self) -> None:
        while True:
            await self.ended.wait()
            self.ended.clear()
            await asyncio.sleep(_SOON)
            await self._store_counts()
            await asyncio.sleep(_INTERVAL)

    async def _store_counts(self) -> None:
        """Store what was counted; what cannot be stored stays, for as long as it would be kept."""
        self._metrics.flush()  # adds the requests that have just ended
        oldest = today() - DAYS_KEPT
        for row in [row for row in self.counted if row[0] < oldest]:
            del self.counted[row]
        if self._table is None or not self.counted:
            return
        counted = self.counted
        self.counted = defaultdict(_nothing)
        try:
            await self._table.add(counted, oldest)
        except StoreUnavailable:  # `Background` logs outages
            for row, amounts in counted.items():
                add_amounts(self.counted, row, amounts)
            self.ended.set()


def _nothing() -> list[int]:
    return [0] * len(AMOUNTS)


def summed(parts: Iterable[Mapping[tuple[int | str, ...], Sequence[int]]]) -> Sums:
    """Return the sums of several parts."""
    total: Sums = {}
    for part in parts:
        for labels, amounts in part.items():
            add_amounts(total, labels, amounts)
    return total
