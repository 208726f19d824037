"""`/v1/responses/input_tokens`: how many tokens a request would take, without asking for an answer."""

from __future__ import annotations

from aiohttp import web

from responses_gateway.backend.prompt_tokens import PromptTokens
from responses_gateway.server.access.api_keys import ALLOWS, Needs, check_model, needs, tenant_of
from responses_gateway.server.generation.preparation.context import Caller
from responses_gateway.server.generation.responses import Responses
from responses_gateway.server.generation.upstream.chat_call import backend_headers
from responses_gateway.server.http.bodies import in_thread, read_json_body
from responses_gateway.server.http.errors import REQUEST_ID
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.requests import parse_request


class InputTokens:
    """Serves the path."""

    def __init__(self, responses: Responses) -> None:
        self._responses = responses
        self._tokens = PromptTokens(responses.pool, responses.preparation.tokenizer)

    @needs(Needs.KEY | Needs.RESERVATION)
    async def count(self, request: web.Request) -> web.Response:
        """Answer `POST`: the request is translated like a real one; the backend counts, or else the gateway's own tokenizer."""
        responses = self._responses
        in_force = responses.live.current
        asked = await in_thread(request, parse_request, await read_json_body(request))
        check_model(request.get(ALLOWS), asked.model)
        caller = Caller(tenant_of(request), request[REQUEST_ID], request.headers)
        chat_request = await responses.preparation.translate(asked, caller, in_force)
        headers = backend_headers(in_force.settings, caller.headers, caller.request_id)
        tokens = await self._tokens.count(chat_request.body, headers, in_force.settings.idle_timeout)
        if tokens is None:
            raise invalid_request(
                "The backend has no /tokenize endpoint that takes messages, and this gateway has no tokenizer of its own: "
                "name the model's in the setting `tokenizer`.",
                code="input_tokens_unavailable",
            )
        return web.json_response({"object": "response.input_tokens", "input_tokens": tokens})
