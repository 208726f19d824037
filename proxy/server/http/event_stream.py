"""The client's side of a stream: bytes go straight to the transport, one write for all that one read brought."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import HttpVersion11, web

#: Bytes that may wait in the transport before its protocol counts as paused; asyncio's and uvloop's own limit.
_HIGH_WATER = 64 * 1024
#: nginx would hold events back, but for the last of these.
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


class _EventStream(web.StreamResponse):
    _send_headers_immediately = False  # they leave with the first events, in one write


class Downstream:
    """An open event stream to a client: `prepare`, `write`, `flush` the first events, `write` more, `finish`.

    aiohttp sends the head and the end; what lies between is written by us, in HTTP chunks of our own, because a coroutine
    per chunk costs more than the translation. `on_slow` is called when the client reads slower than we write, `on_ready`
    when it has caught up.
    """

    __slots__ = (
        "_chunked",
        "_held",
        "_on_ready",
        "_on_slow",
        "_request",
        "_transport",
        "_waiter",
        "live",
        "response",
    )

    def __init__(self, request: web.Request, on_slow: Callable[[], None], on_ready: Callable[[], None]) -> None:
        self._request = request
        self._on_slow = on_slow
        self._on_ready = on_ready
        self._chunked = request.version >= HttpVersion11
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Task[None] | None = None
        self.live = False  # keep-alives are wanted
        self._held: list[bytes] | None = []  # what is written before `flush`
        self.response = _EventStream(headers=_HEADERS)
        if self._chunked:
            self.response.enable_chunked_encoding()

    @property
    def slow(self) -> bool:
        """The client has more to read than we want to keep for it."""
        return self._waiter is not None or self._request.protocol.writing_paused

    async def prepare(self) -> None:
        """Make the head; nothing is sent yet."""
        await self.response.prepare(self._request)
        self._transport = self._request.transport
        self.live = True

    async def flush(self) -> None:
        """Send the head and what was written so far; from now on events leave at once."""
        held, self._held = self._held, None
        await self.response.write(b"".join(held or ()))

    def write(self, data: bytes) -> None:
        """Send events. Nothing happens when the client is gone (the handler is being cancelled then)."""
        if self._held is not None:
            self._held.append(data)
            return
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        if transport.get_write_buffer_size() > _HIGH_WATER and self._waiter is None:
            self._wait_for_client()

    def _wait_for_client(self) -> None:
        if self._request.protocol.writing_paused:
            self._on_slow()
            self._waiter = asyncio.create_task(self._wait())

    async def finish(self, last: bytes) -> None:
        """Send the last events and the end of the body, and all that was not flushed, in one write."""
        held, self._held = self._held or [], None
        await self.response.write_eof(b"".join([*held, last]))

    def close(self) -> None:
        """No more writes."""
        if self._waiter is not None:
            self._waiter.cancel()

    async def _wait(self) -> None:
        try:
            await self._request.protocol._drain_helper()
        except ConnectionError:
            return  # the handler is being cancelled
        self._waiter = None
        self._on_ready()
