"""From a translated request to what makes its response: the same for HTTP and for WebSockets."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from proxy.backend.tokenizers import ModelTokenizer
from proxy.request import ChatPlan, Policy, translate
from proxy.server.footing import Footing
from proxy.server.gateway import Gateway
from proxy.server.recorder import Recording
from proxy.server.sealing import since_compaction
from proxy.server.stream_options import stream_options
from proxy.settings import Settings
from proxy.stream.compactor import Compactor
from proxy.stream.translator import Translator
from proxy.telemetry import logs
from proxy.wire.errors import ApiError
from proxy.wire.requests import ResponsesRequest


def translated(gateway: Gateway, tenant: str, request: ResponsesRequest, footing: Footing, policy: Policy) -> ChatPlan:
    """The chat request for a request and what it builds on, with our own sealed content opened. Raises `ApiError` 400."""
    seal = gateway.seal
    history = seal.open_items(since_compaction(list(footing.history)), tenant, request.model, "history")
    if isinstance(request.input, list):
        request = request.model_copy(update={"input": seal.open_items(request.input, tenant, request.model, "input")})
    plan = translate(request, policy, footing.references.get, history)
    if gateway.asks_token_ids(request.model):
        plan.body["return_token_ids"] = True
    return plan


def new_translator(
    gateway: Gateway,
    tenant: str,
    request: ResponsesRequest,
    plan: ChatPlan,
    headers: Mapping[str, str],
    thinking_open: bool | None = None,
    recording: Recording | None = None,
    chat: bytes = b"",
) -> Translator:
    """The translator of the answer, with a new response id.

    `headers` are the client's. `thinking_open`: whether the prompt ends inside reasoning, if that is known. `recording` takes
    down what it does, and `chat`, the chat request.
    """
    response_id = f"resp_{secrets.token_hex(16)}"
    options = stream_options(gateway, request, plan, headers, response_id, thinking_open)
    close, model = gateway.seal.close, request.model
    if plan.sealed_reasoning:
        options = replace(options, seal=partial(close, "reasoning", tenant, model))
    if plan.compacting:
        return Compactor(options, time.time, partial(close, "compaction", tenant, model))
    if recording is not None:
        return recording.translator(options, chat)
    return Translator(options, time.time)


def backend_headers(settings: Settings, headers: Mapping[str, str], request_id: str) -> dict[str, str]:
    """What of the client's headers goes to the backend, and the name of the request."""
    sent = {"X-Request-Id": request_id}
    authorization = headers.get("Authorization")
    if authorization is not None and settings.forward_authorization:
        sent["Authorization"] = authorization
    return sent


async def count_input(translator: Translator, tokenizer: ModelTokenizer, body: Mapping[str, Any]) -> None:
    """For a backend that may report no usage: count the tokens of a chat request while it works on it."""
    try:
        translator.accounts.input_tokens = await asyncio.to_thread(tokenizer.count_input, body)
    except ApiError as error:  # pictures, no template: then the usage stays unknown
        fields = logs.fields(response_id=translator.response_id, reason=error.message)
        logs.logger().debug("input not counted", extra=fields)
