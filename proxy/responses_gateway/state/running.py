"""Responses that run: they begin, are claimed by a process, and end; of a process that died, others take them over or end them.

A process moves the time ahead until which its responses count as alive (its heartbeat). Whose time has come runs no more."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from responses_gateway.state import events, histories, repeated_texts, responses
from responses_gateway.state.interfaces import Database, EventsUnavailable, LiveLog, Sql, StoreUnavailable, transaction
from responses_gateway.state.records import Abandoned, AbandonedEnd, Claims, EventRow, Orphan, ResponseRecord, Running

# After an outage of the store, workers have this many seconds for a heartbeat before they are considered dead.
_RECOVERY = 15.0
_JUMP = 5.0  # if two clocks drift apart by more than this, in seconds, one of them was set
# A transaction that takes longer than this, in seconds, may have kept the heartbeats of other processes waiting, too.
_SLOW = 5.0
# How long ending the response of a dead worker waits for a log that cannot be reached, in seconds.
_LOG_TIMEOUT = 60.0
_AHEAD = 3600.0  # a heartbeat this far ahead, in seconds, is from before the clock was set back
_IDS = 1000  # ids in one statement

# Which responses of dead workers are taken over, and which are ended.
_HAS_JOURNAL = "EXISTS (SELECT 1 FROM journals WHERE response = responses.id)"
_ORPHANED = f"cancelled = 0 AND {_HAS_JOURNAL}"
_ABANDONED = f"(cancelled = 1 OR NOT {_HAS_JOURNAL})"

EndAbandoned = Callable[[Abandoned], AbandonedEnd]
T = TypeVar("T")


class WatchedDatabase:
    """A database, and whether heartbeats in it can be relied on: not soon after it, the machine or this process was halted,
    perhaps together with other processes, or after the clock was set."""

    def __init__(self, database: Database, clock: Callable[[], float], steady: Callable[[], float] | None) -> None:
        """`clock` returns the Unix time in seconds, `steady` that of a monotonic clock; without one jumps go unnoticed."""
        self._database = database
        self._clock = clock
        self._steady = steady
        self._difference = 0.0  # of the clocks, when last checked
        self._looked_at: float | None = None  # when that was, on the monotonic clock
        self._jumped = 0.0  # by how much the clock was set, since `take_jump`
        self._reliable_from = 0.0

    async def run(self, work: Callable[[Sql], T]) -> T:
        """Run a transaction, and notice whether others had to wait for the database as well."""
        steady = self._steady or time.monotonic
        begun = steady()
        try:
            result = await self._database.run(work)
        except StoreUnavailable:
            self._doubt()
            raise
        if steady() - begun > _SLOW:
            self._doubt()
        return result

    def notice_jump(self) -> None:
        """Notice that the clock was set, or that the machine or this process slept."""
        if self._steady is None:
            return
        steady = self._steady()
        difference = self._clock() - steady
        if self._looked_at is not None:
            if abs(difference - self._difference) > _JUMP:
                self._doubt()
                self._jumped += difference - self._difference
            if steady - self._looked_at > _SLOW:
                self._doubt()
        self._difference = difference
        self._looked_at = steady

    def take_jump(self) -> float:
        """Return by how many seconds the clock was set since the last call; 0 if it was not."""
        jumped = self._jumped
        self._jumped = 0.0
        return jumped

    def has_reliable_heartbeats(self, now: float) -> bool:
        """Tell whether a process that has sent none has died, at the time `now` of the clock."""
        return now >= self._reliable_from

    def _doubt(self) -> None:
        self._reliable_from = self._clock() + _RECOVERY


@dataclass(eq=False)
class RunningTable:
    """The running responses in the table of all responses, which are kept for `retention` seconds. Their events are in `live`,
    if there is such a log. Times are Unix times in seconds. Every method but `forget` raises `StoreUnavailable`."""

    database: WatchedDatabase
    clock: Callable[[], float]
    retention: float
    live: LiveLog | None

    # ---- beginning and end -------------------------------------------------------------------------------------------

    async def begin(self, record: ResponseRecord, running: Running, first: EventRow | None = None) -> None:
        """Write a response that begins, with its first events; none if they are kept nowhere."""
        if self.live is None or first is None:
            await self._begin(record, running, first)
            return
        await self.live.append(record.id, first)
        try:
            await self._begin(record, running, None)
        except StoreUnavailable:
            with suppress(EventsUnavailable):
                await self.live.end(record.id, None)
            raise

    @transaction
    def _begin(self, sql: Sql, record: ResponseRecord, running: Running, first: EventRow | None) -> None:
        responses.insert(sql, record, record.created_at + self.retention, running)
        events.begin_journal(sql, record.id, running.kept)
        if first is not None:
            events.append(sql, record.id, first, record.repeated, running.worker)

    async def begin_waited(self, response_id: str, running: Running, first: EventRow) -> bool:
        """Begin a response that has waited in the store with its first events, which `first` has again. Return False if it
        waits no longer."""
        if self.live is not None:
            await self.live.read(response_id, -1, 0)  # before anything is done it has to be there
        begun = await self._begin_waited(response_id, running, first)
        if begun and self.live is not None:
            try:
                await self.live.append(response_id, first)
            except EventsUnavailable:  # nobody else begins it any more
                self.live.keep(response_id, first)
        return begun

    @transaction
    def _begin_waited(self, sql: Sql, response_id: str, running: Running, first: EventRow) -> bool:
        if not responses.wait_no_longer(sql, response_id):
            return False
        row = sql.execute(
            "UPDATE responses SET worker = ?, alive_until = ?, expires_at = ? "
            "WHERE id = ? AND status = 'queued' AND alive_until IS NULL AND cancelled = 0 RETURNING repeated_end",
            (running.worker, running.until, self.clock() + self.retention, response_id),
        ).fetchone()
        if row is None:
            return False
        events.begin_journal(sql, response_id, running.kept)
        return events.append(sql, response_id, first, histories.texts(sql, row[0]), running.worker)

    async def end(self, record: ResponseRecord, last: EventRow) -> bool:
        """Write a response that has ended, with its last events. Return False if it had ended otherwise, was deleted, or is run
        by another process: then nothing was written."""
        live = self.live
        if live is None:
            return await self._end(record, last)
        whole = EventRow(0, last.next, b"".join([*(piece.data for piece in live.written(record.id)), last.data]))
        saved = await self._end(record, whole)
        if not saved and await self.database.run(lambda sql: responses.is_active(sql, record.id)):
            live.forget(record.id)  # another process runs it by now, and needs its log
            return False
        with suppress(EventsUnavailable):  # followers find the rest in the database
            await live.end(record.id, last if saved else None)
        return saved

    @transaction
    def _end(self, sql: Sql, record: ResponseRecord, last: EventRow) -> bool:
        events.append(sql, record.id, last, record.repeated, record.worker)
        return responses.save(sql, record, self.retention)

    def forget(self, response_id: str) -> None:
        """Forget the log of a response that another process runs by now, or has ended."""
        if self.live is not None:
            self.live.forget(response_id)

    async def cancel(self, tenant: str, response_id: str) -> None:
        """Ask the process that runs the response to end it."""
        there = await self.database.run(lambda sql: cancel(sql, tenant, response_id))
        if there and self.live is not None:
            with suppress(EventsUnavailable):  # the next heartbeat brings it as well
                await self.live.cancel(response_id)

    async def watch(self, cancelled: Callable[[str], None]) -> None:
        """Call `cancelled` with ids of responses that should end, sooner than `still_alive` reports them, until the task is
        cancelled. Returns at once if there is no quicker way."""
        if self.live is not None:
            await self.live.watch(cancelled)

    # ---- processes ---------------------------------------------------------------------------------------------------

    @transaction
    def still_alive(self, sql: Sql, ids: Collection[str], running: Running) -> Claims:
        """Write the heartbeat of a worker for the responses that it runs, in one statement for all. Return which it runs."""
        alive: set[str] = set()
        ended: set[str] = set()
        names = list(ids)
        for first in range(0, len(names), _IDS):
            some = names[first : first + _IDS]
            statement = (
                "UPDATE responses SET alive_until = ? WHERE worker = ? AND alive_until IS NOT NULL "
                f"AND id IN ({', '.join('?' * len(some))}) RETURNING id, cancelled"
            )
            for key, cancelled in sql.execute(statement, (running.until, running.worker, *some)).fetchall():
                (ended if cancelled else alive).add(key)
        missing = [key for key in names if key not in alive | ended]
        find = "SELECT 1 FROM responses WHERE id = ?"
        return Claims(alive, {key for key in missing if sql.execute(find, (key,)).fetchone() is not None})

    @transaction
    def release(self, sql: Sql, response_id: str, worker: str) -> None:
        """Have a worker run a response no longer: another one may take it over, or end it, at once."""
        statement = "UPDATE responses SET worker = '', alive_until = ? WHERE id = ? AND worker = ? AND alive_until IS NOT NULL"
        sql.execute(statement, (self.clock(), response_id, worker))

    async def take_over(self, running: Running, most: int, mine: Collection[str] = ()) -> list[Orphan]:
        """Have a worker run responses of dead workers from now on, `most` at a time; no two get the same one. Nobody can take
        them over again. `mine`: what this process runs, however late its heartbeat is."""
        now = self.clock()
        taken: list[Orphan] = []
        for response_id, until in await self._of_dead_workers(_ORPHANED, now):
            if len(taken) == most:
                break
            if response_id in mine or await self._log_of(response_id, until) is None:
                continue
            try:
                orphan = await self._take_over(response_id, now, running)
            except StoreUnavailable:
                if not taken:
                    raise
                break  # those that were taken over are not to be lost
            if orphan is not None:
                taken.append(orphan)
        return taken

    @transaction
    def _take_over(self, sql: Sql, response_id: str, now: float, running: Running) -> Orphan | None:
        """Return None for what is no orphan any more."""
        statement = (
            "UPDATE responses SET worker = ?, alive_until = ? "
            "WHERE id = ? AND cancelled = 0 AND (alive_until < ? OR alive_until > ?)"
        )
        claimed = sql.execute(statement, (running.worker, running.until, response_id, now, now + _AHEAD)).rowcount > 0
        journal = events.take_journal(sql, response_id) if claimed else None
        if journal is None:
            return None
        kept, pieces = journal
        rows = [piece._replace(journal=pieces.get(piece.first, b"")) for piece in events.read(sql, response_id, -1)]
        return Orphan(response_id, kept, rows)

    async def adopt(self, orphan: Orphan) -> Orphan:
        """Return an orphan with all of its events, to which its former worker can add nothing more."""
        return orphan if self.live is None else replace(orphan, rows=await self.live.adopt(orphan.id))

    async def end_abandoned(self, end: EndAbandoned, mine: Collection[str] = ()) -> list[str]:
        """End the responses of dead workers that cannot be taken over as `end` says; return their ids. `mine`: what this
        process runs, however late its heartbeat is."""
        now = self.clock()
        done: list[str] = []
        for response_id, until in await self._of_dead_workers(_ABANDONED, now):
            log = None if response_id in mine else await self._log_of(response_id, until)
            if log is None:
                continue
            ended = await self.database.run(partial(end_abandoned, response_id=response_id, now=now, live=log, end=end))
            if ended is not None:
                done.append(response_id)
                if self.live is not None:
                    with suppress(EventsUnavailable):
                        await self.live.end(response_id, ended.last)
        return done

    async def _of_dead_workers(self, condition: str, now: float) -> list[tuple[str, float]]:
        """Return responses of workers without a recent heartbeat: ids, and until when each was considered alive."""
        self.database.notice_jump()
        statement = f"SELECT id, alive_until FROM responses WHERE (alive_until < ? OR alive_until > ?) AND {condition}"
        # In any case, to notice an outage.
        rows = await self.database.run(lambda sql: sql.execute(statement, (now, now + _AHEAD)).fetchall())
        return [(row[0], row[1]) for row in rows] if self.database.has_reliable_heartbeats(now) else []

    async def _log_of(self, response_id: str, until: float) -> list[EventRow] | None:
        """Return the part of a log that is not in the database; None to wait for a log that cannot be reached."""
        log = list[EventRow]()
        if self.live is None:
            return log
        try:
            while rows := await self.live.read(response_id, log[-1].next - 1 if log else -1, 0):
                log += rows
        except EventsUnavailable:
            return None if self.clock() < until + _LOG_TIMEOUT else log
        return log


# ---- inside an open transaction ----------------------------------------------------------------------------------------


def cancel(sql: Sql, tenant: str, response_id: str) -> bool:
    """Ask the process that runs the response to end it. Return False if there is none with this id."""
    statement = "UPDATE responses SET cancelled = 1 WHERE tenant = ? AND id = ?"
    return sql.execute(statement, (tenant, response_id)).rowcount > 0


def end_abandoned(sql: Sql, response_id: str, now: float, live: Sequence[EventRow], end: EndAbandoned) -> AbandonedEnd | None:
    """End an abandoned response as `end` says. `live` is its log if the database does not have it. Return None if the response
    has ended otherwise."""
    row = sql.execute(
        "SELECT head, tail, input_end, repeated_end, tenant, cancelled FROM responses "
        "WHERE id = ? AND (alive_until < ? OR alive_until > ?)",
        (response_id, now, now + _AHEAD),
    ).fetchone()
    if row is None:
        return None
    head, tail, input_end, repeated_end, tenant, cancelled = row
    repeated = histories.texts(sql, repeated_end)
    for piece in live:
        events.append(sql, response_id, piece, repeated)
    rows = events.read(sql, response_id, -1)
    ended = end(Abandoned(head, repeated_texts.restored(tail, repeated), rows, bool(cancelled)))
    if ended.last is not None:
        events.append(sql, response_id, ended.last, repeated)
    output_end = histories.append(sql, tenant, input_end, ended.output)
    sql.execute(
        "UPDATE responses SET status = ?, head = ?, output_end = ?, worker = NULL, alive_until = NULL WHERE id = ?",
        (ended.status, ended.head, output_end, response_id),
    )
    sql.execute("DELETE FROM journals WHERE response = ?", (response_id,))
    return ended
