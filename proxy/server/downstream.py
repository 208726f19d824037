"""The client's side of a stream: bytes go straight to the transport, one write for all that one read brought."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import HttpVersion11, web


class Downstream:
    """An open event stream to a client.

    aiohttp sends the head and the end; what lies between is written by us, in HTTP chunks of our own, because a coroutine
    per chunk costs more than the translation. `on_slow` is called when the client reads slower than we write, `on_ready`
    when it has caught up.
    """

    def __init__(self, request: web.Request, on_slow: Callable[[], None], on_ready: Callable[[], None]) -> None:
        self._request = request
        self._on_slow = on_slow
        self._on_ready = on_ready
        self._chunked = request.version >= HttpVersion11
        self._waiter: asyncio.Task[None] | None = None
        self.response = web.StreamResponse()
        self.response.content_type = "text/event-stream"
        self.response.charset = "utf-8"
        self.response.headers["Cache-Control"] = "no-cache"
        self.response.headers["X-Accel-Buffering"] = "no"  # nginx would hold events back
        if self._chunked:
            self.response.enable_chunked_encoding()

    @property
    def slow(self) -> bool:
        """The client has more to read than we want to keep for it."""
        return self._waiter is not None

    async def start(self, data: bytes) -> None:
        """Send the head and the first events."""
        await self.response.prepare(self._request)
        await self.response.write(data)

    def write(self, data: bytes) -> None:
        """Send events. Nothing happens when the client is gone (the handler is being cancelled then)."""
        transport = self._request.transport
        if transport is None or transport.is_closing():
            return
        transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        if self._waiter is None and self._request.protocol.writing_paused:
            self._on_slow()
            self._waiter = asyncio.create_task(self._wait())

    async def finish(self) -> None:
        """Send the end of the body."""
        await self.response.write_eof()

    def abort(self) -> None:
        """Drop the connection: the client does not read."""
        if self._request.transport is not None:
            self._request.transport.abort()

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
