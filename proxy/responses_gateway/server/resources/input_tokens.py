"""`/v1/responses/input_tokens`: how many tokens a request would take, without asking for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from responses_gateway.backend.served_models import Route
from responses_gateway.server.access.allowed_models import allowed_models, check_model
from responses_gateway.server.access.api_keys import Needs, needs, tenant_of
from responses_gateway.server.generation.preparation.prepare import forwards_client_key
from responses_gateway.server.generation.responses import Responses
from responses_gateway.server.http.bodies import BODIES, read_json_body
from responses_gateway.server.http.errors import REQUEST_ID
from responses_gateway.settings import Settings
from responses_gateway.wire.errors import ApiError, in_client_terms, invalid_request, read_error, server_error
from responses_gateway.wire.requests import parse_request

# Fields of a chat request that vLLM's `/tokenize` has as well.
_FIELDS = (
    "model",
    "messages",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "chat_template_kwargs",
    "mm_processor_kwargs",
)
# Answers of servers without such an endpoint, or with one that takes no messages.
_NO_ENDPOINT = frozenset({404, 405, 422, 501})


class _Tokenized(msgspec.Struct):
    """The answer of `/tokenize`, with or without a count, or of `/apply-template`."""

    count: int | None = None
    tokens: list[msgspec.Raw] | None = None
    prompt: str | None = None


class InputTokens:
    """Serves the path."""

    def __init__(self, responses: Responses) -> None:
        self._responses = responses

    @needs(Needs.KEY | Needs.RESERVATION)
    async def count(self, request: web.Request) -> web.Response:
        """Answer `POST`: the request is translated like a real one; the backend counts, or else the gateway's own tokenizer."""
        responses = self._responses
        in_force = responses.live.current
        asked = await request.app[BODIES].in_thread(parse_request, await read_json_body(request))
        check_model(allowed_models(request, in_force.settings), asked.model)
        chat_request = await responses.preparation.translate(asked, tenant_of(request), in_force)
        tokens = await self._ask_backend(
            chat_request.body, _headers(request, in_force.settings), in_force.settings.idle_timeout
        )
        if tokens is None and responses.preparation.tokenizer is not None:
            tokens = await asyncio.to_thread(responses.preparation.tokenizer.count_input, chat_request.body)
        if tokens is None:
            raise invalid_request(
                "The backend has no /tokenize endpoint that takes messages, and this gateway has no tokenizer of its own: "
                "name the model's in the setting `tokenizer`.",
                code="input_tokens_unavailable",
            )
        return web.json_response({"object": "response.input_tokens", "input_tokens": tokens})

    async def _ask_backend(self, chat: Mapping[str, Any], headers: list[tuple[str, str]], within: float) -> int | None:
        """Return the backend's own count; None if it cannot say. Raise `ApiError` if it refuses the request or fails."""
        route = Route(chat["model"])
        try:
            async with asyncio.timeout(within):
                status, data = await self._post("tokenize", _question(chat), route, headers)
                if status == 200:
                    answer = _decoded(data)
                    return await self._count_rendered(chat, route, headers) if answer.count is None else answer.count
        except TimeoutError:
            raise server_error("The backend did not count the tokens in time.", 504) from None
        except aiohttp.ClientError:
            raise server_error("The connection to the backend broke in the middle of the answer.") from None
        error = in_client_terms(read_error(status, data))
        known = status not in _NO_ENDPOINT or error.code == "model_not_found"
        if known and (status != 400 or self._responses.preparation.tokenizer is None):
            raise error
        return None

    async def _count_rendered(self, chat: Mapping[str, Any], route: Route, headers: list[tuple[str, str]]) -> int | None:
        """Return the count of a llama.cpp, whose `/tokenize` ignores messages: it renders the prompt first. None if it has no
        such endpoint."""
        try:
            status, data = await self._post("apply-template", chat, route, headers)
            prompt = _decoded(data).prompt if status == 200 else None
            if prompt is None:
                return None
            text = {"model": chat["model"], "content": prompt, "add_special": True, "parse_special": True}
            status, data = await self._post("tokenize", text, route, headers)
        except ApiError:  # the gateway may have a tokenizer of its own
            return None
        tokens = _decoded(data).tokens if status == 200 else None
        return len(tokens) if tokens else None

    async def _post(
        self, path: str, body: Mapping[str, Any], route: Route, headers: list[tuple[str, str]]
    ) -> tuple[int, bytes]:
        pool = self._responses.pool
        async with pool.request(
            "POST", path, route, below_root=True, body=msgspec.json.encode(body), headers=headers
        ) as answer:
            return answer.status, await answer.read()


def _question(chat: Mapping[str, Any]) -> dict[str, Any]:
    question: dict[str, Any] = {"add_generation_prompt": True}
    question |= {name: chat[name] for name in _FIELDS if chat.get(name) is not None}
    if chat.get("reasoning_effort") is not None:  # a variable of the template: this endpoint has no field for it
        variables = {"reasoning_effort": chat["reasoning_effort"], **question.get("chat_template_kwargs", {})}
        question["chat_template_kwargs"] = variables
    return question


def _headers(request: web.Request, settings: Settings) -> list[tuple[str, str]]:
    headers = [("Content-Type", "application/json"), ("X-Request-Id", request[REQUEST_ID])]
    authorization = request.headers.get("Authorization")
    if authorization is not None and forwards_client_key(settings):
        headers.append(("Authorization", authorization))
    return headers


def _decoded(data: bytes) -> _Tokenized:
    try:
        return msgspec.json.decode(data, type=_Tokenized)
    except msgspec.MsgspecError:
        return _Tokenized()
