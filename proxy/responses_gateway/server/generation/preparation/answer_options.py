"""The options of the translator of an answer, as settings and request say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from responses_gateway.request import ChatRequest
from responses_gateway.server.generation.parser_choice.choice import AnswerStart
from responses_gateway.server.generation.preparation.live_settings import InForce
from responses_gateway.server.protocols.interface import Reading
from responses_gateway.settings import Settings
from responses_gateway.stream.items.hosted import HostedOptions
from responses_gateway.stream.options import Client, StreamOptions, reads_whole_calls
from responses_gateway.stream.validity.call_rules import CallRules
from responses_gateway.wire.requests import ResponsesRequest


def stream_options(
    in_force: InForce,
    request: ResponsesRequest,
    chat_request: ChatRequest,
    client: Client,
    response_id: str,
    start: AnswerStart,
    reading: Reading | None,
    **more: Any,
) -> StreamOptions:
    """Return the options of the translator of the answer; `more` are further ones. `start` tells how the answer is read,
    `reading` is that of a body of another protocol."""
    settings = in_force.settings
    return StreamOptions(
        response_id=response_id,
        model=request.model if reading is None else reading.model,
        echo=chat_request.echo,
        tools=chat_request.tools,
        grammars=chat_request.grammars,
        judged=settings.repair_custom_tools == "once",
        allowed=chat_request.allowed,
        allowed_later=chat_request.allowed_later,
        max_calls=chat_request.max_calls,
        parallel_calls=chat_request.parallel_calls,
        call_ids=chat_request.call_ids,
        summary=settings.reasoning_summary == "always" or (chat_request.summary and settings.reasoning_summary == "mirror"),
        logprobs=chat_request.logprobs,
        discarded=chat_request.warming,
        reasoning_event=reasoning_event(settings),
        client=client,
        form=None if reading is None else reading.form,
        hosted=_hosted_options(request, chat_request, reading),
        markup=in_force.parsers.markup(chat_request.body, start),
        start=start,
        thoughts=start.thoughts,
        **more,
    )


def with_call_rules(
    options: StreamOptions, tools: Sequence[Any], headers: Mapping[str, str], settings: Settings
) -> StreamOptions:
    """Return the options of a translator that checks calls against the tools of the chat request, for a client with these
    headers. In a message nothing may be null that the schema does not let be."""
    safe = reads_whole_calls(headers) if settings.repair_calls is None else settings.repair_calls == "safe"
    rules = CallRules(tools, repairs=safe, drops_nulls=options.form is not None)
    return msgspec.structs.replace(options, calls=rules)


def _hosted_options(request: ResponsesRequest, chat_request: ChatRequest, reading: Reading | None) -> HostedOptions | None:
    """Return what the items of hosted tools depend on; None for a request without such tools, and without results of earlier
    ones that may be cited. What was searched is shown to clients of other protocols: nothing is stored for them, so that it
    has to come back with the next request."""
    tools = chat_request.tools
    if not chat_request.sources and not (tools and any(target.hosted for target in tools.values())):
        return None
    sources = tuple(chat_request.sources)
    included = frozenset(request.include or ())
    return HostedOptions(included, chat_request.container_id or "", sources, shows_results=reading is not None)


def reasoning_event(settings: Settings) -> str:
    """Return the name of the reasoning events, without `.delta` and `.done`."""
    return "response.reasoning" if settings.reasoning_events == "spec" else "response.reasoning_text"
