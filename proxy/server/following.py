"""A stored stream, sent again from any event on, and followed while it still grows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import web

from proxy.server.background import fail_lost
from proxy.server.gateway import Gateway
from proxy.state import EventRow
from proxy.stream import writer
from proxy.wire.errors import ApiError

#: How often the log of a response that runs in another process is looked at, in seconds.
_LOOK = 0.25


async def follow(
    request: web.Request, gateway: Gateway, tenant: str, response_id: str, after: int, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """Send the events behind number `after`, up to the terminal one. Raises `ApiError` 404."""
    store, background = gateway.store, gateway.background
    assert store is not None
    assert background is not None
    loop_time, keepalive = asyncio.get_running_loop().time, gateway.settings.keepalive_comment
    response = web.StreamResponse(headers={**(headers or {}), "Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
    response.content_type, response.charset = "text/event-stream", "utf-8"
    sent_at = loop_time()
    while True:
        active = await store.is_active(tenant, response_id)  # before the events: when it has ended, they are all there
        if active is None and not response.prepared:
            raise ApiError(404, f"Response with id '{response_id[:100]}' not found.", code="response_not_found")
        rows = await store.events(response_id, after) if active is not None else []
        if not response.prepared:
            await response.prepare(request)
        if rows:
            await response.write(b"".join(_rest(row, after) for row in rows))
            after, sent_at = max(after, rows[-1].next - 1), loop_time()
        elif keepalive and loop_time() - sent_at > keepalive:
            await response.write(writer.COMMENT.encode())
            sent_at = loop_time()
        if not active:
            break
        run = background.runs.get(response_id)
        if run is None:
            await fail_lost(store)
            await asyncio.sleep(_LOOK)
        elif not rows:
            await run.wait(after + 1, _LOOK)
    await response.write_eof(writer.DONE.encode())
    return response


def _rest(row: EventRow, after: int) -> bytes:
    """The events of a piece behind number `after`."""
    skipped = max(0, after + 1 - row.first)
    return row.data if not skipped else row.data.split(b"\n\n", skipped)[-1]
