"""The translation of one request: everything the rest of the gateway needs to know about it."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.request.fields import Object
from proxy.request.input.calls import CallReader
from proxy.request.input.conversation import Conversation
from proxy.request.input.items import Entry, ResolveItem, entries
from proxy.request.input.pairing import Pairing
from proxy.request.input.urls import refuse_urls
from proxy.request.loss_report import Ledger, Loss
from proxy.request.parameters.configuration import configured
from proxy.request.parameters.echo import echo
from proxy.request.parameters.parameters import (
    chat_parameters,
    threshold_in_use,
    wants_logprobs,
    wants_sealed_reasoning,
    wants_summary,
)
from proxy.request.parameters.unavailable import refuse_unavailable
from proxy.request.policy import Policy
from proxy.request.sizes import check_items, check_tools
from proxy.request.tools.catalog import Catalog
from proxy.request.tools.declarations import ToolReader
from proxy.request.tools.tool_choice import Choice, ChoiceReader
from proxy.wire.requests import ResponsesRequest
from proxy.wire.tools import Grammar, ToolTable


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """What to ask the backend, and how to read its answer.

    `body`: the complete chat request, streaming, with usage.
    `tools`: chat name → the client's tool, for every tool that was declared.
    `grammars`: chat name → what the input of this custom tool has to match.
    `allowed`: chat names that may be called; None means any, declared or not.
    `max_calls`: how many calls the answer may hold; None means any number.
    `echo`: the fields of the response object that repeat the request.
    `summary`: a reasoning summary was asked for. `logprobs`: log probabilities were. `compacting`: a compaction was.
    `compact_threshold`: from how many tokens on the context is to be compacted first; None if it is not.
    `sealed_reasoning`: the reasoning was asked for in sealed form.
    `call_ids`: every call id in the input; new ones must differ.
    `losses`: what became of each parameter, item, tool and content part.
    """

    body: dict[str, Any]
    tools: ToolTable
    grammars: dict[str, Grammar]
    allowed: frozenset[str] | None
    max_calls: int | None
    echo: dict[str, Any]
    summary: bool
    logprobs: bool
    compacting: bool
    compact_threshold: int | None
    sealed_reasoning: bool
    call_ids: frozenset[str]
    losses: list[Loss]


def translate(
    request: ResponsesRequest,
    policy: Policy | None = None,
    resolve_item: ResolveItem | None = None,
    history: Sequence[Object] = (),
    replaced: Container[int] = (),
) -> ChatPlan:
    """Translate a Responses request into a Chat Completions request.

    `history` are the items of what the request continues (a stored response, a conversation); they come before its input.
    `resolve_item` gives the stored item of an id (for `item_reference`), or None. `replaced` are the places of those items
    of the input that a compaction behind them stands for. Raises `ApiError` 400 naming the field that is wrong, or cannot be
    honoured.
    """
    policy = policy or Policy()
    refuse_unavailable(request, policy)
    ledger = Ledger(policy.strict)
    check_items(request, history, policy.max_input_items)
    items = entries(request.input, resolve_item, history, replaced)
    request = configured(request, items)
    check_tools(request, items, policy.max_tools)
    refuse_urls(items, policy.url_inputs)
    tool_reader = ToolReader(policy, ledger)
    catalog = _catalog(request, items, tool_reader)
    choice = ChoiceReader(catalog, tool_reader.hosted, ledger).read(request.tool_choice)
    pairing = Pairing(CallReader(catalog, ledger), ledger)
    pairing.match(items)
    conversation = Conversation(policy, pairing, ledger)
    body: Object = {"model": request.model, "messages": conversation.build(request.instructions, items)}
    if not conversation.compacting:
        fields = _tool_fields(request, catalog, choice)
        body.update(_shown_only(fields, ledger) if policy.raw_tools and fields else fields)
    body.update(chat_parameters(request, policy, ledger))
    if policy.special_tokens:
        body.update(skip_special_tokens=False, spaces_between_special_tokens=False)
    body.update(stream=True, stream_options={"include_usage": True})
    return ChatPlan(
        body=body,
        tools=catalog.table,
        grammars=catalog.grammars,
        allowed=choice.allowed,
        max_calls=_max_calls(request),
        echo=echo(request, policy),
        summary=wants_summary(request),
        logprobs=wants_logprobs(request),
        compacting=conversation.compacting,
        compact_threshold=None if conversation.compacting else threshold_in_use(request, policy),
        sealed_reasoning=policy.seals_reasoning and wants_sealed_reasoning(request),
        call_ids=frozenset(pairing.call_ids),
        losses=ledger.losses(),
    )


def _catalog(request: ResponsesRequest, items: list[Entry], reader: ToolReader) -> Catalog:
    """The tools of the request and of the items that bring some along, in that order."""
    return Catalog({"tools": list(reader.read(request.tools or [], "tools")), **reader.brought(items)})


def _tool_fields(request: ResponsesRequest, catalog: Catalog, choice: Choice) -> Object:
    """`tools` and what goes with them; nothing at all without tools, since chat servers refuse the rest alone."""
    offered = choice.offered
    functions = [tool for name, tool in catalog.functions.items() if offered is None or name in offered]
    if not functions:
        return {}
    fields: Object = {"tools": functions}
    if choice.value is not None:
        fields["tool_choice"] = choice.value
    if request.parallel_tool_calls is not None:
        fields["parallel_tool_calls"] = request.parallel_tool_calls
    return fields


def _shown_only(fields: Object, ledger: Ledger) -> Object:
    """Tools for a backend without a parser for calls: it would refuse them with any other `tool_choice`."""
    if fields.get("tool_choice", "auto") not in ("auto", "none"):
        reason = "the gateway finds calls in the text of this backend, it cannot force one"
        ledger.ignored("parameter", "tool_choice", reason, "tool_choice")
    return {"tools": fields["tools"], "tool_choice": "none"}


def _max_calls(request: ResponsesRequest) -> int | None:
    if request.parallel_tool_calls is False:
        return 1
    return request.max_tool_calls
