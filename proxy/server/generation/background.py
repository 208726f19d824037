"""Responses that run without a client: started with `background: true`, written to the store as they come.

A worker is one process. It says every second that it lives; what it ran is failed by any other process (or by itself, when
it is started again) once it has been silent for a while.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from proxy.server.generation.records import as_cancelled, begun, ended
from proxy.state import EventRow, Record, Running, Store, StoreUnavailable
from proxy.stream import writer
from proxy.stream.close_open_item import close_open_item
from proxy.telemetry import logs
from proxy.wire.errors import server_error

if TYPE_CHECKING:
    from proxy.server.generation.generation import Generation

#: Seconds until the store is tried again when it failed while a response ran.
_RETRY = 0.5
#: Seconds between two signs of life, and after how many seconds without one a worker is taken for dead.
BEAT = 1.0
SILENCE = 15.0
_CLEAN_UP = 3600.0

LOST_CODE = "server_error"
LOST = "The gateway that ran this response stopped before it ended."

_DONE = writer.DONE.encode()


class Run:
    """One response in the background."""

    def __init__(self, store: Store, record: Record) -> None:
        self.record = record
        self.finished = False
        self._store = store
        self._generation: Generation | None = None
        self._cancelled = False
        self._pieces: list[bytes] = []
        self._news = asyncio.Event()
        self._stored = 0  # the number of the first event that is not in the store yet; 0 until it has begun
        self._writer: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()  # nothing more comes: what is not in the store goes there with the end
        self._hurried = asyncio.Event()  # the process stops: a store that fails is not waited for

    def sink(self, events: bytes) -> None:
        """Events to be written: at once, or with all others that come while the store is busy."""
        self._pieces.append(events)
        self._start_writing()

    def hurry(self) -> None:
        """Wait for the store no longer, should it fail."""
        self._hurried.set()

    def cancel(self) -> None:
        """End it."""
        if self._generation is not None and not self._generation.translator.ended:
            self._cancelled = True
            self._generation.cancel()

    async def wait(self, number: int, within: float) -> None:
        """Wait until event `number` is in the store, or at least so many seconds have passed."""
        if self._stored > number or self.finished:
            return
        try:
            async with asyncio.timeout(within):
                await self._news.wait()
        except TimeoutError:
            return

    async def begin(self, worker: str, generation: Generation) -> str:
        """Write that it is there; returns the response as it stands. Raises `StoreUnavailable`."""
        self._generation = generation
        translator = generation.translator
        events = translator.queue() if self.record.background else translator.start()
        record = begun(self.record, translator)
        row = EventRow(0, translator.next_number, events)
        await self._store.save(record, Running(worker, time.time() + SILENCE), row)
        self._stored = row.next
        self._start_writing()
        return translator.first_json

    async def run(self) -> None:
        """Take it to its end, and write what came of it, however long the store may be gone."""
        generation = self._generation
        assert generation is not None
        try:
            with generation:
                last = (await generation.run()).removesuffix(_DONE)
            self._ending.set()
            if self._writer is not None:
                await self._writer
            record = ended(self.record, generation.translator)
            row = EventRow(self._stored, generation.translator.next_number, b"".join([*self._pieces, last]))
            # What the model had finished before it could be stopped is complete, as its stream says.
            cancelled = self._cancelled and record.status == "failed"
            await self._save(as_cancelled(record) if cancelled else record, row)
        finally:
            self.finished = True
            self._tell()

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
            self._writer = asyncio.create_task(self._write())

    async def _write(self) -> None:
        """Write what waits. A piece that the store did not take is tried again, with all that came since."""
        try:
            while self._pieces:
                pieces, self._pieces = self._pieces, []
                row = EventRow(self._stored, self._number(), b"".join(pieces))
                try:
                    await self._store.append_events(self.record.id, row)
                except StoreUnavailable as error:
                    logs.logger().warning("not stored", extra=logs.fields(response_id=self.record.id, error=str(error)))
                    self._pieces.insert(0, row.data)
                    if self._ending.is_set():
                        return
                    await _pause(self._ending)
                else:
                    self._stored = row.next
                    self._tell()
        finally:
            self._writer = None

    def _number(self) -> int:
        """The number behind the events that are waiting: the terminal event, if it is made already, is not among them."""
        assert self._generation is not None
        translator = self._generation.translator
        return translator.next_number - translator.ended

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


async def _pause(interrupted: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(interrupted.wait(), _RETRY)


class Background:
    """What this process runs in the background, and the upkeep of the store."""

    def __init__(self, store: Store) -> None:
        self.runs: dict[str, Run] = {}
        self._store = store
        self._worker = f"worker_{secrets.token_hex(8)}"
        self._tasks: set[asyncio.Task[None]] = set()
        self._upkeep = asyncio.create_task(self._keep_up())
        self._watching = asyncio.create_task(store.watch(self.cancel))

    async def start(self, run: Run, generation: Generation) -> str:
        """Begin a run; returns the response as it stands. Raises `StoreUnavailable`."""
        try:
            queued = await run.begin(self._worker, generation)
        except StoreUnavailable:
            with generation:  # its books are closed with it
                generation.refused(server_error("The store failed.", 503))
            raise
        self.runs[run.record.id] = run
        task = asyncio.create_task(self._run(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return queued

    def cancel(self, response_id: str) -> None:
        """End a response, if it is this process that runs it."""
        run = self.runs.get(response_id)
        if run is not None:
            run.cancel()

    async def close(self) -> None:
        """Stop. What still runs was ended by the draining; this only waits until it is written."""
        self._upkeep.cancel()
        self._watching.cancel()
        for run in list(self.runs.values()):
            run.hurry()
            run.cancel()
        await asyncio.gather(self._upkeep, self._watching, *self._tasks, return_exceptions=True)

    async def _run(self, run: Run) -> None:
        try:
            await run.run()
        finally:
            self.runs.pop(run.record.id, None)

    async def _keep_up(self) -> None:
        clean_up_at, gone = 0.0, False
        while True:
            try:
                if self.runs:
                    await self._beat()
                await fail_lost(self._store)
                if time.monotonic() >= clean_up_at:
                    clean_up_at = time.monotonic() + _CLEAN_UP
                    if await self._store.lease("clean-up", _CLEAN_UP / 2):
                        await self._store.clean_up()
                if gone:
                    gone = False
                    logs.logger().warning("store is back")
            except StoreUnavailable as error:
                if not gone:
                    gone = True
                    logs.logger().error("store", extra=logs.fields(error=str(error)))
            await asyncio.sleep(BEAT)

    async def _beat(self) -> None:
        mine = set(self.runs)
        alive = await self._store.still_alive(mine, time.time() + SILENCE)
        for response_id in mine - alive:
            self.cancel(response_id)


async def fail_lost(store: Store) -> None:
    """End as failed what dead workers left behind. Raises `StoreUnavailable`."""
    lost = await store.fail_abandoned(LOST_CODE, LOST, close_open_item)
    if jump := store.take_jump():
        logs.logger().warning("clock was set", extra=logs.fields(seconds=round(jump)))
    for response_id in lost:
        logs.logger().warning("lost", extra=logs.fields(response_id=response_id))
