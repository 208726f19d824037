"""Clients that send the body of a request slowly, or never to its end: a cheap way to hold many connections open.

One look at all connections every second or so costs nothing per request, unlike a timer around each read. (A head that
does not end is aiohttp's own matter: it closes a connection without a request after the keep-alive time.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import StreamReader, web

from proxy.wire.errors import ApiError

#: How often to look, in seconds, and at least so many times within the limit.
_INTERVAL = 1.0
_LOOKS = 4


class BodyTooSlow(ApiError, TimeoutError):
    """408, for whoever reads the body; for aiohttp a time-out like any other, after which it closes the connection."""

    def __init__(self, limit: float) -> None:
        message = f"The request body did not arrive within {limit:g} seconds."
        super().__init__(408, message, code="request_timeout")


@asynccontextmanager
async def body_limit(server: web.Server, limit: float) -> AsyncIterator[None]:
    """While this is open, no body may take longer than `limit` seconds, from its head to its end; 0 is no limit."""
    if not limit:
        yield
        return
    watching = asyncio.create_task(_watch(server, limit))
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _watch(server: web.Server, limit: float) -> None:
    loop = asyncio.get_running_loop()
    begun: dict[StreamReader, float] = {}  # the bodies under way, and when each was first seen
    while True:
        await asyncio.sleep(min(_INTERVAL, limit / _LOOKS))
        now = loop.time()
        begun = {body: begun.get(body, now) for body in _unfinished(server)}
        for body, first in begun.items():
            if now - first >= limit:
                body.set_exception(BodyTooSlow(limit))


def _unfinished(server: web.Server) -> list[StreamReader]:
    """The bodies that are not there yet, though we would take more of them."""
    found = []
    for connection in server.connections:
        request = connection._current_request
        if request is not None and not request.content.is_eof() and not connection._reading_paused:
            found.append(request.content)
    return found
