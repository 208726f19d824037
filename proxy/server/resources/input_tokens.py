"""`/v1/responses/input_tokens`: how many tokens a request would take, without asking for an answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from proxy.backend.served_models import Route
from proxy.backend.tokenizer.tokenizers import Tokenizers
from proxy.server.access.api_keys import forwards_authorization
from proxy.server.access.tenants import tenant_of
from proxy.server.generation.context import NOTHING, find_footing
from proxy.server.generation.gateway import GATEWAY
from proxy.server.generation.prepare import translated
from proxy.server.http.errors import REQUEST_ID
from proxy.wire.chat_errors import read_error
from proxy.wire.errors import invalid_request, server_error
from proxy.wire.requests import parse_request

#: Fields of a chat request that vLLM's `/tokenize` has as well.
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
#: Answers of servers without such an endpoint, or with one that takes no messages.
_NO_ENDPOINT = frozenset({404, 405, 422, 501})


class _Counted(msgspec.Struct):
    """The answer of `/tokenize`, without the tokens."""

    count: int | None = None


async def load_tokenizer(app: web.Application) -> AsyncIterator[None]:
    """At start-up, before anything is opened that would have to be closed again: the tokenizer of the settings. Raises
    `TokenizerError`."""
    source = app[GATEWAY].settings.tokenizer
    app[GATEWAY].tokenizer = await Tokenizers(os.environ).get(source) if source else None
    yield


async def count(request: web.Request) -> web.Response:
    """`POST`: the request is translated like a real one; the backend counts, or else the gateway's own tokenizer."""
    data = await request.read()
    asked = await asyncio.to_thread(parse_request, data)
    gateway = request.app[GATEWAY]
    footing = await find_footing(gateway.store, tenant_of(request), asked) if gateway.store is not None else NOTHING
    plan = translated(gateway, tenant_of(request), asked, footing, gateway.parsers.policy(asked.model))
    tokens = await _ask_backend(request, plan.body)
    tokenizer = request.app[GATEWAY].tokenizer
    if tokens is None and tokenizer is not None:
        tokens = await asyncio.to_thread(tokenizer.count_input, plan.body)
    if tokens is None:
        raise invalid_request(
            "The backend has no /tokenize endpoint that takes messages, and this gateway has no tokenizer of its own: "
            "name the model's in the setting `tokenizer`.",
            code="input_tokens_unavailable",
        )
    return web.json_response({"object": "response.input_tokens", "input_tokens": tokens})


async def refuse_method(request: web.Request) -> web.StreamResponse:
    """Any other method."""
    raise web.HTTPMethodNotAllowed(request.method, ["POST"])


async def _ask_backend(request: web.Request, chat: dict[str, Any]) -> int | None:
    """The backend's own count; None if it cannot say. Raises `ApiError` if it refuses the request or fails."""
    gateway = request.app[GATEWAY]
    body, route = msgspec.json.encode(_question(chat)), Route(chat["model"])
    try:
        async with (
            asyncio.timeout(gateway.settings.idle_timeout),
            gateway.pool.request("POST", "tokenize", route, below_root=True, body=body, headers=_headers(request)) as answer,
        ):
            status, data = answer.status, await answer.read()
    except TimeoutError:
        raise server_error("The backend did not count the tokens in time.", 504) from None
    except aiohttp.ClientError:
        raise server_error("The connection to the backend broke in the middle of the answer.") from None
    if status == 200:
        return _count_of(data)
    error = read_error(status, data)
    known = status not in _NO_ENDPOINT or error.code == "model_not_found"
    if known and (status != 400 or request.app[GATEWAY].tokenizer is None):
        raise error
    return None


def _question(chat: dict[str, Any]) -> dict[str, Any]:
    question: dict[str, Any] = {"add_generation_prompt": True}
    question |= {name: chat[name] for name in _FIELDS if chat.get(name) is not None}
    if chat.get("reasoning_effort") is not None:  # a variable of the template, which this endpoint has no field for
        variables = {"reasoning_effort": chat["reasoning_effort"], **question.get("chat_template_kwargs", {})}
        question["chat_template_kwargs"] = variables
    return question


def _headers(request: web.Request) -> list[tuple[str, str]]:
    headers = [("Content-Type", "application/json"), ("X-Request-Id", request[REQUEST_ID])]
    authorization = request.headers.get("Authorization")
    if authorization is not None and forwards_authorization(request.app[GATEWAY].settings):
        headers.append(("Authorization", authorization))
    return headers


def _count_of(data: bytes) -> int | None:
    """llama.cpp has the endpoint too: it ignores messages and answers without a count."""
    try:
        return msgspec.json.decode(data, type=_Counted).count
    except msgspec.MsgspecError:
        return None
