"""From a translated request to what makes its response: the same for HTTP and for WebSockets."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import msgspec

from proxy.backend.tokenizer.tokenizers import ModelTokenizer
from proxy.request import ChatPlan, Policy, translate
from proxy.server.access.api_keys import forwards_authorization
from proxy.server.generation.context import Footing
from proxy.server.generation.encrypted_content import Kind
from proxy.server.generation.gateway import Gateway
from proxy.server.generation.stream_options import stream_options
from proxy.server.recording.recorder import Recording
from proxy.settings import Settings
from proxy.stream.compactor import Compactor, SealText
from proxy.stream.deferred_calls import JudgedTranslator
from proxy.stream.translator import Translator
from proxy.telemetry import logs
from proxy.telemetry.trace_context import trace_headers
from proxy.wire.errors import ApiError
from proxy.wire.requests import ResponsesRequest


def translated(
    gateway: Gateway,
    tenant: str,
    request: ResponsesRequest,
    footing: Footing,
    policy: Policy,
    recording: Recording | None = None,
) -> ChatPlan:
    """The chat request for a request and what it builds on, with our own sealed content opened. Raises `ApiError` 400."""
    given, seal, replaced = request.input, gateway.seal, frozenset[int]()
    history = list(footing.history)
    if history:
        history = seal.open_items(seal.since_compaction(history), tenant, request.model, "history")
    if isinstance(request.input, list):
        opened = seal.open_items(request.input, tenant, request.model, "input")
        if request.context_management:  # what was compacted need not be left out by the client
            replaced = seal.replaced(request.input)
        request = request.model_copy(update={"input": opened})
    if recording is not None:
        name, references = gateway.pool.members.own_name(request.model), dict(footing.references)
        found = {
            "input": request.input if request.input != given else None,
            "history": history,
            "references": references,
            "replaced": sorted(replaced),
        }
        recording.stands_on(request, policy, name, **found)
    plan = translate(request, policy, footing.references.get, history, replaced)
    if gateway.asks_token_ids(request.model):
        plan.body["return_token_ids"] = True
    return plan


class Prepared(NamedTuple):
    """A request that is ready to be sent: the plan, its chat request as JSON, and what will read the answer."""

    plan: ChatPlan
    body: bytes
    translator: Translator


async def prepare(
    gateway: Gateway,
    tenant: str,
    request: ResponsesRequest,
    footing: Footing,
    policy: Policy,
    headers: Mapping[str, str],
    recording: Recording | None = None,
) -> Prepared:
    """Translate a request and what it builds on. `headers` are the client's; `recording` takes down what the translator does.
    Raises `ApiError` 400."""
    plan = translated(gateway, tenant, request, footing, policy, recording)
    thinking_open = await gateway.parsers.thinking_open(plan.body)
    chat = msgspec.json.encode(plan.body)
    return Prepared(plan, chat, _new_translator(gateway, tenant, request, plan, headers, thinking_open, recording, chat))


def _new_translator(
    gateway: Gateway,
    tenant: str,
    request: ResponsesRequest,
    plan: ChatPlan,
    headers: Mapping[str, str],
    thinking_open: bool | None,
    recording: Recording | None,
    chat: bytes,
) -> Translator:
    """The translator of the answer, with a new response id. `thinking_open`: whether the prompt ends inside reasoning, if that
    is known."""
    response_id = f"resp_{secrets.token_hex(16)}"
    options = stream_options(gateway, request, plan, headers, response_id, thinking_open)

    def sealing(kind: Kind) -> SealText:
        seal = partial(gateway.seal.close, kind, tenant, request.model)
        return seal if recording is None else recording.noted(seal)

    if plan.sealed_reasoning:
        options = replace(options, seal=sealing("reasoning"))
    compaction = sealing("compaction") if plan.compacting else None
    if recording is not None:
        return recording.translator(options, chat, thinking_open, compaction)
    if compaction is not None:
        return Compactor(options, time.time, compaction)
    return JudgedTranslator(options, time.time)


def backend_headers(settings: Settings, headers: Mapping[str, str], request_id: str) -> dict[str, str]:
    """What of the client's headers goes to the backend (its key, its trace), and the name of the request."""
    sent = {"X-Request-Id": request_id, **trace_headers(headers)}
    authorization = headers.get("Authorization")
    if authorization is not None and forwards_authorization(settings):
        sent["Authorization"] = authorization
    return sent


async def count_input(translator: Translator, tokenizer: ModelTokenizer, body: Mapping[str, Any]) -> None:
    """For a backend that may report no usage: count the tokens of a chat request while it works on it."""
    try:
        translator.accounts.input_tokens = await asyncio.to_thread(tokenizer.count_input, body)
    except ApiError as error:  # pictures, no template: then the usage stays unknown
        fields = logs.fields(response_id=translator.response_id, reason=error.message)
        logs.logger().debug("input not counted", extra=fields)
