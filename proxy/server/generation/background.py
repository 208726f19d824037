"""Responses that run without a client: asked for with `background: true`, and written to the store as they come.

A process renews its claim on what it runs every second. Once a claim has expired, any other process (or the same one, after a
restart) ends the response as failed."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from dataclasses import replace

from proxy.server.generation.context import final_record, started_record
from proxy.server.generation.create import Creation
from proxy.server.generation.generation import Generation
from proxy.state import EventRow, Record, Running, Store, StoreUnavailable
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
LOST = "The gateway that ran this response stopped before it ended."

_DONE = writer.DONE.encode()


class Run:
    """One response in the background: the sink of its generation, which writes the events to the store."""

    live = False
    slow = False
    unsent = 0

    def __init__(self, store: Store, creation: Creation, record: Record) -> None:
        self.record = record
        self.finished = False
        self._store = store
        self._creation = creation
        self._cancelled = False
        self._pieces: list[bytes] = []
        self._news = asyncio.Event()
        self._stored = 0  # the number of the first event that is not in the store yet; 0 until the response has begun
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
        if self._stored and not self._creation.translator.ended:
            self._cancelled = True
            self._creation.cancel()

    async def wait(self, number: int, within: float) -> None:
        """Wait until event `number` is in the store, but no longer than so many seconds."""
        if self._stored > number or self.finished:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._news.wait()

    async def begin(self, worker: str) -> str:
        """Store that the response exists; return it as it stands. Raise `StoreUnavailable`."""
        translator = self._creation.translator
        events = translator.queue() if self.record.background else translator.start()
        self._creation.log.sent(events)
        record = started_record(self.record, translator)
        snapshot = translator.response()
        row = EventRow(0, translator.next_number, events)
        await self._store.save(record, Running(worker, time.time() + SILENCE), row)
        self._stored = row.next
        self._start_writing()
        return snapshot

    async def run(self, generation: Generation) -> None:
        """Take the response to its end, and store what came of it, however long the store may be gone."""
        try:
            try:
                await generation.run()
            finally:
                self._creation.end()
            self._ending.set()
            if self._writer is not None:
                await self._writer
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
                row = EventRow(self._stored, self._next_number(), b"".join(pieces))
                try:
                    await self._store.append_events(self.record, row)
                except StoreUnavailable as error:
                    logs.logger().warning("not stored", extra=logs.fields(response_id=self.record.id, error=str(error)))
                    self._pieces.insert(0, row.data)
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

    def _announce(self) -> None:
        """Wake those who wait for events."""
        self._news.set()
        self._news = asyncio.Event()


async def _pause(interrupted: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(interrupted.wait(), _RETRY)


class Background:
    """The responses that this process runs in the background, and the end of those whose process is gone."""

    def __init__(self, store: Store) -> None:
        self.runs: dict[str, Run] = {}
        self._store = store
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
        self.runs[run.record.id] = run
        task = asyncio.create_task(self._run(run, generation))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return snapshot

    def cancel(self, response_id: str) -> None:
        """End a response, if this process runs it."""
        run = self.runs.get(response_id)
        if run is not None:
            run.cancel()

    async def close(self) -> None:
        """Stop. Draining has ended what still ran, so this only waits until it is written."""
        self._upkeep.cancel()
        self._watching.cancel()
        for run in list(self.runs.values()):
            run.hurry()
            run.cancel()
        await asyncio.gather(self._upkeep, self._watching, *self._tasks, return_exceptions=True)

    async def _run(self, run: Run, generation: Generation) -> None:
        try:
            await run.run(generation)
        finally:
            self.runs.pop(run.record.id, None)

    async def _keep_up(self) -> None:
        store_is_gone = False
        while True:
            try:
                if self.runs:
                    await self._renew_claims()
                await fail_lost(self._store)
                if store_is_gone:
                    store_is_gone = False
                    logs.logger().warning("store is back")
            except StoreUnavailable as error:
                if not store_is_gone:
                    store_is_gone = True
                    logs.logger().error("store", extra=logs.fields(error=str(error)))
            await asyncio.sleep(BEAT)

    async def _renew_claims(self) -> None:
        mine = set(self.runs)
        alive = await self._store.still_alive(mine, time.time() + SILENCE)
        for response_id in mine - alive:
            self.cancel(response_id)


def new_run(store: Store | None, creation: Creation) -> Run:
    """Return the run of a response that is to be stored. Raise `ApiError` 400 if it is not."""
    if store is None or creation.record is None:
        message = "'background' requires stored responses: omit 'store' or set it to true."
        raise invalid_request(message, "background", "unsupported_parameter")
    return Run(store, creation, replace(creation.record, detached=True))


async def fail_lost(store: Store) -> None:
    """End the responses as failed whose process is gone. Raise `StoreUnavailable`."""
    lost = await store.fail_abandoned(LOST_CODE, LOST, close_open_item)
    if jump := store.take_jump():
        logs.logger().warning("clock was set", extra=logs.fields(seconds=round(jump)))
    for response_id in lost:
        logs.logger().warning("lost", extra=logs.fields(response_id=response_id))
