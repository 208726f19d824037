"""Requests and tokens by day, key, team and model: what this process has counted, and what all processes have stored.

A process adds its counts to the store when a request has ended, at most once a second, and once more when it ends: the table
has the sums of all workers and replicas, and outlives them. Without a store the counts last as long as the process."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from responses_gateway.server.generation.request_log.facts import Account, RequestFacts
from responses_gateway.state import Store, StoreUnavailable
from responses_gateway.state.usage import AMOUNTS, DAY, LABELS, SESSION, UsageTable, add_amounts, today
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.wire.deltas import Usage

# What was used, where a backend does not tell.
UNKNOWN = Usage(None, None)
# Seconds between two additions to the store, because a busy process is not to write for each request.
_INTERVAL = 1.0
# Seconds for which what has ended is collected after a pause.
_SOON = 0.02
# Sessions that are counted by themselves until they are stored, those of one day apart from those of another.
MOST_SESSIONS = 10_000
# Sessions that are given up at a time, because to find the key that has most of them takes long.
GIVEN_UP = 1000
# Days for which usage is kept.
DAYS_KEPT = 400
# The values of all labels.
Row = tuple[int, str, str, str]
SessionRow = tuple[int, str, str, str, str]
# Amounts by the values of some labels.
Sums = dict[tuple[int | str, ...], list[int]]


class TokenUsage:
    """Counts what is used, and answers for it. `store` is the one of all processes, if there is one."""

    def __init__(self, metrics: Metrics, store: Store | None) -> None:
        """`metrics.flush` has to `count` what has just ended."""
        self.counted: defaultdict[Row, list[int]] = defaultdict(_nothing)  # until it is stored
        self.by_session: dict[SessionRow, list[int]] = {}  # a part of that
        self.ended = asyncio.Event()  # there is something to be counted, or stored
        self._metrics = metrics
        self._table = UsageTable(store.database) if store is not None else None
        self._task = None if store is None else asyncio.create_task(self._keep_up())

    def add(self, account: Account, model: str, used: Usage, session: str | None = None) -> None:
        """Count a request that makes no response, and that a backend has answered, of an agent's session if that is known."""
        amounts = (1, used.input or 0, used.cached or 0, used.output or 0, used.reasoning or 0)
        row = (today(), account.key or "", account.team or "", self._metrics.model(model))
        add_amounts(self.counted, row, amounts)
        if session is not None:
            self._count_session((*row, session), amounts)
        self.ended.set()

    def count(self, ended: Iterable[tuple[RequestFacts, str]]) -> None:
        """Count the `AMOUNTS` of requests that a backend has answered, each with the label of its model; an estimate of the
        output where one was cut off before the backend reported usage."""
        for facts, model in ended:
            answer = facts.answer
            if answer is None or not answer.chunks:
                continue
            usage = answer.usage or UNKNOWN
            output = usage.output
            if output is None:
                output = max(answer.chunks, sum(facts.tokens_by_kind.values()))
            reasoning = usage.reasoning or facts.tokens_by_kind.get("reasoning", 0)
            amounts = (1, usage.input or 0, usage.cached or 0, output, reasoning)
            row = (int((facts.ended or 0) // DAY), facts.account.key or "", facts.account.team or "", model)
            add_amounts(self.counted, row, amounts)
            if facts.asker.session is not None:
                self._count_session((*row, facts.asker.session), amounts)

    def belongs(self, account: Account, model: str, session: str, day: int, amounts: Sequence[int]) -> None:
        """Count the `AMOUNTS` of a request for its session, too, which it got after it was counted."""
        self._count_session((day, account.key or "", account.team or "", self._metrics.model(model), session), amounts)
        self.ended.set()

    def _count_session(self, row: SessionRow, amounts: Sequence[int]) -> None:
        """Count for a session, too. Of too many, the oldest ones of the key that has most are dropped: they have none then."""
        add_amounts(self.by_session, row, amounts)
        if len(self.by_session) > MOST_SESSIONS:
            ((key, _),) = Counter(key for _, key, *_ in self.by_session).most_common(1)
            for oldest in [row for row in self.by_session if row[1] == key][:GIVEN_UP]:
                del self.by_session[oldest]

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
        counted = _sums(self.counted, first, last, [label for label in by if label != SESSION])
        if SESSION not in by:
            return counted
        # In a thread, so that no stream waits for the sums of ten thousand sessions.
        by_session = await asyncio.to_thread(_sums, dict(self.by_session), first, last, by)
        return await asyncio.to_thread(with_rest, by_session, counted, by)

    async def stored(self, first: int, last: int, by: Sequence[str]) -> Sums:
        """Return the same of what is in the store. Raise `StoreUnavailable`."""
        if self._table is None:
            return {}
        if SESSION not in by:
            return await self._table.sums(first, last, by)
        counted = await self._table.sums(first, last, [label for label in by if label != SESSION] or ["day"])
        if by == [SESSION]:
            counted = summed({(): amounts} for amounts in counted.values())
        return await asyncio.to_thread(with_rest, await self._table.session_sums(first, last, by), counted, by)

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
        for session in [row for row in self.by_session if row[0] < oldest]:
            del self.by_session[session]
        if self._table is None or not self.counted:
            return
        counted = self.counted
        by_session = self.by_session
        self.counted = defaultdict(_nothing)
        self.by_session = {}
        try:
            await self._table.add(counted, oldest, by_session)
        except StoreUnavailable:  # `Background` logs outages
            for session, amounts in by_session.items():
                self._count_session(session, amounts)
            for row, amounts in counted.items():
                add_amounts(self.counted, row, amounts)
            self.ended.set()


def _sums(counted: Mapping[Any, Sequence[int]], first: int, last: int, by: Sequence[str]) -> Sums:
    """Return the sums of what was counted from one day to another, for each combination of some labels."""
    places = [(*LABELS, SESSION).index(label) for label in by]
    return summed({tuple(row[at] for at in places): amounts} for row, amounts in counted.items() if first <= row[0] <= last)


def with_rest(by_session: Sums, all_sums: Sums, by: Sequence[str]) -> Sums:
    """Return the sums of sessions and, for each combination of the other labels, what belongs to none, or to one that is known
    no more: its session is empty."""
    place = list(by).index(SESSION)
    left = {(*labels[:place], "", *labels[place:]): list(amounts) for labels, amounts in all_sums.items()}
    for labels, amounts in by_session.items():
        rest = left.get((*labels[:place], "", *labels[place + 1 :]))
        if rest is not None:
            rest[:] = [one - part for one, part in zip(rest, amounts, strict=True)]
    return {**by_session, **{labels: amounts for labels, amounts in left.items() if amounts[0] > 0}}


def _nothing() -> list[int]:
    return [0] * len(AMOUNTS)


def summed(parts: Iterable[Mapping[tuple[int | str, ...], Sequence[int]]]) -> Sums:
    """Return the sums of several parts."""
    total: Sums = {}
    for part in parts:
        for labels, amounts in part.items():
            add_amounts(total, labels, amounts)
    return total
