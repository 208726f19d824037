"""From a Responses request to the chat request that is sent, and to what will read its answer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec

from proxy.request import ChatRequest, Policy, translate
from proxy.request.tools.hosted_tools import NO_HOSTED_TOOLS, HostedTools
from proxy.server.generation.context import Context
from proxy.server.generation.encrypted_content import Encryption
from proxy.server.generation.live_settings import InForce
from proxy.server.generation.parser_choice import AnswerStart
from proxy.server.recording.recording import Recording
from proxy.settings import Settings
from proxy.stream.items.hosted import HostedOptions
from proxy.stream.options import Client, StreamOptions, recognise
from proxy.stream.tape import Tape
from proxy.telemetry.tracing import trace_headers
from proxy.wire.hosted import decode_result
from proxy.wire.requests import ResponsesRequest


def translated(
    request: ResponsesRequest,
    context: Context,
    policy: Policy,
    encryption: Encryption,
    tenant: str,
    recording: Recording,
    served_as: str,
    hosted: HostedTools = NO_HOSTED_TOOLS,
) -> ChatRequest:
    """Return the chat request for a request and what it builds on, with our own encrypted content decrypted. `served_as` is the
    backend's name of the model, `hosted` the tools that the gateway runs itself. Raise `ApiError` 400."""
    given = request.input
    replaced: frozenset[int] = frozenset()
    history = list(context.history)
    if history:
        history = encryption.decrypt_items(encryption.since_compaction(history), tenant, request.model, "history")
    if isinstance(given, list):
        request = request.model_copy(update={"input": encryption.decrypt_items(given, tenant, request.model, "input")})
        if request.context_management:  # clients need not leave out what was compacted
            replaced = encryption.replaced(given)
    references = context.references
    recording.found(
        request,
        policy,
        served_as,
        given=given,
        history=history,
        references=references,
        replaced=replaced,
        hosted=hosted,
        results=context.results,
    )
    results = {item_id: decode_result(result) for item_id, result in context.results.items()}
    return translate(request, policy, references.get, history, replaced, hosted, results)


def stream_options(
    in_force: InForce,
    request: ResponsesRequest,
    chat_request: ChatRequest,
    client: Client,
    response_id: str,
    start: AnswerStart,
    **more: Any,
) -> StreamOptions:
    """Return the options of the translator of the answer; `more` are further ones. `start` tells how the answer is
    read."""
    settings = in_force.settings
    return StreamOptions(
        response_id=response_id,
        model=request.model,
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
        reasoning_event=reasoning_event(settings),
        client=client,
        hosted=hosted_options(request, chat_request),
        markup=in_force.parsers.markup(chat_request.body, start),
        **more,
    )


def hosted_options(request: ResponsesRequest, chat_request: ChatRequest) -> HostedOptions | None:
    """Return what the items of hosted tools depend on; None for a request without such tools, and without results of earlier
    ones that may be cited."""
    if not chat_request.sources and not any(target.hosted for target in chat_request.tools.values()):
        return None
    return HostedOptions(frozenset(request.include or ()), chat_request.container_id or "", tuple(chat_request.sources))


def encryption_options(
    chat_request: ChatRequest, encryption: Encryption, tenant: str, model: str, tape: Tape | None
) -> dict[str, Any]:
    """Return the options by which the translator encrypts what the request asks to be encrypted; its tape has the results."""
    options: dict[str, Any] = {}
    if chat_request.encrypted_reasoning:
        options["seal"] = partial(encryption.encrypt, "reasoning", tenant, model)
    if chat_request.compacting:
        options["compaction"] = partial(encryption.encrypt, "compaction", tenant, model)
    return options if tape is None else {name: tape.sealing(seal) for name, seal in options.items()}


def reasoning_event(settings: Settings) -> str:
    """Return the name of the reasoning events, without `.delta` and `.done`."""
    return "response.reasoning" if settings.reasoning_events == "spec" else "response.reasoning_text"


def client_of(settings: Settings, headers: Mapping[str, str]) -> Client:
    """Recognise the client behind a request; the settings take precedence over the table of clients."""
    client = recognise(headers)
    if settings.cut_calls != "auto":
        client = client._replace(runs_cut_calls=settings.cut_calls == "omit")
    if settings.refusal != "auto":
        client = client._replace(drops_refusals=settings.refusal == "text")
    return client


def forwards_client_key(settings: Settings) -> bool:
    """Tell whether a client's own `Authorization` goes on to the backend: never if it is a key for the gateway."""
    return settings.forward_authorization and not settings.api_keys


def backend_headers(settings: Settings, headers: Mapping[str, str], request_id: str) -> dict[str, str]:
    """Return the headers for the backend: the id of the request, and of the client's its key and its trace."""
    sent = {"X-Request-Id": request_id}
    if "traceparent" in headers:
        sent.update(trace_headers(headers))
    authorization = headers.get("Authorization")
    if authorization is not None and forwards_client_key(settings):
        sent["Authorization"] = authorization
    return sent


def affinity_key(request: ResponsesRequest, context: Context, *, continuable: bool) -> str:
    """Return what requests with the same beginning share: the client's own key, or the conversation, or how the chain of
    responses begins. Empty where no other request will build on this one (not `continuable`).

    All responses of a chain share its first item, and so does the first one, which does not know yet that others will come."""
    if request.prompt_cache_key:
        return f"key:{request.prompt_cache_key}"
    if context.conversation is not None:
        return f"conversation:{context.conversation}"
    if not continuable and request.previous_response_id is None:
        return ""
    items = context.history or context.input
    return f"chain:{_digest(items[0])}" if items else ""


def _digest(item: Mapping[str, Any]) -> str:
    """Hash what was said, without what is added on the way into the store (an id, a status)."""
    said = item.get("content") or item.get("output") or item.get("id")
    return blake2b(msgspec.json.encode(said), digest_size=16).hexdigest()
