"""From a translated request to what makes its response: the same for HTTP and for WebSockets."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from functools import partial

from proxy.request import ChatPlan, Policy, translate
from proxy.server.footing import Footing
from proxy.server.gateway import Gateway
from proxy.server.sealing import since_compaction
from proxy.settings import Settings
from proxy.stream import clients
from proxy.stream.clients import Client
from proxy.stream.compactor import Compactor
from proxy.stream.translator import StreamOptions, Translator
from proxy.wire.requests import ResponsesRequest


def translated(gateway: Gateway, tenant: str, request: ResponsesRequest, footing: Footing, policy: Policy) -> ChatPlan:
    """The chat request for a request and what it builds on, with our own sealed content opened. Raises `ApiError` 400."""
    seal = gateway.seal
    history = seal.open_items(since_compaction(list(footing.history)), tenant, request.model, "history")
    if isinstance(request.input, list):
        request = request.model_copy(update={"input": seal.open_items(request.input, tenant, request.model, "input")})
    return translate(request, policy, footing.references.get, history)


def new_translator(gateway: Gateway, tenant: str, request: ResponsesRequest, plan: ChatPlan, client: Client) -> Translator:
    """The translator of the answer, with a new response id."""
    settings, seal, model = gateway.settings, gateway.seal, request.model
    options = StreamOptions(
        response_id=f"resp_{secrets.token_hex(16)}",
        model=request.model,
        echo=plan.echo,
        tools=plan.tools,
        allowed=plan.allowed,
        max_calls=plan.max_calls,
        call_ids=plan.call_ids,
        summary=plan.summary and settings.reasoning_summary == "mirror",
        seal=partial(seal.close, "reasoning", tenant, model) if plan.sealed_reasoning else None,
        logprobs=plan.logprobs,
        reasoning_event=reasoning_event(settings),
        client=client,
    )
    if plan.compacting:
        return Compactor(options, time.time, partial(seal.close, "compaction", tenant, model))
    return Translator(options, time.time)


def reasoning_event(settings: Settings) -> str:
    """The name of the reasoning events, without `.delta` and `.done`."""
    return "response.reasoning" if settings.reasoning_events == "spec" else "response.reasoning_text"


def client_of(settings: Settings, headers: Mapping[str, str]) -> Client:
    """The client behind a request, with what the settings decide about it."""
    client = clients.recognise(headers)
    if settings.cut_calls != "auto":
        client = client._replace(runs_cut_calls=settings.cut_calls == "omit")
    if settings.refusal != "auto":
        client = client._replace(drops_refusals=settings.refusal == "text")
    return client


def backend_headers(settings: Settings, headers: Mapping[str, str], request_id: str) -> dict[str, str]:
    """What of the client's headers goes to the backend, and the name of the request."""
    sent = {"X-Request-Id": request_id}
    authorization = headers.get("Authorization")
    if authorization is not None and settings.forward_authorization:
        sent["Authorization"] = authorization
    return sent
