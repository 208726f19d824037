"""A chat request that a backend has refused, asked again in a form that its template may take; and what a client loses with the
fields of the gateway's own that a server refuses (`backend/transport/optional_fields.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from responses_gateway.backend.pool import HeadersFor, Pool
from responses_gateway.backend.transport.client import ChatStream
from responses_gateway.backend.transport.optional_fields import REFUSALS
from responses_gateway.probing.known_models import KnownModel, KnownModels
from responses_gateway.request import Loss
from responses_gateway.request.input.template_forms import OF_ONE_REQUEST, forms_to_try, in_forms, losses_of
from responses_gateway.request.parameters.other_format import losses_of_format, other_format
from responses_gateway.request.tools.plain_tools import losses_of_tools, other_tools
from responses_gateway.server.generation.request_log.request_log import RequestLog
from responses_gateway.server.generation.upstream.chat_call import ChatCall, StrictForm
from responses_gateway.wire.added_fields import CALLS_IN_TEXT, LIMIT, field_at
from responses_gateway.wire.errors import ApiError

_MOST_ATTEMPTS = 20  # other forms of a request that are tried: all that there are
# Bytes of tools whose form is kept.
_LONGEST_TOOLS = 256 * 1024
_REFUSED = "the backend refuses it"
_NO_SWITCH = "the backend refuses the switch of its template"
# What a client loses with a field, or with its value. Without the others nothing is lost that anybody has asked for.
_LOSSES = {
    "reasoning_effort": Loss("parameter", "reasoning.effort", "ignored", _REFUSED),
    "reasoning_effort=": Loss("parameter", "reasoning.effort", "adapted", "the nearest one that the backend takes"),
    "chat_template_kwargs": Loss("parameter", "reasoning.effort", "ignored", _NO_SWITCH),
    "chat_template_kwargs.enable_thinking": Loss("parameter", "reasoning.effort", "ignored", _NO_SWITCH),
    "messages[].reasoning": Loss("item", "reasoning", "ignored", _REFUSED),
    "messages[].reasoning_content": Loss("item", "reasoning", "ignored", _REFUSED),
    "response_format.json_schema.strict": Loss("parameter", "text.format", "adapted", "the backend refuses `strict`"),
    f"{LIMIT}=": Loss("parameter", "max_output_tokens", "adapted", "reduced to what the backend takes"),
    "priority": Loss("parameter", "service_tier", "ignored", _REFUSED),
}


async def with_strict_tools(pool: Pool, call: ChatCall, headers: HeadersFor) -> tuple[ChatStream, ChatCall]:
    """Ask with the tools that a backend is to enforce, and at once without that if it refuses the request. Return the answer,
    and the request that it answers. Raise `ApiError`."""
    form: StrictForm | None = None

    def fitted(backend: str, model: str) -> bytes:
        nonlocal form
        assert call.strict is not None
        form = call.strict.form(call.body["tools"], backend, model)
        return call.data if form is None else call.strict_data(form)

    chat = await pool.open_chat(call.data, headers, call.route, added=call.added, fitted=fitted)
    if form is None or chat.status not in REFUSALS:
        return chat, call
    backend = chat.backend
    refusal = await chat.early_refusal()
    chat.close()
    other = msgspec.structs.replace(call, strict=None)
    chat = await pool.open_chat(other.data, headers, other.route, added=other.added)
    if chat.status == 200 and chat.backend == backend:
        form.refused(refusal)
    return chat, other


async def in_another_form(
    pool: Pool, known: KnownModels, call: ChatCall, refused: ChatStream, headers: HeadersFor
) -> tuple[ChatStream, ChatCall]:
    """Ask again with the format, tools or messages in the forms that the refusal may be about. Return the answer and its
    request, or the refusal as it was: an answer of any other kind says nothing about what the client has sent. What is
    accepted is remembered: a form of messages for the model, one of tools for these tools alone, because another client's are
    not to become plain. But not the choice of a tool, which may be refused only while the model thinks (DeepSeek, Qwen)."""
    forms: frozenset[str] = frozenset()
    messages = call.body["messages"]
    continued = bool(call.body.get("continue_final_message"))
    in_text = call.added.get("tool_choice") is CALLS_IN_TEXT
    other = call
    chat = refused
    refusals: list[bytes] = []
    while chat.status in REFUSALS and len(refusals) < _MOST_ATTEMPTS:
        refusal, changes = await _read_refusal(chat, other.body, in_text)
        messages = changes.get("messages", messages)
        body = {name: value for name, value in {**other.body, **changes}.items() if value is not None}
        if body == other.body:
            for forms in forms_to_try(refusal, forms, again=refusals[-1:] in ([], [refusal])):  # noqa: B020  (those of the last turn)
                body = {**other.body, "messages": in_forms(messages, forms, continued=continued)}
                if body != other.body:
                    break
            else:
                break
        refusals.append(refusal)
        chat.close()
        other = call.with_body(body)
        try:
            chat = await pool.open_chat(other.data, headers, other.route, added=other.added)
        except ApiError:
            break
    if chat.status == 200:
        _remember(known, pool.own_name(call.route.model), call.body, other.body, forms)
        return chat, other
    if chat is not refused:
        chat.close()
    return refused, call


async def _read_refusal(chat: ChatStream, body: Mapping[str, Any], in_text: bool) -> tuple[bytes, dict[str, Any]]:
    """Return a refusal, and the fields in other forms that it may be about. If the client leaves, the answer is closed."""
    try:
        refusal = await chat.early_refusal()
        # In a thread, because a client's schemas may be large.
        return refusal, other_format(refusal, body) or await asyncio.to_thread(other_tools, refusal, body, in_text)
    except BaseException:
        chat.close()
        raise


def _remember(
    known: KnownModels, model: str, refused: Mapping[str, Any], taken: Mapping[str, Any], forms: frozenset[str]
) -> None:
    """Remember the forms in which a model's server took what it had refused: those of messages, and its tools."""
    known.learn(model, KnownModel(forms=forms - OF_ONE_REQUEST))
    tools = refused.get("tools")
    if taken.get("tools") != tools and taken.get("tool_choice") == refused.get("tool_choice"):
        key = _key_of(model, tools)
        if key is not None:
            known.plain_tools[key] = taken["tools"]


def with_taken_tools(known: KnownModels, pool: Pool, call: ChatCall) -> ChatCall:
    """Return a call with its tools in the form in which a server took them that has refused these before."""
    model = pool.own_name(call.route.model)
    if all(model != other for other, _ in known.plain_tools):  # then the tools need not be encoded
        return call
    key = _key_of(model, call.body.get("tools"))
    tools = None if key is None else known.plain_tools.get(key)
    return call if tools is None else call.with_tools(tools)


def _key_of(model: str, tools: Sequence[Any] | None) -> tuple[str, bytes] | None:
    """Return by what the form of tools is kept; None if they are too long to be kept, or if there are none."""
    data = msgspec.json.encode(tools) if tools else b""
    return (model, blake2b(data, digest_size=16).digest()) if 0 < len(data) <= _LONGEST_TOOLS else None


def report_changes(log: RequestLog, call: ChatCall, sent: ChatCall, chat: ChatStream) -> None:
    """Report what of a request was changed on its way to the backend; once, though a response may have several turns."""
    changes = [(field_at(path), instead) for path, instead in chat.left_out.items() if path in call.added]
    names = [f"{field}=" if instead else field for field, instead in changes]
    losses = [_LOSSES[name] for name in names if name in _LOSSES]
    if sent is not call:
        format_losses = losses_of_format(call.body, sent.body)
        losses += format_losses or losses_of(call.body["messages"], sent.body["messages"])
        losses += losses_of_tools(call.body, sent.body)
    log.losses([loss for loss in dict.fromkeys(call.words(losses)) if loss not in log.facts.losses])
