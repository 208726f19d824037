"""Events to a client: as a stream, one write for all events that one read from the backend brought, or over a WebSocket."""

from __future__ import annotations

import asyncio
import fcntl
import sys
import termios
from collections.abc import Callable

from aiohttp import HttpVersion11, web

from responses_gateway.server.http import aiohttp_internals
from responses_gateway.server.http.exchange import EXCHANGE
from responses_gateway.wire.sse import on_one_line

# Bytes that may wait in the transport before it counts as full; asyncio's and uvloop's own limit.
_HIGH_WATER = 64 * 1024
# Unsent bytes of a WebSocket from which the model is slowed down.
_SOCKET_HIGH_WATER = 1024 * 1024
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # otherwise nginx would hold events back
}


class EventStream:
    """An open event stream: `prepare`, `write`, `flush` the first events, `write` more, `finish`.

    aiohttp sends the head and the end. Between them, `write` sends HTTP chunks of its own, because a coroutine per chunk costs
    more than the translation. `on_slow` is called when the client reads more slowly than events are written, `on_ready` when
    it has caught up."""

    __slots__ = ("_chunked", "_held", "_on_ready", "_on_slow", "_request", "_sent", "_transport", "_waiter", "live", "response")

    def __init__(self, request: web.Request, on_slow: Callable[[], None], on_ready: Callable[[], None]) -> None:
        self._request = request
        self._on_slow = on_slow
        self._on_ready = on_ready
        self._chunked = request.version >= HttpVersion11
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Task[None] | None = None
        self.live = False  # keep-alives are wanted
        self._held: list[bytes] | None = []  # what is written before `flush`
        self._sent = 0  # bytes of events
        self.response = aiohttp_internals.HeldHeadResponse(headers=_HEADERS)
        if self._chunked:
            self.response.enable_chunked_encoding()

    @property
    def slow(self) -> bool:
        """Whether so many bytes are unsent that no more should be written."""
        transport = self._transport
        return self._waiter is not None or (transport is not None and transport.get_write_buffer_size() > _HIGH_WATER)

    @property
    def unsent(self) -> int:
        """Bytes that are not sent yet."""
        return unsent_bytes(self._transport)

    async def prepare(self) -> None:
        """Make the head; nothing is sent yet."""
        await self.response.prepare(self._request)
        self._transport = self._request.transport
        self.live = True

    async def flush(self) -> None:
        """Send the head and what was written so far; from now on `write` sends at once."""
        held = self._held or []
        self._held = None
        await self.response.write(b"".join(held))

    def write(self, data: bytes) -> None:
        """Send events. Do nothing when the client has disconnected: the handler is being cancelled then."""
        if 0xE2 in data or 0xC2 in data:  # the first byte of each line separator; a number is found in no time
            data = on_one_line(data)
        self._sent += len(data)
        if self._held is not None:
            self._held.append(data)
            return
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        if transport.get_write_buffer_size() > _HIGH_WATER and self._waiter is None:
            self._on_slow()
            self._waiter = asyncio.create_task(self._wait_for_client())

    async def finish(self, last: bytes) -> None:
        """Send what was not flushed, the last events and the end of the body, in one write."""
        if 0xE2 in last or 0xC2 in last:
            last = on_one_line(last)
        self._sent += len(last)
        held = self._held or []
        self._held = None
        await self.response.write_eof(b"".join([*held, last]))

    def close(self) -> None:
        """End the stream's task; nothing is written after this."""
        if self.live:  # otherwise an error is the answer, and has a size
            self._request[EXCHANGE].bytes_out = self._sent
        if self._waiter is not None:
            self._waiter.cancel()

    async def _wait_for_client(self) -> None:
        try:
            await aiohttp_internals.drain(self._request)
        except ConnectionError:
            return  # the handler is being cancelled
        self._waiter = None
        self._on_ready()


class WebSocketSender:
    """Accepts events with `write` and sends them in `run`.

    `on_slow` is called when too much waits, `on_ready` when nothing waits any more."""

    live = False  # a WebSocket has pings of its own

    def __init__(
        self,
        socket: web.WebSocketResponse,
        transport: asyncio.Transport | None,
        on_slow: Callable[[], None],
        on_ready: Callable[[], None],
    ) -> None:
        self._socket = socket
        self._transport = transport
        self._on_slow = on_slow
        self._on_ready = on_ready
        self._waiting: list[bytes] = []
        self._size = 0
        self._leaving = 0  # bytes that are being sent
        self.slow = False  # so many bytes are unsent that no more should be written
        self._filled = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def write(self, events: bytes) -> None:
        """Accept complete server-sent events."""
        self._waiting.append(events)
        self._size += len(events)
        self._empty.clear()
        self._filled.set()
        if self._size > _SOCKET_HIGH_WATER and not self.slow:
            self.slow = True
            self._on_slow()

    @property
    def unsent(self) -> int:
        """Bytes that are not sent yet; those of the event that is being sent count twice."""
        return self._size + self._leaving + unsent_bytes(self._transport)

    async def flush(self) -> None:
        """Wait until everything is sent."""
        await self._empty.wait()

    async def run(self) -> None:
        """Send until cancelled, or until the connection is closed."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            events = on_one_line(b"".join(self._waiting))  # as they are stored, and in event streams
            self._waiting = []
            self._leaving = len(events)
            self._size = 0
            for event in events.split(b"\n\n"):
                _, mark, data = event.partition(b"\ndata: ")
                if mark:  # not `[DONE]`, which ends event streams
                    await self._socket.send_str(data.decode())
                self._leaving -= len(event)
            self._leaving = 0
            if self._waiting:
                continue
            self._empty.set()
            if self.slow:
                self.slow = False
                self._on_ready()

    def close(self) -> None:
        """Call nobody any more: whom this calls refers to this, and both would stay in memory."""
        self._on_slow = _call_nobody
        self._on_ready = _call_nobody


def _call_nobody() -> None: ...


def unsent_bytes(transport: asyncio.Transport | None) -> int:
    """Return how many bytes are not sent yet: in this process, and in the kernel until the client has acknowledged them.

    The kernel takes megabytes at once, and reports the socket as writable again when a third of that has left, which can take
    minutes over a slow line. So its queue is measured, where the system allows that."""
    if transport is None or transport.is_closing():
        return 0
    return transport.get_write_buffer_size() + _in_kernel(transport)


def _in_kernel(transport: asyncio.Transport) -> int:
    connection = transport.get_extra_info("socket")
    if connection is None:
        return 0
    try:
        count = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):
        return 0
    return int.from_bytes(count, sys.byteorder)
