"""The store: one small interface over the tables, asynchronous; every call is one transaction.

`tenant` says whose something is: what belongs to another is not there. Every method raises `StoreUnavailable` where the
database cannot be read or written.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from proxy.state import chains, conversations, responses
from proxy.state.database import Database, Sql, StoreUnavailable
from proxy.state.events import EventsUnavailable, LiveLog
from proxy.state.records import Conversation, Cursor, EventRow, NewItem, Page, PageOrder, Place, Record, Running, Span, Stored

#: Rows that one round of the clean-up takes, so that others get their turn in between.
_BATCH = 100


#: How long the log of a stream is kept that was not asked for in the background, in seconds.
_LOG_KEPT = 3600.0
#: After the store was gone, the workers get so many seconds to show that they live before any is taken for dead.
_RECOVERY = 15.0
#: A difference between two clocks that is more than their inaccuracy, in seconds: one of them was set.
_JUMP = 5.0
#: How long the end of a response whose worker is dead waits for a log that cannot be reached, in seconds.
_PATIENCE = 60.0

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
    ) -> None:
        """`retention`: how long a response is kept, in seconds. `live`: where the events of running responses are, if not in
        the database as well. `steady`: a clock that nobody sets, to notice when `clock` was set."""
        self._database = database
        self._retention = retention
        self._clock = clock
        self._live = live
        self._steady = steady
        self._apart = clock() - steady() if steady is not None else 0.0  # the two clocks, when last looked at
        self._jumped = 0.0  # by how much the clock was set, until somebody asks
        self._trusted_from = 0.0  # when the signs of life in the store say something again

    async def open(self) -> None:
        """Connect, and bring the schema up to date. Raises `StoreUnavailable`."""
        try:
            await self._database.open()
            if self._live is not None:
                await self._live.open()
        except StoreUnavailable:
            await self.close()
            raise

    async def close(self) -> None:
        """Disconnect."""
        await self._database.close()
        if self._live is not None:
            await self._live.close()

    async def _run(self, work: Callable[[Sql], T]) -> T:
        try:
            return await self._database.run(work)
        except StoreUnavailable:
            self._trusted_from = self._clock() + _RECOVERY
            raise

    # ---- responses --------------------------------------------------------------------------------------------------

    async def save(self, record: Record, running: Running | None = None, last: EventRow | None = None) -> bool:
        """Write a response: once, or in the background twice, when it begins (`running`) and when it has ended, together
        with its last events. False if it had ended otherwise, or was deleted: then nothing was written."""
        expires_at, live = record.created_at + self._retention, self._live
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
        with suppress(EventsUnavailable):  # who follows finds the rest in the database
            await live.end(record.id, last if saved else None)
        return saved

    async def response(self, tenant: str, response_id: str) -> Stored | None:
        """A response."""
        return await self._run(lambda sql: responses.get(sql, tenant, response_id))

    async def delete_response(self, tenant: str, response_id: str) -> bool:
        """Take a response away. False if there is none of this id."""
        deleted = await self._run(lambda sql: responses.delete(sql, tenant, response_id))
        if deleted and self._live is not None:
            with suppress(EventsUnavailable):  # whoever runs it finds it gone
                await self._live.cancel(response_id)
        return deleted

    # ---- histories --------------------------------------------------------------------------------------------------

    async def history(self, end: Place) -> list[dict[str, Any]]:
        """The items up to a place."""
        return await self._run(lambda sql: chains.values(sql, end))

    async def page(self, span: Span, order: PageOrder, limit: int, cursor: Cursor) -> Page | None:
        """A page of a part of a history; None if the cursor names none of its items."""
        return await self._run(lambda sql: chains.page(sql, span, order, limit, cursor))

    async def item(self, end: Place, item_id: str) -> dict[str, Any] | None:
        """One of the items up to a place."""
        return await self._run(lambda sql: chains.item(sql, end, item_id))

    async def items(self, tenant: str, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Items by id, wherever they stand."""
        return await self._run(lambda sql: chains.find(sql, tenant, ids))

    # ---- running responses ------------------------------------------------------------------------------------------

    async def append_events(self, response_id: str, row: EventRow) -> None:
        """Write the next piece of a stream. After a failure it may be written again, longer than it was."""
        if self._live is not None:
            await self._live.append(response_id, row)
        else:
            await self._run(lambda sql: responses.append_events(sql, response_id, row))

    async def events(self, response_id: str, after: int, within: float = 0.0) -> list[EventRow]:
        """The next pieces of a stream that hold events with numbers above `after`, all of them once it has ended. If there
        are none, wait about so many seconds for some."""
        if self._live is None:
            rows = await self._run(lambda sql: responses.events(sql, response_id, after))
            if not rows and within > 0:
                await asyncio.sleep(within)
            return rows
        gone: EventsUnavailable | None = None
        try:
            if rows := await self._live.read(response_id, after, within):
                return rows
        except EventsUnavailable as error:
            gone = error
        rows, running = await self._run(lambda sql: responses.events_of(sql, response_id, after))
        if running and gone is not None:
            raise gone
        return rows

    @property
    def signals(self) -> bool:
        """Whether `events` returns as soon as there are some, and not only when the time is over."""
        return self._live is not None

    async def cancel(self, tenant: str, response_id: str) -> None:
        """Ask whoever runs the response to end it."""
        found = await self._run(lambda sql: responses.cancel(sql, tenant, response_id))
        if found and self._live is not None:
            with suppress(EventsUnavailable):  # the next sign of life brings it as well
                await self._live.cancel(response_id)

    async def watch(self, cancelled: Callable[[str], None]) -> None:
        """Call `cancelled` with ids of responses that are to be ended, sooner than `still_alive` tells, until the task is
        cancelled; returns at once where there is no quicker way."""
        if self._live is not None:
            await self._live.watch(cancelled)

    async def is_active(self, tenant: str, response_id: str) -> bool | None:
        """Whether a response still runs; None if there is none of this id."""
        return await self._run(lambda sql: responses.is_active(sql, tenant, response_id))

    async def still_alive(self, ids: Iterable[str], until: float) -> set[str]:
        """A sign of life of a worker for what it runs. Returns the responses that it is to go on with."""
        return await self._run(lambda sql: responses.still_alive(sql, ids, until))

    async def fail_abandoned(self, code: str, message: str, close: responses.CloseOpen) -> list[str]:
        """End as failed what was run by workers that are dead; `close` closes what their streams have open. Returns the ids."""
        now, error, failed = self._clock(), {"code": code, "message": message}, []
        self._notice_jump(now)
        abandoned = await self._run(lambda sql: responses.abandoned(sql, now))  # asked in any case: is the store there?
        for response_id, until in abandoned if now >= self._trusted_from else ():
            log = await self._log_of(response_id, until)
            if log is not None:
                fail = partial(responses.fail_abandoned, response_id=response_id, now=now, error=error, live=log, close=close)
                last = await self._run(fail)
                failed += [response_id] if last is not None else []
                if last is not None and self._live is not None:
                    with suppress(EventsUnavailable):
                        await self._live.end(response_id, last)
        return failed

    def _notice_jump(self, now: float) -> None:
        """After the clock was set, or the machine slept, the signs of life are of another time: wait for the next ones."""
        if self._steady is not None:
            before, self._apart = self._apart, now - self._steady()
            if abs(self._apart - before) > _JUMP:
                self._trusted_from = now + _RECOVERY
                self._jumped += self._apart - before

    def take_jump(self) -> float:
        """By how many seconds the clock was set since this was last asked; 0 if it was not."""
        jumped, self._jumped = self._jumped, 0.0
        return jumped

    async def _log_of(self, response_id: str, until: float) -> list[EventRow] | None:
        """What of a log is not in the database; None if it is worth waiting for."""
        log = list[EventRow]()
        if self._live is None:
            return log
        try:
            while rows := await self._live.read(response_id, log[-1].next - 1 if log else -1, 0):
                log += rows
        except EventsUnavailable:
            return None if self._clock() < until + _PATIENCE else log
        return log

    # ---- conversations ----------------------------------------------------------------------------------------------

    async def create_conversation(self, tenant: str, metadata: dict[str, Any], items: Sequence[NewItem]) -> Conversation:
        """Begin a conversation."""
        now = self._clock()
        conversation = Conversation(f"conv_{secrets.token_hex(16)}", now, metadata, 0)
        await self._run(lambda sql: conversations.create(sql, tenant, conversation, items, now + self._retention))
        return conversation

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """A conversation."""
        return await self._run(lambda sql: conversations.get(sql, tenant, conversation_id))

    async def update_conversation(self, tenant: str, conversation_id: str, metadata: dict[str, Any]) -> Conversation | None:
        """Replace its metadata. None if there is none of this id."""
        expires_at = self._clock() + self._retention
        return await self._run(lambda sql: conversations.update(sql, tenant, conversation_id, metadata, expires_at))

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Take a conversation away. False if there is none of this id."""
        return await self._run(lambda sql: conversations.delete(sql, tenant, conversation_id))

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[NewItem]) -> Place | None:
        """Add items to a conversation. Returns the place of the last one; None if there is no such conversation."""
        expires_at = self._clock() + self._retention
        return await self._run(lambda sql: conversations.add(sql, tenant, conversation_id, items, expires_at))

    async def remove_item(self, tenant: str, conversation_id: str, item_id: str) -> Conversation | None:
        """Take an item out of a conversation. None if there is no such conversation or item."""
        expires_at = self._clock() + self._retention
        return await self._run(lambda sql: conversations.remove(sql, tenant, conversation_id, item_id, expires_at))

    # ---- upkeep -----------------------------------------------------------------------------------------------------

    async def clean_up(self) -> int:
        """Take away what is older than the retention, and the logs of streams that nobody will take up any more. Returns how
        many responses and conversations went."""
        now, total = self._clock(), 0
        await self._run(lambda sql: responses.delete_logs(sql, now - _LOG_KEPT))
        while removed := await self._run(lambda sql: responses.delete_expired(sql, now, _BATCH)):
            total += removed
        while removed := await self._run(lambda sql: conversations.delete_expired(sql, now, _BATCH)):
            total += removed
        return total

    async def lease(self, name: str, seconds: float) -> bool:
        """Take on some work for all processes. False if another has done so less than so many seconds ago."""
        now = self._clock()
        statement = (
            "INSERT INTO leases (name, until) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET until = excluded.until "
            "WHERE leases.until < ? RETURNING name"
        )
        return await self._run(lambda sql: sql.execute(statement, (name, now + seconds, now)).fetchone() is not None)

    async def secret(self, name: str) -> bytes:
        """A key of 32 random bytes, made when first asked for and the same ever after."""

        def work(sql: Sql) -> bytes:
            fresh = secrets.token_bytes(32)
            sql.execute("INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, fresh))
            return bytes(sql.execute("SELECT value FROM secrets WHERE name = ?", (name,)).fetchone()[0])

        return await self._run(work)


def _save(sql: Sql, record: Record, running: Running | None, last: EventRow | None, expires_at: float) -> bool:
    if last is not None and running is None:
        responses.append_events(sql, record.id, last)
    saved = responses.save(sql, record, expires_at, running)
    if last is not None and running is not None:
        responses.append_events(sql, record.id, last)
    return saved
