"""`/v1/responses/compact`: a history becomes one encrypted item that stands for it."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from proxy.server.access.api_keys import tenant_of
from proxy.server.access.needs import Needs, needs
from proxy.server.access.rate_limits import RESERVATION
from proxy.server.generation.compaction import with_trigger
from proxy.server.generation.create import Caller, Responses
from proxy.server.http.errors import REQUEST_ID
from proxy.wire.requests import ResponsesRequest, parse_request, read_object

_OPERATION = "POST /v1/responses/compact"


class Compact:
    """Serves the path."""

    def __init__(self, responses: Responses) -> None:
        self._responses = responses

    @needs(Needs.KEY | Needs.RESERVATION)
    async def compact(self, request: web.Request) -> web.StreamResponse:
        """Answer `POST`: the backend writes the summary. It takes what creating a response takes; nothing is stored."""
        # In a thread, so that no other stream waits for a long history.
        asked = await asyncio.to_thread(_parse, await request.read())
        caller = Caller(tenant_of(request), request[REQUEST_ID], request.headers, _OPERATION, request.get(RESERVATION))
        translator = await self._responses.summarise(with_trigger(asked), caller)
        response = msgspec.json.decode(translator.response())
        shown = {name: response[name] for name in ("id", "created_at", "output", "usage")}
        body = msgspec.json.encode({**shown, "object": "response.compaction"})
        return web.Response(body=body, content_type="application/json")


def _parse(body: bytes) -> ResponsesRequest:
    return parse_request({**read_object(body), "store": False})
