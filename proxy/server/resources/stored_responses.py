"""`/v1/responses/{id}`: responses that were stored."""

from __future__ import annotations

import asyncio
import sys

import msgspec
from aiohttp import web

from proxy.server.access.tenants import tenant_of
from proxy.server.generation.background import SILENCE, Run, fail_lost
from proxy.server.generation.gateway import GATEWAY, Gateway
from proxy.server.generation.stream_options import reasoning_event
from proxy.server.resources.pagination import page_response, read_include, read_page, with_included
from proxy.server.resources.resume import follow
from proxy.state import Span, Store, Stored
from proxy.stream.stored_stream import replay
from proxy.wire.errors import ApiError, invalid_request

#: How long a cancellation waits for the process that runs the response, until that is taken for dead in any case, and how often
#: it looks, in seconds.
_CANCEL_WAIT = SILENCE + 5.0
_LOOK = 0.1
#: No event has a greater number; no database and no interpreter has to cope with one that is longer.
_LAST_NUMBER = 2**53
_DIGITS = 17


async def read(request: web.Request) -> web.StreamResponse:
    """`GET`: the response as it was, or as it is by now."""
    included = read_include(request)
    if request.query.get("stream", "").lower() == "true":  # `True`, as Python writes it, too
        return await _stream(request)
    stored = await find(request)
    if stored.active and stored.id not in _runs(request):
        await fail_lost(store_of(request))
        stored = await find(request)
    if not included:
        return web.Response(text=stored.json, content_type="application/json")
    response = msgspec.json.decode(stored.json)
    response["output"] = [with_included(request, item, included, response["model"]) for item in response["output"]]
    return web.Response(body=msgspec.json.encode(response), content_type="application/json")


async def delete(request: web.Request) -> web.StreamResponse:
    """`DELETE`."""
    response_id = request.match_info["id"]
    if not await store_of(request).delete_response(tenant_of(request), response_id):
        raise response_not_found(response_id)
    background = request.app[GATEWAY].background
    if background is not None:
        background.cancel(response_id)
    return web.json_response({"id": response_id, "object": "response", "deleted": True})


async def cancel(request: web.Request) -> web.StreamResponse:
    """`POST …/cancel`: end a response that runs in the background, here or elsewhere. Again and again if one likes."""
    stored = await find(request)
    if not stored.background:
        raise invalid_request("Only responses that were created with 'background' can be cancelled.", None, "not_cancellable")
    store, loop = store_of(request), asyncio.get_running_loop()
    if stored.active:
        await store.cancel(tenant_of(request), stored.id)
    deadline = loop.time() + _CANCEL_WAIT
    while stored.active and loop.time() < deadline:
        run = _runs(request).get(stored.id)
        if run is not None:
            run.cancel()
            await run.wait(sys.maxsize, _LOOK)
        else:
            await fail_lost(store)
            await asyncio.sleep(_LOOK)
        stored = await find(request)
    return web.Response(text=stored.json, content_type="application/json")


async def _stream(request: web.Request) -> web.StreamResponse:
    """The events behind number `starting_after`. Raises `ApiError`."""
    after = request.query.get("starting_after", "-1")
    if not after.removeprefix("-").isdecimal() or not after.isascii():
        raise invalid_request("Invalid value for 'starting_after': a number is expected.", "starting_after", "invalid_value")
    stored = await find(request)
    gateway = request.app[GATEWAY]
    number = max(-1, min(int(after[:_DIGITS]), _LAST_NUMBER))
    if stored.has_events or stored.active:
        return await follow(request, gateway, tenant_of(request), stored.id, number)
    events = replay(stored.json, reasoning_event(gateway.settings), number)
    return web.Response(body=events, content_type="text/event-stream", charset="utf-8", headers={"Cache-Control": "no-cache"})


def _runs(request: web.Request) -> dict[str, Run]:
    background = request.app[GATEWAY].background
    return background.runs if background is not None else {}


async def input_items(request: web.Request) -> web.StreamResponse:
    """`GET …/input_items`: the input of this very request, page by page, the latest first unless asked otherwise."""
    stored = await find(request)
    return page_response(await read_page(request, store_of(request), Span(stored.input_begin, stored.input_end)))


async def refuse_method(request: web.Request) -> web.StreamResponse:
    """Any other method."""
    allowed = {"input_items": ["GET"], "cancel": ["POST"]}.get(request.path.rpartition("/")[2], ["GET", "DELETE"])
    raise web.HTTPMethodNotAllowed(request.method, allowed)


async def find(request: web.Request) -> Stored:
    """The response that the path names. Raises `ApiError` 404."""
    response_id = request.match_info["id"]
    stored = await store_of(request).response(tenant_of(request), response_id)
    if stored is None:
        raise response_not_found(response_id)
    return stored


def store_of(request: web.Request) -> Store:
    """The store; these resources are served only where there is one."""
    gateway: Gateway = request.app[GATEWAY]
    assert gateway.store is not None
    return gateway.store


def response_not_found(response_id: str) -> ApiError:
    """404, also for what belongs to somebody else."""
    return ApiError(404, f"Response with id '{response_id[:100]}' not found.", code="response_not_found")
