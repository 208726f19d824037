"""A stored stream, sent again from any event on, and followed while it still grows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import web

from proxy.server.generation.background.runner import Run
from proxy.server.generation.prepare import reasoning_event
from proxy.settings import Settings
from proxy.state import EventRow, Store, StoreUnavailable
from proxy.stream import writer
from proxy.stream.stored.replay import replay
from proxy.wire.errors import ApiError

# How often the log of a response that runs in another process is looked at, in seconds.
_POLL_INTERVAL = 0.25
# How long one look lasts where a log notifies of more by itself.
_WAIT = 1.0

_TERMINALS = tuple(b"event: response.%b\n" % status for status in (b"completed", b"incomplete", b"failed"))


async def follow(
    request: web.Request,
    store: Store,
    tenant: str,
    response_id: str,
    after: int = -1,
    *,
    run: Run | None,
    settings: Settings,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Send the events after number `after`, up to the terminal one. Raise `ApiError` 404. `run` is what makes them, if it is in
    this process."""
    clock = asyncio.get_running_loop().time
    keep_alive = settings.keepalive_comment
    response = web.StreamResponse(headers={**(headers or {}), "Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
    response.content_type = "text/event-stream"
    response.charset = "utf-8"
    sent_at = clock()
    active = await store.is_active(tenant, response_id)
    if active is None:
        raise ApiError(404, f"Response with id '{response_id[:100]}' not found.", code="response_not_found")
    while True:
        try:
            rows, active = await _news(store, run, tenant, response_id, after, active)
        except StoreUnavailable:  # the response goes on, and so does its stream when the store is back
            if not response.prepared:
                raise
            rows = []
            active = True
            await asyncio.sleep(_POLL_INTERVAL)
        if run is not None and run.handed_over and run.finished and not rows:
            if request.transport is not None:
                request.transport.abort()  # so that the client asks another gateway for the rest
            return response
        if run is not None and run.finished and active and not rows:
            run = None  # its end could not be stored: another process will see to that
        if not response.prepared:
            await response.prepare(request)
        if rows:
            await response.write(b"".join(_rest(row, after) for row in rows))
            after = max(after, rows[-1].next - 1)
            sent_at = clock()
        elif not active:
            break
        elif keep_alive and clock() - sent_at > keep_alive:
            await response.write(writer.COMMENT.encode())
            sent_at = clock()
    if active is not None:  # a response that was deleted has no end
        await response.write(await _end(store, tenant, response_id, after, settings))
    await response.write_eof()
    return response


async def _end(store: Store, tenant: str, response_id: str, after: int, settings: Settings) -> bytes:
    """Return what comes after the last event: the terminal event is part of it if the events were lost."""
    while True:
        try:
            stored = await store.response(tenant, response_id)
        except StoreUnavailable:
            await asyncio.sleep(_POLL_INTERVAL)
            continue
        if stored is None or stored.has_events:
            return writer.DONE.encode()
        return replay(stored.json, reasoning_event(settings), after)


async def _news(
    store: Store, run: Run | None, tenant: str, response_id: str, after: int, active: bool | None
) -> tuple[list[EventRow], bool | None]:
    """Wait a little for the next events; return them, and whether the response still runs (`active`: it did so far)."""
    elsewhere = _WAIT if store.signals else _POLL_INTERVAL
    rows = await store.events(response_id, after, elsewhere if run is None and active else 0.0)
    if rows and active and _is_terminal(rows[-1]):
        active = await store.is_active(tenant, response_id)
    if rows or not active:
        return rows, active
    if run is not None:
        await run.wait(after + 1, _POLL_INTERVAL)
    active = await store.is_active(tenant, response_id)
    return [] if active else await store.events(response_id, after), active  # once it has ended, they are all there


def _is_terminal(row: EventRow) -> bool:
    """Tell whether the last event of a piece is the last of its stream."""
    return row.data.rstrip(b"\n").rpartition(b"\n\n")[2].startswith(_TERMINALS)


def _rest(row: EventRow, after: int) -> bytes:
    """Return the events of a piece after number `after`."""
    skipped = max(0, after + 1 - row.first)
    return row.data if not skipped else row.data.split(b"\n\n", skipped)[-1]
