"""The events of the responses that this process runs are written to the store: those of all of them with one statement.

While the store is written, and for a while afterwards, events collect. So the store takes the same part of the time however
many responses run, and a single one waits for a few milliseconds at most."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

from responses_gateway.ended_tasks import end_tasks
from responses_gateway.state import NewEvents, StoreUnavailable
from responses_gateway.state.events import EventTable
from responses_gateway.telemetry import logs

# How long events collect after a write, in multiples of its duration and at most, in seconds.
_REST = 15.0
_LONGEST_REST = 0.05
RETRY = 0.5  # seconds until the store is tried again when it failed
_STREAMS = 256  # streams per write


class RunningStream(Protocol):
    """A stream whose events are written to the store."""

    def take(self) -> NewEvents:
        """Return the events that wait to be written."""

    def stored(self, events: NewEvents) -> None:
        """Take notice that events were written."""

    def not_stored(self, events: NewEvents) -> None:
        """Take events back that could not be written: they come first next time."""

    def displaced(self) -> None:
        """Take notice that no more is written: the response was deleted, or another process runs it or has ended it."""


class EventLog:
    """Writes the events of running responses."""

    def __init__(self, table: EventTable, on_defect: Callable[[Exception], None]) -> None:
        """`on_defect` gets exceptions that are no outage of the store; the stream that such a one belongs to is left alone."""
        self._table = table
        self._on_defect = on_defect
        self._waiting: dict[RunningStream, None] = {}  # have events to be written, in the order in which they came
        self._in_flight: dict[RunningStream, asyncio.Future[None]] = {}
        self._writer: asyncio.Task[None] | None = None
        self._alone = 0  # so many writes are of one stream each, to find the one to blame for a defect

    @property
    def idle(self) -> bool:
        """Whether nothing waits, and nothing is being written."""
        return self._writer is None

    def add(self, stream: RunningStream) -> None:
        """Write the events of a stream: at once, or together with others that come soon."""
        self._waiting[stream] = None
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_waiting())

    async def settle(self, stream: RunningStream) -> None:
        """Write no more events of a stream, and wait until none is being written."""
        self._waiting.pop(stream, None)
        if stream in self._in_flight:
            await asyncio.wait({self._in_flight[stream]})
            self._waiting.pop(stream, None)

    async def flush(self, stream: RunningStream) -> None:
        """Write what is left of a settled stream, if the store can be written."""
        await self._write([stream])
        self._waiting.pop(stream, None)

    async def close(self) -> None:
        """Stop. All streams have settled."""
        await end_tasks(self._writer)

    async def _write_waiting(self) -> None:
        clock = time.monotonic
        try:
            while self._waiting:
                streams = list(islice(self._waiting, 1 if self._alone else _STREAMS))
                self._alone = max(0, self._alone - 1)
                for stream in streams:
                    del self._waiting[stream]
                begun = clock()
                written = await self._write(streams)
                rest = min(_REST * (clock() - begun), _LONGEST_REST)
                await asyncio.sleep(rest if written else RETRY)
        finally:
            self._writer = None

    async def _write(self, streams: Sequence[RunningStream]) -> bool:
        """Write the events of some streams. Return False if nothing could be written."""
        pieces = [stream.take() for stream in streams]
        landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_flight.update(dict.fromkeys(streams, landed))
        written: dict[str, bool] = {}
        again = True
        try:
            written = await self._table.append(pieces)
        except StoreUnavailable as error:
            logs.logger().warning("not stored", extra=logs.fields(responses=len(pieces), error=str(error)))
        except Exception as defect:
            self._on_defect(defect)
            again = len(streams) > 1
            self._alone = len(self._waiting) + len(streams) if again else 0
        finally:
            for stream in streams:
                del self._in_flight[stream]
            landed.set_result(None)
        for stream, piece in zip(streams, pieces, strict=True):
            match written.get(piece.record.id):
                case True:
                    stream.stored(piece)
                case False:
                    stream.displaced()
                case None:
                    stream.not_stored(piece)
                    if again:
                        self._waiting[stream] = None
        return bool(written)
