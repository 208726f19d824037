"""How many tokens a request would take, without asking for an answer: `/v1/responses/input_tokens`,
`/v1/messages/count_tokens`. The request is translated like a real one; the backend counts, or else our own tokenizer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from aiohttp import web

from responses_gateway.backend.prompt_tokens import PromptTokens, estimated_tokens
from responses_gateway.request import Loss
from responses_gateway.server.access.api_keys import Needs, check_model, needs
from responses_gateway.server.generation.preparation.context import Caller
from responses_gateway.server.generation.preparation.live_settings import InForce
from responses_gateway.server.generation.responses import Responses
from responses_gateway.server.generation.upstream.chat_call import backend_headers
from responses_gateway.server.http.exchange import in_thread, read_json_body
from responses_gateway.server.protocols.interface import Reading
from responses_gateway.server.protocols.messages import MESSAGES, READER
from responses_gateway.server.protocols.responses import RESPONSES
from responses_gateway.server.resources.answers import Readings, caller_of, loss_header
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.messages import parse_messages
from responses_gateway.wire.requests import ResponsesRequest, parse_request

_ESTIMATED = Loss("parameter", "input_tokens", "adapted", "estimated: neither the backend nor a tokenizer can count")
_UNAVAILABLE = (
    "The backend has no /tokenize endpoint that takes messages, and this gateway has no tokenizer of its own: "
    "name the model's in the setting `tokenizer`."
)


class InputTokens:
    """Serves the paths. `hosted` are the kinds of tools that the gateway runs itself."""

    def __init__(self, responses: Responses, hosted: Collection[str]) -> None:
        self._responses = responses
        self._readings = Readings(responses, READER, hosted)
        self._tokens = PromptTokens(responses.pool, responses.preparation.tokenizer)

    @needs(Needs.KEY | Needs.RESERVATION)
    async def count(self, request: web.Request) -> web.Response:
        """Answer `POST` for a request of the Responses API."""
        in_force = self._responses.live.current
        body = await in_thread(request, parse_request, await read_json_body(request))
        _, tokens = await self._counted(body, caller_of(request, RESPONSES, in_force), in_force)
        if tokens is None:
            raise invalid_request(_UNAVAILABLE, code="input_tokens_unavailable")
        return web.json_response({"object": "response.input_tokens", "input_tokens": tokens})

    @needs(Needs.KEY | Needs.RESERVATION)
    async def count_message(self, request: web.Request) -> web.Response:
        """Answer `POST` for a request of the Messages API; it is an estimate where nobody can count."""
        in_force = self._responses.live.current
        body = await read_json_body(request)
        parsed = await in_thread(request, lambda: parse_messages(body, counts=True))
        caller = caller_of(request, MESSAGES, in_force)
        reading = await self._readings.read(request, parsed, caller, in_force, large=True)
        try:
            chat, tokens = await self._counted(reading.request, caller, in_force, reading)
        except ApiError as error:
            raise reading.error(error) from None
        if tokens is not None:
            return web.json_response({"input_tokens": tokens})
        return web.json_response({"input_tokens": estimated_tokens(chat)}, headers=loss_header([_ESTIMATED]))

    async def _counted(
        self, request: ResponsesRequest, caller: Caller, in_force: InForce, reading: Reading | None = None
    ) -> tuple[Mapping[str, Any], int | None]:
        """Return the chat request, and its number of tokens; None if nobody can count them. Raise `ApiError`."""
        check_model(caller.allows, request.model)
        chat = (await self._responses.preparation.translate(request, caller, in_force, reading)).body
        headers = backend_headers(in_force.settings, caller.headers, caller.request_id)
        return chat, await self._tokens.count(chat, headers, in_force.settings.idle_timeout)
