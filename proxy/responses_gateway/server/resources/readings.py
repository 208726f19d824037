"""Requests as they are read: who asks, and the bodies of other protocols as Responses requests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from aiohttp import web
from multidict import CIMultiDict

from responses_gateway.request.messages import ReadTurns
from responses_gateway.request.rollouts.names import ROLLOUT_HEADER, divided
from responses_gateway.server.access.api_keys import tenant
from responses_gateway.server.access.clients import RESERVATION
from responses_gateway.server.generation.preparation.context import Caller
from responses_gateway.server.generation.preparation.live_settings import InForce
from responses_gateway.server.generation.responses import Responses
from responses_gateway.server.http.exchange import EXCHANGE, Exchange, in_thread
from responses_gateway.server.protocols.interface import BodyReader, ClientProtocol, Reading, ReadingScope
from responses_gateway.wire.errors import invalid_request

# Larger bodies are read in a thread, so that no other stream waits for them, in bytes.
LARGE_BODY = 256 * 1024
_CANNOT_CONTINUE = "the last one is of the assistant, which this backend cannot continue. End with one of the user."


def caller_of(request: web.Request, protocol: ClientProtocol, in_force: InForce, operation: str | None = None) -> Caller:
    """Return who asks, in a protocol. `operation` names the trace of the request; without one there is none."""
    exchange = request[EXCHANGE]
    headers: Mapping[str, str] = request.headers
    if protocol.reader is not None and protocol.reader.key_header in headers:
        headers = _with_key(headers, protocol.reader, in_force)
    return Caller(
        tenant(exchange.client, headers),
        exchange.request_id,
        named(headers, exchange),
        operation,
        request.get(RESERVATION),
        protocol=protocol,
        allows=exchange.allows,
        exchange=exchange,
    )


def _with_key(headers: Mapping[str, str], reader: BodyReader, in_force: InForce) -> Mapping[str, str]:
    """Return the headers of a client with its key where backends look for it."""
    if "Authorization" in headers or not in_force.settings.forwards_client_key:
        return headers
    changed = CIMultiDict(headers)
    changed["Authorization"] = f"Bearer {headers[reader.key_header]}"
    return changed


def named(headers: Mapping[str, str], exchange: Exchange) -> Mapping[str, str]:
    """Return the headers of a client with the rollout that its key or the path names, and the key. Raise `ApiError` 400."""
    key = headers.get("Authorization", "")
    rollout = exchange.rollout
    bare = key
    if exchange.client is None and ":" in key and key[:7].lower() == "bearer ":
        bare, of_key = divided(key)
        rollout = of_key or rollout
    if rollout is None:
        return headers
    changed = CIMultiDict(headers)
    changed[ROLLOUT_HEADER] = rollout
    if key:
        changed["Authorization"] = bare
    return changed


class Readings:
    """Reads the bodies of a protocol. `hosted` are the kinds of tools that the gateway runs itself."""

    def __init__(self, responses: Responses, reader: BodyReader, hosted: Collection[str]) -> None:
        self._pool = responses.pool
        self._reader = reader
        self._hosted = hosted

    async def read(
        self, request: web.Request, body: Any, caller: Caller, in_force: InForce, *, large: bool, known: ReadTurns | None = None
    ) -> Reading:
        """Return a parsed body as a Responses request; its first turns may be known. Raise `ApiError` 400."""
        models = self._pool.models
        model = body.model
        window = models.context_of(model)
        if window is None:  # because it may be a name that nobody serves, or not be known yet
            await self._pool.watch.identified()
            model = self._reader.served_model(self._pool.members, model, in_force.settings.messages_model, caller.allows)
            window = models.context_of(model)
        policy = in_force.parsers.policy(model)
        scope = ReadingScope(model, policy, self._hosted, self._pool.own_name(model), window, caller.request_id)
        reading = None if known is None else self._reader.read_known(body, scope, known)
        if reading is None:
            reading = await in_thread(request, self._reader.read, body, scope) if large else self._reader.read(body, scope)
        if reading.policy.continues_last_message and not models.all_vllm(model):
            raise reading.error(invalid_request(_CANNOT_CONTINUE, "input", "unsupported_value"))
        return reading
