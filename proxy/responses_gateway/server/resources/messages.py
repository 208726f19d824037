"""`/v1/messages`: an answer in the words of the Messages API, streamed or whole; `/v1/messages/count_tokens`.

The body is read as a Responses request, of which nothing is stored; everything behind it is the same for both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from responses_gateway.backend.prompt_tokens import PromptTokens, estimated_tokens
from responses_gateway.request import Loss, Policy
from responses_gateway.request.messages import MessagesReading, in_messages_words, read_messages
from responses_gateway.server.access.api_keys import ALLOWS, Allows, Needs, check_model, needs, tenant_of
from responses_gateway.server.access.clients import RESERVATION
from responses_gateway.server.generation.generation import shutting_down
from responses_gateway.server.generation.in_flight import State
from responses_gateway.server.generation.preparation.context import Caller, Context
from responses_gateway.server.generation.preparation.dialect import Dialect, Fitted
from responses_gateway.server.generation.preparation.live_settings import InForce
from responses_gateway.server.generation.responses import Creation, Responses
from responses_gateway.server.generation.upstream.chat_call import backend_headers
from responses_gateway.server.http.bodies import in_thread, read_json_body
from responses_gateway.server.http.errors import HAS_LOG, REQUEST_ID, error_response
from responses_gateway.server.resources.messages_models import served_model
from responses_gateway.server.resources.responses import abort, loss_header, observe_release, stream_answer, whole_answer
from responses_gateway.stream.writer.message import MessageOptions, MessagesProtocol
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.messages import MessagesRequest, parse_messages

# Larger bodies are parsed in a thread, so that no other stream waits for them, in bytes.
_LARGE_BODY = 256 * 1024
_OPERATION = "POST /v1/messages"
_CLAMPED = Loss("parameter", "max_tokens", "adapted", "reduced to what the context has room for")
_ESTIMATED = Loss("parameter", "input_tokens", "adapted", "estimated: neither the backend nor a tokenizer can count")
_RENAMED = Loss("parameter", "model", "adapted", "nobody serves a model of this name: the default model")


class Messages:
    """Serves the paths. `hosted` are the kinds of tools that the gateway runs itself."""

    def __init__(self, responses: Responses, hosted: Collection[str]) -> None:
        self._responses = responses
        self._pool = responses.pool
        self._hosted = hosted
        self._tokens = PromptTokens(responses.pool, responses.preparation.tokenizer)

    @needs(Needs.KEY | Needs.RESERVATION)
    async def create(self, request: web.Request) -> web.StreamResponse:
        """Answer `POST` with a message, streamed or whole."""
        responses = self._responses
        if responses.in_flight.state >= State.DRAINING:
            raise shutting_down()
        headers = _with_authorization(request.headers, responses.live.current)
        reservation = request.get(RESERVATION)
        allows = request.get(ALLOWS)
        tenant = tenant_of(request)
        caller = Caller(tenant, request[REQUEST_ID], headers, _OPERATION, reservation, door="messages", allows=allows)
        request[HAS_LOG] = True
        creation = responses.open(caller, lambda: abort(request))
        try:
            with creation:
                return await self._answer(request, creation, caller)
        except asyncio.CancelledError:  # by now the backend is free
            observe_release(request, responses)
            raise

    async def _answer(self, request: web.Request, creation: Creation, caller: Caller) -> web.StreamResponse:
        body = await read_json_body(request)
        recording = creation.recording
        if recording is not None:
            recording.received(body)
        large = len(body) >= _LARGE_BODY
        asked = await in_thread(request, parse_messages, body) if large else parse_messages(body)
        if recording is not None:
            recording.parsed()
        in_force = creation.in_force
        model = await self._served(asked.model, in_force, caller.allows)
        policy = in_force.parsers.policy(model)
        reading = await in_thread(request, self._read, asked, model, policy) if large else self._read(asked, model, policy)
        try:
            await creation.prepare(
                reading.request, context=Context(reading.request), dialect=self._dialect(reading, asked, in_force, caller)
            )
            if asked.stream:
                return await stream_answer(request, creation, loss_header(creation.prepared.losses))
            return await self._whole(request, creation, reading)
        except ApiError as error:
            raise reading.places.error(error) from None

    async def _whole(self, request: web.Request, creation: Creation, reading: MessagesReading) -> web.StreamResponse:
        """Answer with the whole message, or with an error, never with half a message. Once tools have run, clients are told not
        to repeat the request."""
        answer = await whole_answer(creation)
        failure = creation.translator.error
        if failure is None:
            return answer
        refusal = error_response(reading.places.error(failure), request)
        refusal.headers["x-should-retry"] = "false"
        return refusal

    @needs(Needs.KEY | Needs.RESERVATION)
    async def count(self, request: web.Request) -> web.Response:
        """Answer `POST …/count_tokens`: the backend counts, or else a tokenizer; without either it is an estimate."""
        responses = self._responses
        in_force = responses.live.current
        body = await read_json_body(request)
        asked = await in_thread(request, lambda: parse_messages(body, counts=True))
        allows = request.get(ALLOWS)
        model = await self._served(asked.model, in_force, allows)
        check_model(allows, model)
        reading = await in_thread(request, self._read, asked, model, in_force.parsers.policy(model))
        headers = _with_authorization(request.headers, in_force)
        caller = Caller(tenant_of(request), request[REQUEST_ID], headers)
        try:
            dialect = self._dialect(reading, asked, in_force, caller)
            chat = (await responses.preparation.translate(reading.request, caller, in_force, dialect)).body
            sent = backend_headers(in_force.settings, headers, caller.request_id)
            tokens = await self._tokens.count(chat, sent, in_force.settings.idle_timeout)
        except ApiError as error:
            raise reading.places.error(error) from None
        losses = [_ESTIMATED] if tokens is None else []
        return web.json_response(
            {"input_tokens": estimated_tokens(chat) if tokens is None else tokens}, headers=loss_header(losses)
        )

    async def _served(self, asked: str, in_force: InForce, allows: Allows | None) -> str:
        """Return the model that is asked: another one for a name of Anthropic's that nobody serves."""
        await self._pool.watch.identified()
        return served_model(self._pool.members, asked, in_force.settings.messages_model, allows)

    def _read(self, asked: MessagesRequest, model: str, policy: Policy) -> MessagesReading:
        served_as = self._pool.own_name(model)
        served = asked if model == asked.model else asked.model_copy(update={"model": model})
        reading = read_messages(served, policy, self._hosted, served_as)
        if reading.prefilled and not self._pool.models.all_vllm(model):
            message = (
                "messages: the last one is of the assistant, which this backend cannot continue. End with one of the user."
            )
            raise invalid_request(message, "messages", "unsupported_value")
        return reading

    def _dialect(self, reading: MessagesReading, asked: MessagesRequest, in_force: InForce, caller: Caller) -> Dialect:
        model = reading.request.model
        window = self._pool.models.context_of(model)
        options = MessageOptions(
            thinking=reading.thinking,
            stop_sequences=frozenset(asked.stop_sequences or ()),
            max_tokens=asked.max_tokens,
            context_window=window,
            request_id=caller.request_id,
        )

        async def fit(body: dict[str, Any]) -> Fitted:
            return Fitted(body) if window is None else await self._fit(body, window, in_force, caller)

        return Dialect(
            protocol=MessagesProtocol(options),
            model=asked.model,
            losses=reading.losses if model == asked.model else [_RENAMED, *reading.losses],
            words=in_messages_words,
            fit=fit,
            policy=reading.policy,
            affinity=f"user:{reading.user}" if reading.user else "",
        )

    async def _fit(self, body: dict[str, Any], window: int, in_force: InForce, caller: Caller) -> Fitted:
        """Ask for no more tokens than the context has room for: clients ask for as many as their own models may write. Counting
        is left out where the room is certain."""
        settings = in_force.settings
        name = settings.max_tokens_field
        asked = body.get(name)
        if not isinstance(asked, int):
            return Fitted(body)
        estimate = estimated_tokens(body)
        if asked + 2 * estimate <= window:
            return Fitted(body)
        sent = backend_headers(settings, caller.headers, caller.request_id)
        try:
            tokens = await self._tokens.count(body, sent, settings.connect_timeout)
        except ApiError:  # the answer to the request itself will tell
            tokens = None
        room = window - (estimate if tokens is None else tokens)
        if room < 1 or asked <= room:
            return Fitted(body)
        return Fitted({**body, name: room}, [_CLAMPED])


@needs(Needs.NOTHING)
async def hello(request: web.Request) -> web.Response:
    """Answer `HEAD`: there is a server."""
    return web.Response()


def _with_authorization(headers: CIMultiDictProxy[str], in_force: InForce) -> Mapping[str, str]:
    """Return the headers of a client with its key where backends look for it."""
    key = headers.get("X-Api-Key")
    if key is None or "Authorization" in headers or not in_force.settings.forwards_client_key:
        return headers
    changed = CIMultiDict(headers)
    changed["Authorization"] = f"Bearer {key}"
    return changed
