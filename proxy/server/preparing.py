"""From a translated request to what makes its response: the same for HTTP and for WebSockets."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping

from proxy.request import ChatPlan
from proxy.settings import Settings
from proxy.stream import clients
from proxy.stream.clients import Client
from proxy.stream.translator import StreamOptions, Translator
from proxy.wire.requests import ResponsesRequest


def new_translator(settings: Settings, request: ResponsesRequest, plan: ChatPlan, client: Client) -> Translator:
    """The translator of the answer, with a new response id."""
    options = StreamOptions(
        response_id=f"resp_{secrets.token_hex(16)}",
        model=request.model,
        echo=plan.echo,
        tools=plan.tools,
        allowed=plan.allowed,
        max_calls=plan.max_calls,
        call_ids=plan.call_ids,
        summary=plan.summary and settings.reasoning_summary == "mirror",
        logprobs=plan.logprobs,
        reasoning_event="response.reasoning" if settings.reasoning_events == "spec" else "response.reasoning_text",
        client=client,
    )
    return Translator(options, time.time)


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
