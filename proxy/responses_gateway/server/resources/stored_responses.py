"""`/v1/responses/{id}`: responses that were stored."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from responses_gateway.request.parameters.parameters import ENCRYPTED_REASONING
from responses_gateway.server.access.api_keys import tenant_of
from responses_gateway.server.generation.background.response import end_lost
from responses_gateway.server.generation.background.runner import SILENCE, Background
from responses_gateway.server.generation.preparation.encrypted_content import Encryption
from responses_gateway.server.generation.preparation.live_settings import LiveSettings
from responses_gateway.server.generation.preparation.prepare import reasoning_event
from responses_gateway.server.resources.pagination import page_response, read_include, read_page
from responses_gateway.server.resources.resume import Follower
from responses_gateway.state import HistorySpan, Store, Stored
from responses_gateway.stream.stored import replay
from responses_gateway.telemetry.tracing import Tracing
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.json_text import json_text
from responses_gateway.wire.sse import on_one_line

# How long a cancellation waits for the process that runs the response, which counts as dead after that, and how often it looks,
# in seconds.
_CANCEL_WAIT = SILENCE + 5.0
_POLL_INTERVAL = 0.1
# No event has a greater number, and neither the database nor the interpreter has to deal with a longer one.
_LAST_NUMBER = 2**53
_DIGITS = 17


@dataclass(eq=False)
class StoredResponses:
    """Serves the paths of responses in the store."""

    _store: Store
    _background: Background
    _encryption: Encryption
    _live: LiveSettings
    _tracing: Tracing | None

    async def read(self, request: web.Request) -> web.StreamResponse:
        """Answer `GET` with the response as it was, or as it is by now; with `stream` with its events."""
        if self._tracing is None:
            return await self._read(request)
        with self._tracing.fetch(request.headers, request.match_info["id"]):
            return await self._read(request)

    async def _read(self, request: web.Request) -> web.StreamResponse:
        included = read_include(request)
        if request.query.get("stream", "").lower() == "true":  # `True`, as Python writes it, too
            return await self._stream(request, included)
        stored = await self._find(request)
        if stored.active and stored.id not in self._background.running:
            await self._background.fail_lost()
            stored = await self._find(request)
        body = on_one_line(self._json(request, stored, included).encode())  # the same bytes as in a stream
        return web.Response(body=body, content_type="application/json", charset="utf-8")

    async def delete(self, request: web.Request) -> web.StreamResponse:
        """Answer `DELETE`."""
        response_id = request.match_info["id"]
        if not await self._store.responses.delete(tenant_of(request), response_id):
            raise _not_found(response_id)
        self._background.cancel(response_id)
        return web.json_response({"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        """Answer `POST …/cancel`: end a response that runs in the background, here or elsewhere. It may be repeated."""
        stored = await self._find(request)
        if not stored.background:
            raise invalid_request("Only responses created with 'background' can be cancelled.", None, "not_cancellable")
        loop = asyncio.get_running_loop()
        if stored.active and not await self._store.waiting.cancel(tenant_of(request), stored.id, end_lost):
            await self._store.running.cancel(tenant_of(request), stored.id)
        deadline = loop.time() + _CANCEL_WAIT
        while stored.active and loop.time() < deadline:
            response = self._background.running.get(stored.id)
            if response is not None:
                response.cancel()
                await response.wait_for_end(_POLL_INTERVAL)
            else:
                await self._background.fail_lost()
                await asyncio.sleep(_POLL_INTERVAL)
            stored = await self._find(request)
        return web.Response(text=stored.json, content_type="application/json")

    async def input_items(self, request: web.Request) -> web.StreamResponse:
        """Answer `GET …/input_items` with the input of this very request, page by page, the latest first by default."""
        stored = await self._find(request)
        return page_response(await read_page(request, self._store.histories, HistorySpan(stored.input_begin, stored.input_end)))

    async def _stream(self, request: web.Request, included: frozenset[str]) -> web.StreamResponse:
        """Answer with the events after number `starting_after`."""
        after = request.query.get("starting_after", "-1")
        if not after.removeprefix("-").isdecimal() or not after.isascii():
            raise invalid_request("Invalid value for 'starting_after': expected a number.", "starting_after", "invalid_value")
        stored = await self._find(request)
        settings = self._live.current.settings
        number = max(-1, min(int(after[:_DIGITS]), _LAST_NUMBER))
        if stored.has_events or stored.active:
            follower = Follower(
                request,
                self._store,
                tenant_of(request),
                stored.id,
                number,
                response=self._background.running.get(stored.id),
                active=stored.active,
                settings=settings,
            )
            return await follower.run()
        body = replay(self._json(request, stored, included), reasoning_event(settings), number)
        return web.Response(body=body, content_type="text/event-stream", charset="utf-8", headers={"Cache-Control": "no-cache"})

    async def _find(self, request: web.Request) -> Stored:
        response_id = request.match_info["id"]
        stored = await self._store.responses.get(tenant_of(request), response_id)
        if stored is None:
            raise _not_found(response_id)
        return stored

    def _json(self, request: web.Request, stored: Stored, included: frozenset[str]) -> str:
        """Return a response with what is to be included."""
        if ENCRYPTED_REASONING not in included:
            return stored.json
        response = msgspec.json.decode(stored.json)
        response["output"] = [self._with_encrypted(item, tenant_of(request), response["model"]) for item in response["output"]]
        return json_text(response)

    def _with_encrypted(self, item: dict[str, Any], tenant: str, model: str) -> dict[str, Any]:
        """Return a stored item with its reasoning encrypted, as that of `model`, unless it was when it was made."""
        if item.get("type") != "reasoning" or item.get("encrypted_content"):
            return item
        parts = [part for part in item.get("content") or () if isinstance(part, dict)]
        text = "".join(part["text"] for part in parts if isinstance(part.get("text"), str))
        if not text:
            return item
        return {**item, "encrypted_content": self._encryption.encrypt("reasoning", tenant, model, text)}


def _not_found(response_id: str) -> ApiError:
    """Return 404, also for what belongs to another tenant."""
    return ApiError(404, f"Response with id '{response_id[:100]}' not found.", code="response_not_found")
