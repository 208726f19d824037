"""The store: an asynchronous interface to the tables; every call is one transaction.

`tenant` is the owner; what belongs to another tenant does not exist. Every method raises `StoreUnavailable` if the database
cannot be read or written."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from responses_gateway.state import conversations, histories, hosted_calls, journals, responses
from responses_gateway.state.interfaces import Database, EventsUnavailable, LiveLog, Sql, StoreUnavailable
from responses_gateway.state.records import (
    Ages,
    Claims,
    Conversation,
    Cursor,
    EventRow,
    HistorySpan,
    ItemPage,
    NewEvents,
    NewItem,
    Orphan,
    PageOrder,
    Place,
    ResponseRecord,
    Running,
    Stored,
    new_id,
)

# Rows per transaction of the clean-up, and how long it rests after each, in multiples of the time that it took: so that others
# get their turn in between.
_BATCH = 50
_REST = 4.0
# After an outage of the store, workers have this many seconds for a heartbeat before they are considered dead.
_RECOVERY = 15.0
# If two clocks drift apart by more than this, in seconds, one of them was set.
_JUMP = 5.0
# A transaction that takes longer than this, in seconds, may have kept the heartbeats of other processes waiting, too.
_SLOW = 5.0
# How long ending the response of a dead worker waits for a log that cannot be reached, in seconds.
_LOG_TIMEOUT = 60.0

T = TypeVar("T")


class Store:
    """Responses, conversations and event logs. Times are Unix times in seconds."""

    def __init__(
        self,
        database: Database,
        retention: float,
        clock: Callable[[], float],
        live: LiveLog | None = None,
        steady: Callable[[], float] | None = None,
        max_bytes: int = 0,
    ) -> None:
        """Build the store on `database`. `retention`: how long a response is kept, in seconds. `live`: where the events of
        running responses are kept, if not in the database. `steady`: a monotonic clock, to notice that `clock` was set.
        `max_bytes`: how large the stored data may get; 0 means any size."""
        self.database = database
        self._retention = retention
        self._clock = clock
        self._live = live
        self._steady = steady
        self._max_bytes = max_bytes
        # The difference of the clocks, when last checked.
        self._clock_difference = clock() - steady() if steady is not None else 0.0
        self._looked_at: float | None = None  # when it was last checked, on the monotonic clock
        self._jumped = 0.0  # by how much the clock was set, since `take_jump`
        self._trusted_from = 0.0  # from when on the heartbeats in the store can be relied on

    async def open(self) -> None:
        """Connect, and create the tables where there are none. Raises `StoreUnavailable`."""
        try:
            await self.database.open()
            if self._live is not None:
                await self._live.open()
        except StoreUnavailable:
            await self.close()
            raise

    async def close(self) -> None:
        """Disconnect."""
        await self.database.close()
        if self._live is not None:
            await self._live.close()

    async def _run(self, work: Callable[[Sql], T]) -> T:
        steady = self._steady or time.monotonic
        begun = steady()
        try:
            result = await self.database.run(work)
        except StoreUnavailable:
            self._trusted_from = self._clock() + _RECOVERY
            raise
        if steady() - begun > _SLOW:
            self._trusted_from = self._clock() + _RECOVERY
        return result

    # ---- responses --------------------------------------------------------------------------------------------------

    async def save(self, record: ResponseRecord, running: Running | None = None, last: EventRow | None = None) -> bool:
        """Write a response: once, or in the background twice, when it starts (`running`) and when it has ended, with its
        last events. Return False if it had ended otherwise or was deleted: then nothing was written."""
        expires_at = self.expiry(record.created_at)
        live = self._live
        if live is None or last is None:
            return await self._run(partial(_save, record=record, running=running, last=last, expires_at=expires_at))
        if running is not None:
            await live.append(record.id, last)
            try:
                return await self._run(partial(_save, record=record, running=running, last=None, expires_at=expires_at))
            except StoreUnavailable:
                with suppress(EventsUnavailable):
                    await live.end(record.id, None)
                raise
        whole = EventRow(0, last.next, b"".join([*(piece.data for piece in live.written(record.id)), last.data]))
        saved = await self._run(partial(_save, record=record, running=None, last=whole, expires_at=expires_at))
        if not saved and await self.is_active(record.tenant, record.id):
            live.forget(record.id)  # another process runs it by now, and needs its log
            return False
        with suppress(EventsUnavailable):  # followers find the rest in the database
            await live.end(record.id, last if saved else None)
        return saved

    def expiry(self, last_used: float) -> float:
        """Return until when a response is kept that was used then. Times are Unix times in seconds."""
        return last_used + self._retention

    async def begin_logged(self, response_id: str, row: EventRow, claim: Callable[[Sql], bool]) -> bool:
        """Have this process run a response whose first events are in the database, if `claim` succeeds; begin its log where
        logs are kept beside the database. Raise `EventsUnavailable` before anything was done, if the log cannot be reached."""
        if self._live is None:
            return await self._run(claim)
        await self._live.read(response_id, -1, 0)
        claimed = await self._run(claim)
        if claimed:
            await self._live.append(response_id, row)
        return claimed

    def forget(self, response_id: str) -> None:
        """Forget the log of a response that another process runs by now, or has ended."""
        if self._live is not None:
            self._live.forget(response_id)

    async def response(self, tenant: str, response_id: str) -> Stored | None:
        """Return a response; None if there is none with this id."""
        return await self._run(lambda sql: responses.get(sql, tenant, response_id))

    async def delete_response(self, tenant: str, response_id: str) -> bool:
        """Delete a response. Return False if there is none with this id."""
        deleted = await self._run(lambda sql: responses.delete(sql, tenant, response_id))
        if deleted and self._live is not None:
            with suppress(EventsUnavailable):  # the process that runs it, if there is one, will notice
                await self._live.cancel(response_id)
                await self._live.delete(response_id)
        return deleted

    # ---- histories --------------------------------------------------------------------------------------------------

    async def history(self, end: Place) -> list[dict[str, Any]]:
        """Return the items up to a place."""
        return await self._run(lambda sql: histories.values(sql, end))

    async def page(self, span: HistorySpan, order: PageOrder, limit: int, cursor: Cursor) -> ItemPage | None:
        """Return a page of a part of a history; None if the cursor names none of its items."""
        return await self._run(lambda sql: histories.page(sql, span, order, limit, cursor))

    async def item(self, end: Place, item_id: str) -> dict[str, Any] | None:
        """Return one of the items up to a place, by its id."""
        return await self._run(lambda sql: histories.item(sql, end, item_id))

    async def items(self, tenant: str, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Find items by id, in any history."""
        return await self._run(lambda sql: histories.find(sql, tenant, ids))

    async def results(self, tenant: str, ids: Sequence[str], most_bytes: int) -> dict[str, bytes]:
        """Find the results of hosted calls by the ids of their items, which are in the order of the history. Of more than
        `most_bytes` together the oldest are left out."""
        return await self._run(lambda sql: hosted_calls.find_results(sql, tenant, ids, most_bytes))

    async def use_approvals(self, digests: Sequence[bytes], response_id: str) -> dict[bytes, str]:
        """Use up approvals for a response: all of them, or none if some were used by others. Return those, with the ids of the
        responses that used them."""
        expires_at = self._clock() + self._retention
        return await self._run(lambda sql: hosted_calls.use_approvals(sql, digests, response_id, expires_at))

    # ---- running responses ------------------------------------------------------------------------------------------

    async def append_events(self, pieces: Sequence[NewEvents]) -> dict[str, bool]:
        """Write the next piece of each of several streams. Return, by the ids of the responses, whether it was written; False:
        the response was deleted, has ended, or is run by another process. (A log beside the database notices no deletion.)
        What is missing in the result failed: it may be written again, and be longer. Raises `StoreUnavailable` if all did."""
        live = self._live
        if live is None:
            return await self._run(lambda sql: {piece.record.id: _append(sql, piece) for piece in pieces})
        started = [(piece.record, piece.head) for piece in pieces if piece.head is not None]
        if started:
            await self._run(partial(_leave_queue, started=started))
        appending = (live.append(piece.record.id, piece.row) for piece in pieces)
        results = await asyncio.gather(*appending, return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        for failure in failures:
            if len(failures) == len(results) or not isinstance(failure, StoreUnavailable):
                raise failure
        return {piece.record.id: done for piece, done in zip(pieces, results, strict=True) if isinstance(done, bool)}

    async def events(self, response_id: str, after: int, within: float = 0.0) -> list[EventRow]:
        """Return the next pieces of a stream that have events with numbers above `after`; all of them once it has ended. If
        there are none, wait about `within` seconds for some."""
        if self._live is None:
            rows = await self._run(lambda sql: responses.events(sql, response_id, after))
            if not rows and within > 0:
                await asyncio.sleep(within)
            return rows
        failure: EventsUnavailable | None = None
        try:
            if rows := await self._live.read(response_id, after, within):
                return rows
        except EventsUnavailable as error:
            failure = error
        rows, running = await self._run(lambda sql: responses.events_of(sql, response_id, after))
        if running and failure is not None:
            raise failure
        return rows

    @property
    def signals(self) -> bool:
        """Whether `events` returns as soon as there are some, and not only after `within` seconds."""
        return self._live is not None

    async def cancel(self, tenant: str, response_id: str) -> None:
        """Ask the process that runs the response to end it."""
        found = await self._run(lambda sql: responses.cancel(sql, tenant, response_id))
        if found and self._live is not None:
            with suppress(EventsUnavailable):  # the next heartbeat brings it as well
                await self._live.cancel(response_id)

    async def watch(self, cancelled: Callable[[str], None]) -> None:
        """Call `cancelled` with ids of responses that should end, sooner than `still_alive` reports them, until the task is
        cancelled. Returns at once if there is no quicker way."""
        if self._live is not None:
            await self._live.watch(cancelled)

    async def is_active(self, tenant: str, response_id: str) -> bool | None:
        """Tell whether a response still runs; None if there is none with this id."""
        return await self._run(lambda sql: responses.is_active(sql, tenant, response_id))

    async def still_alive(self, ids: Collection[str], running: Running) -> Claims:
        """Write the heartbeat of a worker for the responses that it runs. Return which it still runs."""
        return await self._run(lambda sql: responses.still_alive(sql, list(ids), running))

    async def take_over(self, running: Running, most: int, mine: Collection[str] = ()) -> list[Orphan]:
        """Have a worker run responses of dead workers from now on, `most` at a time; no two get the same one. Nobody can take
        them over again. `mine`: what this process runs, however late its heartbeat is."""
        now = self._clock()
        self._notice_jump(now)
        found = await self._run(lambda sql: responses.orphans(sql, now))
        taken: list[Orphan] = []
        for response_id, until in found if now >= self._trusted_from else ():
            if len(taken) == most:
                break
            if response_id in mine or await self._log_of(response_id, until) is None:
                continue
            claim = partial(responses.take_over, response_id=response_id, now=now, running=running)
            try:
                orphan = await self._run(claim)
            except StoreUnavailable:
                if not taken:
                    raise
                break  # those that were taken over are not to be lost
            if orphan is not None:
                taken.append(orphan)
        return taken

    async def adopt(self, orphan: Orphan) -> Orphan:
        """Return an orphan with all of its events, to which its former worker can add nothing more."""
        return orphan if self._live is None else replace(orphan, rows=await self._live.adopt(orphan.id))

    async def release(self, response_id: str, worker: str) -> None:
        """Have a worker run a response no longer: another one may take it over, or end it, at once."""
        now = self._clock()
        await self._run(lambda sql: responses.release(sql, response_id, worker, now))

    async def end_abandoned(self, end: responses.EndAbandoned, mine: Collection[str] = ()) -> list[str]:
        """End the responses of dead workers as `end` says; return their ids. `mine`: what this process runs, however late its
        heartbeat is."""
        now = self._clock()
        done: list[str] = []
        self._notice_jump(now)
        abandoned = await self._run(lambda sql: responses.abandoned(sql, now))  # in any case, to notice an outage
        for response_id, until in abandoned if now >= self._trusted_from else ():
            log = None if response_id in mine else await self._log_of(response_id, until)
            if log is None:
                continue
            ended = await self._run(partial(responses.end_abandoned, response_id=response_id, now=now, live=log, end=end))
            if ended is not None:
                done.append(response_id)
                if self._live is not None:
                    with suppress(EventsUnavailable):
                        await self._live.end(response_id, ended.last)
        return done

    def _notice_jump(self, now: float) -> None:
        """Wait for new heartbeats if the clock was set or the machine slept: the old ones are of another time. The same if this
        process was halted, perhaps together with the others."""
        if self._steady is not None:
            before = self._clock_difference
            steady = self._steady()
            self._clock_difference = now - steady
            if abs(self._clock_difference - before) > _JUMP:
                self._trusted_from = now + _RECOVERY
                self._jumped += self._clock_difference - before
            if self._looked_at is not None and steady - self._looked_at > _SLOW:
                self._trusted_from = now + _RECOVERY
            self._looked_at = steady

    def take_jump(self) -> float:
        """Return by how many seconds the clock was set since the last call; 0 if it was not."""
        jumped = self._jumped
        self._jumped = 0.0
        return jumped

    async def _log_of(self, response_id: str, until: float) -> list[EventRow] | None:
        """Return the part of a log that is not in the database; None to wait for a log that cannot be reached."""
        log = list[EventRow]()
        if self._live is None:
            return log
        try:
            while rows := await self._live.read(response_id, log[-1].next - 1 if log else -1, 0):
                log += rows
        except EventsUnavailable:
            return None if self._clock() < until + _LOG_TIMEOUT else log
        return log

    # ---- conversations ----------------------------------------------------------------------------------------------

    async def create_conversation(self, tenant: str, metadata: dict[str, Any], items: Sequence[NewItem]) -> Conversation:
        """Create a conversation."""
        now = self._clock()
        conversation = Conversation(new_id("conv"), now, metadata, 0)
        await self._run(lambda sql: conversations.create(sql, tenant, conversation, items, now + self._retention))
        return conversation

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """Return a conversation; None if there is none with this id."""
        return await self._run(lambda sql: conversations.get(sql, tenant, conversation_id))

    async def update_conversation(self, tenant: str, conversation_id: str, metadata: dict[str, Any]) -> Conversation | None:
        """Replace the metadata of a conversation. Return None if there is none with this id."""
        expires_at = self._clock() + self._retention
        return await self._run(lambda sql: conversations.update(sql, tenant, conversation_id, metadata, expires_at))

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation. Return False if there is none with this id."""
        return await self._run(lambda sql: conversations.delete(sql, tenant, conversation_id))

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[NewItem]) -> Place | None:
        """Add items to a conversation. Return the place of the last one; None if there is no such conversation."""
        expires_at = self._clock() + self._retention
        return await self._run(lambda sql: conversations.add(sql, tenant, conversation_id, items, expires_at))

    async def remove_item(self, tenant: str, conversation_id: str, item_id: str) -> Conversation | None:
        """Remove an item from a conversation. Return None if there is no such conversation or item."""
        expires_at = self._clock() + self._retention
        return await self._run(lambda sql: conversations.remove(sql, tenant, conversation_id, item_id, expires_at))

    # ---- maintenance -----------------------------------------------------------------------------------------------------

    async def clean_up(self) -> int:
        """Delete what has expired, and the logs of streams that can no longer be resumed. Return how many responses and
        conversations were deleted."""
        now = self._clock()
        await self._in_steps(lambda: self._run(lambda sql: responses.delete_logs(sql, now, _BATCH)))
        await self._in_steps(lambda: self._run(lambda sql: hosted_calls.delete_expired_approvals(sql, now, _BATCH)))
        return await self._in_steps(lambda: self._run(lambda sql: _delete_expired(sql, now, _BATCH)))

    async def make_room(self) -> int:
        """Delete the oldest responses and conversations until the rest may stay. Return how many were deleted."""
        return await self._in_steps(self._make_some_room) if self._max_bytes else 0

    async def _make_some_room(self) -> int:
        if await self.size() <= self._max_bytes:
            return 0
        return await self._run(lambda sql: _delete_oldest(sql, _BATCH))

    async def give_space_back(self) -> None:
        """Give space that is no longer needed back to the file system."""
        await self._in_steps(self.database.shrink)

    async def size(self) -> int:
        """Return about how many bytes the stored data take."""
        return await self.database.size()

    async def ages(self) -> Ages:
        """Return how old the oldest response is."""
        now = self._clock()
        return await self._run(lambda sql: responses.ages(sql, now))

    async def _in_steps(self, step: Callable[[], Awaitable[int]]) -> int:
        """Repeat a step until it has nothing left to do; rest after each. Return the sum of the results."""
        total = 0
        while True:
            begun = time.monotonic()
            done = await step()
            if not done:
                return total
            total += done
            await asyncio.sleep(_REST * (time.monotonic() - begun))

    async def lease(self, name: str, seconds: float) -> bool:
        """Take on some work for all processes. Return False if another did so less than `seconds` ago."""
        now = self._clock()
        statement = (
            "INSERT INTO leases (name, until) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET until = excluded.until "
            "WHERE leases.until < ? RETURNING name"
        )
        return await self._run(lambda sql: sql.execute(statement, (name, now + seconds, now)).fetchone() is not None)

    async def secret(self, name: str) -> bytes:
        """Return a key of 32 random bytes, generated by the first call and always the same afterwards."""

        def work(sql: Sql) -> bytes:
            fresh = secrets.token_bytes(32)
            sql.execute("INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, fresh))
            return bytes(sql.execute("SELECT value FROM secrets WHERE name = ?", (name,)).fetchone()[0])

        return await self._run(work)


def _save(sql: Sql, record: ResponseRecord, running: Running | None, last: EventRow | None, expires_at: float) -> bool:
    if last is not None and running is None:
        responses.append_events(sql, record.id, last, record.repeated, record.worker)
    saved = responses.save(sql, record, expires_at, running)
    if running is not None and running.journal is not None:
        journals.begin(sql, record.id, running.journal)
    if last is not None and running is not None:
        responses.append_events(sql, record.id, last, record.repeated, running.worker)
    return saved


def _leave_queue(sql: Sql, started: Sequence[tuple[ResponseRecord, str]]) -> None:
    for record, head in started:
        responses.leave_queue(sql, record, head)


def _append(sql: Sql, piece: NewEvents) -> bool:
    record, row, head = piece
    if head is not None:
        responses.leave_queue(sql, record, head)
    return responses.append_events(sql, record.id, row, record.repeated, record.worker)


def _delete_expired(sql: Sql, now: float, limit: int) -> int:
    """Delete at most `limit` responses, and as many conversations, that have expired. Return how many."""
    return len(responses.delete_expired(sql, now, limit)) + conversations.delete_expired(sql, now, limit)


def _delete_oldest(sql: Sql, limit: int) -> int:
    """Delete the responses and conversations that would expire first, at most `limit` of each. Return how many."""
    deleted = responses.delete_expired(sql, float("inf"), limit)
    until = deleted[-1] if deleted else float("inf")
    return len(deleted) + conversations.delete_expired(sql, until, limit)
