"""A response in the background: the sink of its generation, whose events are written to the store as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from responses_gateway.ended_tasks import wait_at_most
from responses_gateway.server.generation.background.event_log import RETRY, EventLog
from responses_gateway.server.generation.generation import LOST, Generation
from responses_gateway.server.generation.preparation.context import final_record, started_record, stored_stream
from responses_gateway.server.generation.responses import Creation
from responses_gateway.state import Abandoned, AbandonedEnd, EventRow, NewEvents, ResponseRecord, Running, StoreUnavailable
from responses_gateway.state.running import RunningTable
from responses_gateway.stream.stored import fail_stream, with_status
from responses_gateway.telemetry import logs
from responses_gateway.wire.sse import DONE

KEPT_BYTES = 64 * 1024  # stored events that are kept in memory for followers in this process, in bytes

_DONE = DONE.encode()
_CODE = "server_error"
# The error in the terminal event of a cancelled response: there is no event `response.cancelled`.
_CANCELLED = "The response was cancelled."


class EventReader(Protocol):
    """Reads the events of a response while it runs."""

    def stored(self, row: EventRow) -> None:
        """Take events that were stored just now; those before them may still be missing."""

    def wake(self) -> None:
        """Take notice that this process stores no more events of the response."""


class BackgroundResponse:
    """One response that runs without a client."""

    live = False
    slow = False
    unsent = 0

    def __init__(
        self, table: RunningTable, events: EventLog, creation: Creation, record: ResponseRecord, stored: int = 0
    ) -> None:
        """`stored`: how many events are in the store already."""
        self.record = record
        self.finished = False  # this process does no more for it
        self.complete = False  # its terminal event is in the store
        self.handed_over = False  # another process may take it over
        self.elsewhere = False  # another process runs it, or it was deleted
        self.followers: set[EventReader] = set()  # in this process
        self.task: asyncio.Task[None] | None = None  # takes the response to its end
        self._table = table
        self._events = events
        self._creation = creation
        self._cancelled = False
        self._given_up = False
        self._queued = record.background  # as far as the store knows
        self._pieces: list[bytes] = []
        self._unstored_journal = b""  # belongs to the first of the pieces, which could not be written before
        self._recent: deque[EventRow] = deque()  # the last pieces that were stored
        self._recent_size = 0  # bytes
        self._over = asyncio.Event()
        self._stored = stored  # the number of the first event that is not in the store yet; 0 until the response has begun
        self._stopping = asyncio.Event()  # the process stops: it does not wait for a store that fails

    def write(self, events: bytes) -> None:
        """Have events stored."""
        if not self.elsewhere:
            self._pieces.append(events)
            if self._stored:
                self._events.add(self)

    # ---- a stream of the event log -----------------------------------------------------------------------------------

    def take(self) -> NewEvents:
        """Return the events that wait to be written."""
        translator = self._creation.translator
        head = None
        if self._queued and translator.status == "in_progress":
            head, _ = stored_stream(translator).text_around_output()
            self._queued = False
        row = EventRow(self._stored, self._next_number, b"".join(self._pieces), self._unstored_journal + self._journalled())
        self._pieces = []
        self._unstored_journal = b""
        return NewEvents(self.record, row, head)

    def stored(self, events: NewEvents) -> None:
        """Take notice that events were written."""
        self._show(events.row)

    def _show(self, row: EventRow) -> None:
        """Pass stored events on to the followers."""
        self._stored = row.next
        self._recent.append(row)
        self._recent_size += len(row.data)
        while self._recent_size > KEPT_BYTES and len(self._recent) > 1:
            self._recent_size -= len(self._recent.popleft().data)
        for follower in self.followers:
            follower.stored(row)

    def not_stored(self, events: NewEvents) -> None:
        """Take events back that could not be written."""
        self._pieces.insert(0, events.row.data)
        self._unstored_journal = events.row.journal
        self._queued = self._queued or events.head is not None

    def displaced(self) -> None:
        """Write no more: the response was deleted, or another process runs it or has ended it. A heartbeat shows which."""
        self.elsewhere = True
        self._pieces = []
        for follower in self.followers:
            follower.wake()

    @property
    def _next_number(self) -> int:
        """The number after the events that wait: the terminal event is never among them."""
        translator = self._creation.translator
        return translator.writer.next_number - translator.ended

    def _journalled(self) -> bytes:
        """Return what the events that wait were made of."""
        journal = self._creation.prepared.continuable.journal
        return b"" if journal is None else journal.take()

    # ---- its followers -----------------------------------------------------------------------------------------------

    def events_after(self, number: int) -> Sequence[EventRow] | None:
        """Return the stored pieces that have events with numbers above `number`. None: only the store has all of them."""
        if number + 1 >= self._stored:
            return ()
        if not self._recent or self._recent[0].first > number + 1:
            return None
        rows: list[EventRow] = []
        for row in reversed(self._recent):
            if row.next <= number + 1:
                break
            rows.append(row)
        return rows[::-1]

    async def wait_for_end(self, within: float) -> None:
        """Wait until no more is done for the response here, but no longer than `within` seconds."""
        await wait_at_most(self._over, within)

    # ---- its end -----------------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """End the response, unless it has ended."""
        if self._stored and not self._creation.translator.ended and not self._stopped:
            self._cancelled = True
            self._creation.cancel()

    def stop_waiting(self) -> None:
        """Wait no longer for a store that fails."""
        self._stopping.set()

    def hand_over(self) -> bool:
        """Stop before the end, so that another process can take the response over. Return False if none can."""
        journal = self._creation.prepared.continuable.journal
        if self.task is None or journal is None or self._cancelled or self._creation.translator.ended:
            return False
        self.handed_over = True
        self._stop(self.task)
        return True

    def give_up(self) -> None:
        """Stop before the end: another process has taken the response over, or has ended it."""
        if self.task is not None and not self._creation.translator.ended and not self._stopped:
            self._given_up = True
            self._stop(self.task)

    def _stop(self, task: asyncio.Task[None]) -> None:
        self._creation.log.facts.handed_over = True
        task.cancel()

    @property
    def _stopped(self) -> bool:
        return self.handed_over or self._given_up

    # ---- its life ----------------------------------------------------------------------------------------------------

    async def begin(self, running: Running) -> str:
        """Store that the response exists; return it as it stands. Raise `StoreUnavailable`."""
        record, running, row = self._first_events(running)
        snapshot = self._creation.translator.response.json()
        await self._table.begin(record, running, row)
        self._begun(row)
        return snapshot

    async def begin_waited(self, running: Running) -> bool:
        """Begin a response that has waited in the store. Return False if it waits no longer. Raise `StoreUnavailable`."""
        record, running, row = self._first_events(running)
        if not await self._table.begin_waited(record.id, running, row):
            return False
        self._begun(row)
        return True

    def _begun(self, row: EventRow) -> None:
        self._show(row)
        if self._pieces:
            self._events.add(self)

    def _first_events(self, running: Running) -> tuple[ResponseRecord, Running, EventRow]:
        """Make the first events. Return what is to be stored."""
        creation = self._creation
        translator = creation.translator
        self.record = replace(self.record, worker=running.worker)
        kept = creation.prepared.journalled(translator.created)
        journal = creation.prepared.continuable.journal
        tape = creation.prepared.tape
        if kept is not None and journal is not None and tape is not None:
            tape.attach(translator, journal.note)
            creation.hand_over = self.hand_over
        events = translator.queue() if self.record.background else translator.start()
        creation.log.sent(events)
        row = EventRow(0, translator.writer.next_number, events, self._journalled())
        started = started_record(self.record, translator)
        self.record = replace(self.record, repeated=started.repeated)  # by the next events as well
        return started, replace(running, kept=kept), row

    async def run(self, generation: Generation) -> None:
        """Take the response to its end, and store it, however long the store may be unavailable."""
        try:
            try:
                await generation.run()
                await self._creation.settle()
            except asyncio.CancelledError:
                if not self._stopped:
                    raise
            finally:
                self._creation.end()
            await self._events.settle(self)
            if self._given_up:
                self._table.forget(self.record.id)
            elif not self.handed_over:
                await self._store_end()
            elif self._pieces:
                await self._events.flush(self)
        finally:
            self.finished = True
            self._over.set()
            for follower in self.followers:
                follower.wake()

    async def _store_end(self) -> None:
        translator = self._creation.translator
        # What the model had finished before it could be stopped is complete, as its stream says.
        cancelled = self._cancelled and translator.status == "failed"
        record = final_record(self.record, translator, self._creation.results, cancelled=cancelled)
        last = translator.terminal().removesuffix(_DONE)
        row = EventRow(self._stored, translator.writer.next_number, b"".join([*self._pieces, last]))
        while True:
            try:
                if await self._table.end(record, row):
                    self.complete = True
                    self._show(row)
                return
            except StoreUnavailable as error:
                logs.logger().error("not stored", extra=logs.fields(response_id=record.id, error=str(error)))
                if self._stopping.is_set():
                    return
            await wait_at_most(self._stopping, RETRY)


def end_lost(lost: Abandoned, message: str = LOST) -> AbandonedEnd:
    """Return the end of a response: failed, or cancelled if its client has cancelled it."""
    error = {"code": _CODE, "message": _CANCELLED if lost.cancelled else message}
    number = lost.rows[-1].next if lost.rows else 0
    failed = fail_stream(b"".join(row.data for row in lost.rows), number, lost.head, lost.tail, error)
    last = EventRow(number, failed.next_number, failed.events) if lost.rows else None
    if lost.cancelled:
        return AbandonedEnd("cancelled", with_status(lost.head, lost.tail, "cancelled", None), failed.output, last)
    return AbandonedEnd("failed", failed.head, failed.output, last)
