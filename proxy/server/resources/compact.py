"""`/v1/responses/compact`: a history in, one sealed item that stands for it out."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from proxy.server.access.rate_limits import CLAIM
from proxy.server.access.tenants import tenant_of
from proxy.server.generation.context import NOTHING, find_footing
from proxy.server.generation.gateway import GATEWAY
from proxy.server.generation.summarising import summarise
from proxy.server.http.errors import REQUEST_ID
from proxy.wire.requests import ResponsesRequest, parse_request, read_object


async def compact(request: web.Request) -> web.StreamResponse:
    """`POST`: the backend writes the summary. Takes what creating a response takes; nothing is stored."""
    gateway, tenant = request.app[GATEWAY], tenant_of(request)
    # In a thread, as a history may be long: no other stream waits for it.
    question = await asyncio.to_thread(_question, await request.read())
    given = question.input or []
    items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
    question = question.model_copy(update={"input": [*items, {"type": "compaction_trigger"}]})
    footing = await find_footing(gateway.store, tenant, question) if gateway.store is not None else NOTHING
    claim, trace = request.get(CLAIM), gateway.trace("POST /v1/responses/compact", request.headers)
    translator = await summarise(gateway, tenant, question, footing, request.headers, request[REQUEST_ID], claim, trace)
    response = msgspec.json.decode(translator.response_json)
    shown = {name: response[name] for name in ("id", "created_at", "output", "usage")}
    return web.json_response(
        {**shown, "object": "response.compaction"}, dumps=lambda value: msgspec.json.encode(value).decode()
    )


async def refuse_method(request: web.Request) -> web.StreamResponse:
    """Any other method."""
    raise web.HTTPMethodNotAllowed(request.method, ["POST"])


def _question(body: bytes) -> ResponsesRequest:
    return parse_request({**read_object(body), "store": False})
