"""A time limit for request bodies: sending one slowly, or never to its end, is a cheap way to hold many connections open.

Looking at all connections about once a second costs nothing per request, unlike a timer around each read. (For heads there is
aiohttp's own limit: it closes a connection without a request after the keep-alive time.)"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import StreamReader

from proxy.server.http.connections import Runner
from proxy.wire.errors import ApiError

# Seconds between two looks, of which there are at least so many within the limit.
_INTERVAL = 1.0
_LOOKS = 4


class BodyTooSlow(ApiError, TimeoutError):
    """408 for the handler that reads the body. For aiohttp it is a time-out, after which it closes the connection."""

    def __init__(self, limit: float) -> None:
        message = f"The request body did not arrive within {limit:g} seconds."
        super().__init__(408, message, code="request_timeout")


@asynccontextmanager
async def body_limit(runner: Runner, limit: float) -> AsyncIterator[None]:
    """Let no body take longer than `limit` seconds, from its head to its end, while this is open; 0 is no limit."""
    if not limit:
        yield
        return
    watching = asyncio.create_task(_watch(runner, limit))
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _watch(runner: Runner, limit: float) -> None:
    loop = asyncio.get_running_loop()
    first_seen: dict[StreamReader, float] = {}
    while True:
        await asyncio.sleep(min(_INTERVAL, limit / _LOOKS))
        now = loop.time()
        first_seen = {body: first_seen.get(body, now) for body in _unfinished_bodies(runner)}
        for body, first in first_seen.items():
            if now - first >= limit:
                body.set_exception(BodyTooSlow(limit))


def _unfinished_bodies(runner: Runner) -> list[StreamReader]:
    """Return the bodies that are not complete though the gateway is reading them."""
    found = []
    for request in runner.requests:
        transport = request.transport
        if transport is not None and transport.is_reading() and not request.content.is_eof():
            found.append(request.content)
    return found
