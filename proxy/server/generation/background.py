"""Responses that run without a client: asked for with `background: true`, and written to the store as they come.

A process renews its claim on what it runs every second. Once a claim has expired, any other process (or the same one, after a
restart) goes on with the response, once, if it has a journal, and ends it as failed if it has none. A process that is told to
stop gives up its claim on what does not end in time."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial

from proxy.probing.autoconfiguration import Autoconfiguration
from proxy.server.generation.continuation_request import CannotContinue
from proxy.server.generation.generation import LOST, Generation
from proxy.server.generation.in_flight import State
from proxy.server.generation.preparation.context import final_record, started_record
from proxy.server.generation.responses import Creation, Responses
from proxy.server.generation.takeover import begin_again
from proxy.state import EventRow, Orphan, Record, Running, Store, StoreUnavailable
from proxy.stream import writer
from proxy.stream.stored_stream import close_open_item
from proxy.telemetry import logs
from proxy.wire.errors import invalid_request, server_error

# Seconds until the store is tried again when it failed while a response ran.
_RETRY = 0.5
# Seconds between two renewals of the claims, and seconds after which a claim expires.
BEAT = 1.0
SILENCE = 15.0

LOST_CODE = "server_error"
# Responses that this process makes ready at once to go on with them.
_TAKEN_AT_ONCE = 16

_DONE = writer.DONE.encode()


class Run:
    """One response in the background: the sink of its generation, which writes the events to the store."""

    live = False
    slow = False
    unsent = 0

    def __init__(self, store: Store, creation: Creation, record: Record, stored: int = 0) -> None:
        """`stored`: how many events are in the store already."""
        self.record = record
        self.finished = False
        self.handed_over = False
        self.left = False  # it is another process's by now
        self.task: asyncio.Task[None] | None = None  # takes the response to its end
        self._store = store
        self._creation = creation
        self._cancelled = False
        self._pieces: list[bytes] = []
        self._unstored = b""  # of the journal: what the store did not take
        self._news = asyncio.Event()
        self._stored = stored  # the number of the first event that is not in the store yet; 0 until the response has begun
        self._writer: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()  # no more events come; those that wait are stored together with the end
        self._hurried = asyncio.Event()  # the process stops: a store that fails is not waited for

    def write(self, events: bytes) -> None:
        """Store events: at once, or together with all others that come while the store is busy."""
        self._pieces.append(events)
        self._start_writing()

    def hurry(self) -> None:
        """Wait for the store no longer, should it fail."""
        self._hurried.set()

    def cancel(self) -> None:
        """End the response, unless it has ended."""
        if self._stored and not self._creation.translator.ended and not self._stopped:
            self._cancelled = True
            self._creation.cancel()

    def hand_over(self) -> bool:
        """Stop without an end, so that another gateway can go on. Return False if none can."""
        journal = self._creation.prepared.continuable.journal
        if self.task is None or journal is None or not journal.complete or self._cancelled or self._creation.translator.ended:
            return False
        self.handed_over = True
        self._stop(self.task)
        return True

    def leave(self) -> None:
        """Stop without an end: another process runs the response by now, or has ended it."""
        if self.task is not None and not self._creation.translator.ended and not self._stopped:
            self.left = True
            self._stop(self.task)

    def _stop(self, task: asyncio.Task[None]) -> None:
        self._creation.log.facts.handed_over = True
        task.cancel()

    @property
    def _stopped(self) -> bool:
        return self.handed_over or self.left

    async def wait(self, number: int, within: float) -> None:
        """Wait until event `number` is in the store, but no longer than so many seconds."""
        if self._stored > number or self.finished:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._news.wait()

    async def begin(self, worker: str) -> str:
        """Store that the response exists; return it as it stands. Raise `StoreUnavailable`."""
        creation = self._creation
        translator = creation.translator
        self.record = replace(self.record, worker=worker)
        beginning = creation.prepared.beginning(translator.created)
        if beginning is not None and creation.prepared.continuable.journal is not None:
            translator.note = creation.prepared.continuable.journal.note
            creation.hand_over = self.hand_over
        events = translator.queue() if self.record.background else translator.start()
        creation.log.sent(events)
        record = started_record(self.record, translator)
        snapshot = translator.response()
        row = EventRow(0, translator.next_number, events, self._journalled())
        await self._store.save(record, Running(worker, time.time() + SILENCE, beginning), row)
        self._stored = row.next
        self._start_writing()
        return snapshot

    async def run(self, generation: Generation) -> None:
        """Take the response to its end, and store what came of it, however long the store may be gone."""
        try:
            try:
                await generation.run()
            except asyncio.CancelledError:
                if not self._stopped:
                    raise
            finally:
                self._creation.end()
            self._ending.set()
            if self._writer is not None:
                await self._writer
            if self.left:
                self._store.leave(self.record.id)
            if self._stopped:
                return
            translator = self._creation.translator
            # What the model had finished before it could be stopped is complete, as its stream says.
            cancelled = self._cancelled and translator.status == "failed"
            record = final_record(self.record, translator, self._creation.results, cancelled=cancelled)
            last = translator.terminal().removesuffix(_DONE)
            await self._save(record, EventRow(self._stored, translator.next_number, b"".join([*self._pieces, last])))
        finally:
            self.finished = True
            self._announce()

    async def _save(self, record: Record, last: EventRow) -> None:
        while True:
            try:
                await self._store.save(record, last=last)
                return
            except StoreUnavailable as error:
                logs.logger().error("not stored", extra=logs.fields(response_id=record.id, error=str(error)))
                if self._hurried.is_set():
                    return
            await _pause(self._hurried)

    def _start_writing(self) -> None:
        if self._pieces and self._stored and self._writer is None:
            self._writer = asyncio.create_task(self._write_pieces())

    async def _write_pieces(self) -> None:
        """Store the events that wait. Those that the store did not take are tried again, with all that came since."""
        try:
            while self._pieces:
                pieces = self._pieces
                self._pieces = []
                row = EventRow(self._stored, self._next_number(), b"".join(pieces), self._unstored + self._journalled())
                self._unstored = b""
                try:
                    await self._store.append_events(self.record, row)
                except StoreUnavailable as error:
                    logs.logger().warning("not stored", extra=logs.fields(response_id=self.record.id, error=str(error)))
                    self._pieces.insert(0, row.data)
                    self._unstored = row.journal
                    if self._ending.is_set():
                        return
                    await _pause(self._ending)
                else:
                    self._stored = row.next
                    self._announce()
        finally:
            self._writer = None

    def _next_number(self) -> int:
        """Return the number after the events that wait: the terminal event is never among them."""
        translator = self._creation.translator
        return translator.next_number - translator.ended

    def _journalled(self) -> bytes:
        """Return what the events that wait were made of."""
        journal = self._creation.prepared.continuable.journal
        return b"" if journal is None else journal.take()

    def _announce(self) -> None:
        """Wake those who wait for events."""
        self._news.set()
        self._news = asyncio.Event()


async def _pause(interrupted: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(interrupted.wait(), _RETRY)


class Background:
    """The responses that this process runs in the background, and what becomes of those whose process is gone."""

    def __init__(self, store: Store, responses: Responses, autoconfiguration: Autoconfiguration) -> None:
        self.runs: dict[str, Run] = {}
        self._store = store
        self._responses = responses
        self._autoconfiguration = autoconfiguration
        self._taken: dict[str, asyncio.Task[None]] = {}  # those that are made ready to go on
        self._worker = f"worker_{secrets.token_hex(8)}"
        self._tasks: set[asyncio.Task[None]] = set()
        self._upkeep = asyncio.create_task(self._keep_up())
        self._watching = asyncio.create_task(store.watch(self.cancel))

    async def start(self, run: Run, creation: Creation, generation: Generation) -> str:
        """Begin a run, which ends the creation; return the response as it stands. Raise `StoreUnavailable`."""
        creation.detach()
        try:
            snapshot = await run.begin(self._worker)
        except StoreUnavailable:
            creation.end(server_error("The store failed.", 503))
            raise
        self._start(run, generation)
        return snapshot

    def _start(self, run: Run, generation: Generation) -> None:
        self.runs[run.record.id] = run
        run.task = asyncio.create_task(self._run(run, generation))
        self._tasks.add(run.task)
        run.task.add_done_callback(self._tasks.discard)

    def cancel(self, response_id: str) -> None:
        """End a response, if this process runs it."""
        run = self.runs.get(response_id)
        taken = self._taken.get(response_id)
        if run is not None:
            run.cancel()
        elif taken is not None and not taken.cancelling():  # else it is being given up
            taken.cancel()

    async def close(self) -> None:
        """Stop. Draining has ended what still ran, so this only waits until it is written."""
        self._upkeep.cancel()
        self._watching.cancel()
        for run in list(self.runs.values()):
            run.hurry()
            run.cancel()
        for task in self._taken.values():
            task.cancel()
        await asyncio.gather(self._upkeep, self._watching, *self._taken.values(), *self._tasks, return_exceptions=True)

    async def _run(self, run: Run, generation: Generation) -> None:
        try:
            await run.run(generation)
        finally:
            self.runs.pop(run.record.id, None)
        if run.handed_over:
            await self._release(run.record.id)

    async def _release(self, response_id: str) -> None:
        with suppress(StoreUnavailable):  # the claim expires
            await self._store.release(response_id, self._worker)

    async def fail_lost(self) -> None:
        """End the responses as failed whose process is gone, and that none can go on with. Raise `StoreUnavailable`."""
        lost = await self._store.fail_abandoned(LOST_CODE, LOST, close_open_item, self._mine)
        if jump := self._store.take_jump():
            logs.logger().warning("clock was set", extra=logs.fields(seconds=round(jump)))
        for response_id in lost:
            logs.logger().warning("lost", extra=logs.fields(response_id=response_id))

    @property
    def _mine(self) -> set[str]:
        return {*self.runs, *self._taken}

    async def _keep_up(self) -> None:
        store_is_gone = False
        while True:
            try:
                if self.runs or self._taken:
                    await self._renew_claims()
                await self._take_over()
                await self.fail_lost()
                if store_is_gone:
                    store_is_gone = False
                    logs.logger().warning("store is back")
            except StoreUnavailable as error:
                if not store_is_gone:
                    store_is_gone = True
                    logs.logger().error("store", extra=logs.fields(error=str(error)))
            except Exception as defect:  # without heartbeats, others would take over all that runs here
                self._report(defect)
            await asyncio.sleep(BEAT)

    def _report(self, defect: Exception, **fields: str) -> None:
        self._responses.metrics.defects.inc()
        logs.logger().error("defect", exc_info=defect, extra=logs.fields(**fields))

    async def _renew_claims(self) -> None:
        mine = self._mine
        claims = await self._store.still_alive(mine, self._running())
        for response_id in mine - claims.alive:
            run = self.runs.get(response_id)
            if run is not None and response_id in claims.elsewhere:
                run.leave()
            else:
                self.cancel(response_id)

    def _running(self) -> Running:
        return Running(self._worker, time.time() + SILENCE)

    async def _take_over(self) -> None:
        """Go on with responses whose process is gone, unless this one is about to go, too."""
        room = _TAKEN_AT_ONCE - len(self._taken)
        if room and self._responses.in_flight.state is State.SERVING:
            for orphan in await self._store.take_over(self._running(), room, self._mine):
                task = asyncio.create_task(self._go_on(orphan))
                self._taken[orphan.id] = task
                task.add_done_callback(partial(self._settled, orphan.id))

    def _settled(self, response_id: str, _task: asyncio.Task[None]) -> None:
        self._taken.pop(response_id, None)

    async def _go_on(self, orphan: Orphan) -> None:
        try:
            creation = await begin_again(self._responses, self._autoconfiguration, self._store, orphan)
        except CannotContinue as reason:
            await self._give_up(orphan, str(reason))
        except asyncio.CancelledError:  # cancelled, or deleted; or this process stops
            await self._give_up(orphan, "stopped")
        except Exception as defect:  # the response has to end whatever went wrong
            self._report(defect, response_id=orphan.id)
            await self._give_up(orphan, "defect")
        else:
            assert creation.prepared.record is not None
            creation.detach()
            record = replace(creation.prepared.record, detached=True, worker=self._worker)
            stored = creation.translator.next_number - creation.translator.ended
            run = Run(self._store, creation, record, stored)
            generation = creation.start(run)
            generation.take_over()
            logs.logger().warning("taken over", extra=logs.fields(response_id=orphan.id, events=stored))
            self._start(run, generation)

    async def _give_up(self, orphan: Orphan, reason: str) -> None:
        """Have a response end that cannot go on."""
        metrics = self._responses.metrics
        metrics.count(metrics.continuations, "failed", reason)
        logs.logger().warning("not taken over", extra=logs.fields(response_id=orphan.id, reason=reason))
        self._store.leave(orphan.id)
        await self._release(orphan.id)


def new_run(store: Store | None, creation: Creation) -> Run:
    """Return the run of a response that is to be stored. Raise `ApiError` 400 if it is not."""
    if store is None or creation.prepared.record is None:
        message = "'background' requires stored responses: omit 'store' or set it to true."
        raise invalid_request(message, "background", "unsupported_parameter")
    return Run(store, creation, replace(creation.prepared.record, detached=True))
