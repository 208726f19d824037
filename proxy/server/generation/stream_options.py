"""What the stream of one request depends on: the request, its translation, the settings and the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from proxy.request import ChatPlan
from proxy.settings import Settings
from proxy.stream import clients
from proxy.stream.clients import Client
from proxy.stream.options import StreamOptions
from proxy.wire.requests import ResponsesRequest

if TYPE_CHECKING:
    from proxy.server.generation.gateway import Gateway


def stream_options(
    gateway: Gateway,
    request: ResponsesRequest,
    plan: ChatPlan,
    headers: Mapping[str, str],
    response_id: str,
    thinking_open: bool | None = None,
) -> StreamOptions:
    """The options of the translator for a request and its headers (names in lower case, or whatever their case).

    `thinking_open`: whether the prompt ends inside reasoning, if that is known.
    """
    settings = gateway.settings
    return StreamOptions(
        response_id=response_id,
        model=request.model,
        echo=plan.echo,
        tools=plan.tools,
        grammars=plan.grammars,
        judged=settings.repair_custom_tools == "once",
        allowed=plan.allowed,
        max_calls=plan.max_calls,
        call_ids=plan.call_ids,
        summary=settings.reasoning_summary == "always" or (plan.summary and settings.reasoning_summary == "mirror"),
        logprobs=plan.logprobs,
        reasoning_event=reasoning_event(settings),
        client=client_of(settings, headers),
        encode=gateway.tokenizer.encode if gateway.tokenizer is not None else None,
        markup=gateway.parsers.markup(plan.body, thinking_open),
    )


def reasoning_event(settings: Settings) -> str:
    """The name of the reasoning events, without `.delta` and `.done`."""
    return "response.reasoning" if settings.reasoning_events == "spec" else "response.reasoning_text"


def client_of(settings: Settings, headers: Mapping[str, str]) -> Client:
    """The client behind a request, with what the settings say against the table of clients."""
    client = clients.recognise(headers)
    if settings.cut_calls != "auto":
        client = client._replace(runs_cut_calls=settings.cut_calls == "omit")
    if settings.refusal != "auto":
        client = client._replace(drops_refusals=settings.refusal == "text")
    return client
