"""Requests and tokens by day, key, team and model: what this process has counted, and what all processes have stored.

A process adds its counts to the store when a request has ended, at most once a second, and once more when it ends: the table
has the sums of all workers and replicas, and outlives them. Without a store the counts last as long as the process."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from responses_gateway.ended_tasks import end_tasks, keep_going
from responses_gateway.server.generation.request_log.facts import Account, RequestFacts
from responses_gateway.server.generation.request_log.metrics import KEY_TOKENS
from responses_gateway.state import StoreUnavailable
from responses_gateway.state.usage import AMOUNTS, DAY, LABELS, UsageTable, add_amounts, today
from responses_gateway.stream.lifecycle.turn import output_of
from responses_gateway.telemetry.instruments import key_label
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.wire.deltas import Usage

# What was used, where a backend does not tell.
UNKNOWN = Usage(None, None)
# Seconds between two additions to the store, because a busy process is not to write for each request.
_INTERVAL = 1.0
_SOON = 0.02  # seconds for which what has ended is collected after a pause
DAYS_KEPT = 400  # days for which usage is kept
# The values of all labels, the day first.
Row = tuple[Any, ...]
# Amounts by the values of some labels.
Sums = dict[tuple[int | str, ...], list[int]]
# Returns the sums from one day to another for each combination of some labels.
SumsOf: TypeAlias = Callable[[int, int, list[str]], Awaitable[Sums]]
# Divides the sums of all processes from one day to another by one more label, which a feature adds: gets what asks all workers,
# the sums, the days, and all labels.
Divide: TypeAlias = Callable[[Callable[..., Awaitable[list[Any]]], Sums, int, int, list[str]], Awaitable[Sums]]


class TokenUsage:
    """Counts what is used, and answers for it. `table` is the one of all processes, if there is one."""

    labels: ClassVar[Sequence[str]] = LABELS
    days_kept: ClassVar[int] = DAYS_KEPT

    def __init__(self, metrics: Metrics, table: UsageTable | None) -> None:
        """`metrics.flush` has to `count` what has just ended."""
        self.counted: defaultdict[Row, list[int]] = defaultdict(_nothing)  # until it is stored
        self.ended = asyncio.Event()  # there is something to be counted, or stored
        self._metrics = metrics
        self._table = table
        self._task = None if table is None else asyncio.create_task(keep_going(self._keep_up, metrics.report))

    def add(self, account: Account, model: str, used: Usage) -> None:
        """Count a request that makes no response, and that a backend has answered."""
        amounts = (1, used.input or 0, used.cached or 0, used.output or 0, used.reasoning or 0)
        row = (today(), account.key or "", account.team or "", self._metrics.model(model))
        add_amounts(self.counted, row, amounts)
        if account.key is not None:
            self._count_tokens(account.key, amounts)
        self.ended.set()

    def count(self, ended: Iterable[tuple[RequestFacts, str]]) -> None:
        """Count the `AMOUNTS` of requests that a backend has answered, each with the label of its model."""
        for facts, model in ended:
            answer = facts.answer
            if answer is None or not answer.chunks:
                continue
            usage = answer.usage or UNKNOWN
            output = output_of(answer.turns, usage, answer.chunks, facts.tokens_by_kind)
            reasoning = usage.reasoning or facts.tokens_by_kind.get("reasoning", 0)
            amounts = (1, usage.input or 0, usage.cached or 0, output, reasoning)
            key = facts.account.key
            row = (int((facts.ended or 0) // DAY), key or "", facts.account.team or "", model)
            add_amounts(self.counted, row, amounts)
            if key is not None:
                self._count_tokens(key, amounts)

    def _count_tokens(self, key: str, amounts: Sequence[int]) -> None:
        self._metrics.count(KEY_TOKENS, key_label(key), amount=amounts[1] + amounts[3])

    async def close(self) -> None:
        """Store what is left."""
        await end_tasks(self._task)
        await self._store_counts()

    async def unstored(self, first: int, last: int, by: Sequence[str]) -> Sums:
        """Return what this process has counted and cannot store, from day `first` to day `last`, for each combination of the
        labels `by`; all else is in the store by then."""
        await self._store_counts()
        places = [self.labels.index(label) for label in by]
        # In a thread, so that no stream waits for the sums of ten thousand sessions.
        return await asyncio.to_thread(_sums, dict(self.counted), places, first, last)

    async def stored(self, first: int, last: int, by: Sequence[str]) -> Sums:
        """Return the same of what is in the store. Raise `StoreUnavailable`."""
        return {} if self._table is None else await self._table.sums(first, last, by)

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
        oldest = today() - self.days_kept
        for row in [row for row in self.counted if row[0] < oldest]:
            del self.counted[row]
        if self._table is None or not self.counted:
            return
        counted = self.counted
        self.counted = defaultdict(_nothing)
        try:
            await self._table.add(counted, oldest)
        except Exception as error:
            for row, amounts in counted.items():
                add_amounts(self.counted, row, amounts)
            self.ended.set()
            if not isinstance(error, StoreUnavailable):  # `Background` logs outages
                raise


def _sums(counted: Mapping[Row, Sequence[int]], places: Sequence[int], first: int, last: int) -> Sums:
    """Return the sums of what was counted from one day to another, for each combination of the labels in these places."""
    return summed({tuple(row[at] for at in places): used} for row, used in counted.items() if first <= row[0] <= last)


def _nothing() -> list[int]:
    return [0] * len(AMOUNTS)


def summed(parts: Iterable[Mapping[tuple[int | str, ...], Sequence[int]]]) -> Sums:
    """Return the sums of several parts."""
    total: Sums = {}
    for part in parts:
        for labels, amounts in part.items():
            add_amounts(total, labels, amounts)
    return total
