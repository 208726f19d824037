"""`/v1/responses/compact`: a history in, one sealed item that stands for it out."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from proxy.server.books import Books
from proxy.server.errors import REQUEST_ID
from proxy.server.footing import NOTHING, find_footing
from proxy.server.gateway import GATEWAY
from proxy.server.generation import Generation
from proxy.server.preparing import backend_headers, new_translator, translated
from proxy.server.tenants import tenant_of
from proxy.wire.errors import ApiError
from proxy.wire.requests import parse_request, read_object


async def compact(request: web.Request) -> web.StreamResponse:
    """`POST`: the backend writes the summary. Takes what creating a response takes; nothing is stored."""
    gateway, tenant = request.app[GATEWAY], tenant_of(request)
    question = parse_request({**read_object(await request.read()), "store": False})
    given = question.input or []
    items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
    question = question.model_copy(update={"input": [*items, {"type": "compaction_trigger"}]})
    books = Books(
        gateway.metrics, request[REQUEST_ID], asyncio.get_running_loop().time(), sampling=0, log=gateway.settings.access_log
    )
    books.request(question.model, streamed=False)
    try:
        footing = await find_footing(gateway.store, tenant, question) if gateway.store is not None else NOTHING
        plan = translated(gateway, tenant, question, footing, gateway.parsers.policy(question.model))
        translator = new_translator(gateway, tenant, question, plan, request.headers)
    except BaseException as error:
        if isinstance(error, ApiError):
            books.refused(error)
        books.close(None, asyncio.get_running_loop().time())
        raise
    headers = backend_headers(gateway.settings, request.headers, request[REQUEST_ID])
    with Generation(gateway, translator, msgspec.json.encode(plan.body), headers, books, _unread) as generation:
        try:
            await generation.open()
        except ApiError as error:
            generation.refused(error)
            raise
        await generation.run()
    if translator.error is not None:
        raise translator.error
    response = msgspec.json.decode(translator.response_json)
    shown = {name: response[name] for name in ("id", "created_at", "output", "usage")}
    return web.json_response(
        {**shown, "object": "response.compaction"}, dumps=lambda value: msgspec.json.encode(value).decode()
    )


async def refuse_method(request: web.Request) -> web.StreamResponse:
    """Any other method."""
    raise web.HTTPMethodNotAllowed(request.method, ["POST"])


def _unread(_events: bytes) -> None:
    """Nobody watches a summary being written."""
