"""Translate one request: everything that the gateway needs in order to ask the backend and to read its answer.

The fields of the response object that repeat the request (`echo`): the specification requires all of them, and most must not
be null, so missing parameters are echoed with their defaults. The values are those in effect: an effort or a service tier that
the gateway ignored is not echoed."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any

import msgspec

from responses_gateway.request.fields import Entry, Object, object_list, quote
from responses_gateway.request.input.approvals import APPROVAL_TYPES, NO_APPROVALS, Approval, read_approvals
from responses_gateway.request.input.call_matching import NO_CALLS, match_calls
from responses_gateway.request.input.calls import CALL_TYPES, OUTPUT_TYPES, CallItemReader, is_unpaired, output_call_id
from responses_gateway.request.input.item_reader import HONOURED_ITEMS, ItemReader
from responses_gateway.request.input.items import ResolveItem, entries, entries_at, with_paths
from responses_gateway.request.input.urls import refuse_urls
from responses_gateway.request.loss_report import Loss, LossReport
from responses_gateway.request.parameters.moderation import NO_MODERATION
from responses_gateway.request.parameters.parameters import (
    ENCRYPTED_REASONING,
    LOGPROBS,
    added_fields,
    chat_parameters,
    compact_threshold,
    effort_in_effect,
    format_name,
    refuse_unsupported,
    wants_summary,
    with_updates,
)
from responses_gateway.request.policy import Policy
from responses_gateway.request.tools.catalog import NO_TOOLS, Catalog
from responses_gateway.request.tools.declarations import TOOL_LISTS, check_tool_count, read_tools
from responses_gateway.request.tools.hosted_tools import NO_HOSTED_TOOLS, HostedTools
from responses_gateway.request.tools.tool_choice import ANY_TOOL, ToolChoice, ToolChoiceReader
from responses_gateway.wire.added_fields import AddedFields
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.hosted import CitedSource, KeptResult, citable
from responses_gateway.wire.requests import ReasoningConfig, ResponsesRequest, TextConfig
from responses_gateway.wire.tools import Grammar, ToolTable

# Items that need no step but to be read.
_SIMPLE = frozenset({"message", "reasoning"})
# Items that refer to another item, or request something: they belong to a request and cannot be stored.
_NOT_KEPT = frozenset({"item_reference", "compaction_trigger"})
# Members of an `mcp` tool that are never repeated.
_SECRETS = frozenset({"authorization", "headers"})


class ChatRequest(msgspec.Struct, frozen=True):
    """What to ask the backend, and how to read its answer.

    `body`: the complete chat request, streaming, with usage.
    `tools`: chat name → the client's tool, for every tool that was declared.
    `grammars`: chat name → the grammar that the input of this custom tool must match.
    `allowed`: chat names that may be called; None means any, declared or not.
    `allowed_later`: the same for the further turns of a response in which hosted tools are run: nothing is forced there.
    `max_calls`: how many calls the response may have; None means any number. `parallel_calls`: more than one at a time.
    `echo`: the fields of the response object that repeat the request.
    `summary`: a reasoning summary was requested. `logprobs`: log probabilities were. `compacting`: a compaction was.
    `warming`: the prompt is to be read, and nothing answered.
    `container_id`: the container of the code that the gateway runs.
    `sources`: what the results of earlier hosted calls let the model cite.
    `approved`: calls of MCP tools that the client has approved, to be run now.
    `compact_threshold`: the number of tokens above which the context is to be compacted first; None for never.
    `encrypted_reasoning`: the reasoning is to be returned encrypted.
    `call_ids`: every call id in the input; new ones must differ.
    `added`: the fields of the body that the client has not asked for.
    `losses`: the outcome of each parameter, item, tool and content part."""

    body: dict[str, Any]
    tools: ToolTable
    grammars: dict[str, Grammar]
    allowed: frozenset[str] | None
    allowed_later: frozenset[str] | None
    max_calls: int | None
    parallel_calls: bool
    echo: dict[str, Any]
    summary: bool
    logprobs: bool
    container_id: str | None
    sources: Sequence[CitedSource]
    approved: Sequence[Approval]
    compacting: bool
    warming: bool
    compact_threshold: int | None
    encrypted_reasoning: bool
    call_ids: frozenset[str]
    added: AddedFields
    losses: list[Loss]


def translate(
    request: ResponsesRequest,
    policy: Policy | None = None,
    resolve_item: ResolveItem | None = None,
    history: Sequence[Object] = (),
    replaced: Container[int] = (),
    hosted: HostedTools = NO_HOSTED_TOOLS,
    results: Mapping[str, KeptResult] = MappingProxyType({}),
) -> ChatRequest:
    """Translate a Responses request into a Chat Completions request. `history` are the items of the stored response or
    conversation that the request continues; they precede its input. `resolve_item` returns the stored item with an id (for
    `item_reference`), or None. `replaced` are the positions of those items of the input that a later compaction item replaces.
    `hosted` are the hosted tools that can be run; `results` are those of earlier calls of them, by the ids of their
    items, as far as it was kept.
    Raises `ApiError` 400 naming the field that is wrong, or that cannot be honoured."""
    policy = policy or Policy()
    refuse_unsupported(request, policy)
    report = LossReport(policy.strict)
    items = entries(request.input, resolve_item, history, replaced, policy.max_input_items)
    if hosted.files:
        items = with_paths(items, hosted.files, report)
    kinds = {entry.kind for entry in items} - _SIMPLE  # each step below costs nothing for a request that does not need it
    if "configuration_update" in kinds:
        request = with_updates(request, items)
    return ReadRequest(request, policy, hosted, report, items, kinds).chat_request(results)


class ReadItems(msgspec.Struct, frozen=True, eq=False):
    """What the items of a request say: see the members of `ChatRequest` of these names."""

    messages: list[Object]
    compacting: bool
    call_ids: frozenset[str] = NO_CALLS.ids
    approved: Sequence[Approval] = ()
    sources: Sequence[CitedSource] = ()


class ReadRequest(msgspec.Struct, frozen=True, eq=False):
    """A request that is translated: its items, and those of their kinds that are not simple."""

    request: ResponsesRequest
    policy: Policy
    hosted: HostedTools
    report: LossReport
    items: list[Entry]
    kinds: Set[str]

    def chat_request(self, results: Mapping[str, KeptResult]) -> ChatRequest:
        """Return the whole translation. Raises `ApiError` 400."""
        catalog = self.catalog()
        return self.completed(catalog, self.choice(catalog), self._read(catalog, results))

    def completed(self, catalog: Catalog, choice: ToolChoice, read: ReadItems) -> ChatRequest:
        """Return the translation of a request whose items were read. Raises `ApiError` 400."""
        request = self.request
        policy = self.policy
        warming = request.only_warms
        tools = catalog.table
        if read.compacting or warming:  # it has one turn, behind whose calls the model waits for the client
            tools = {name: tool._replace(asynchronous=False) for name, tool in tools.items() if not tool.hosted}
        extra = request.include or ()
        body = self._body(catalog, choice, read, warming)
        return ChatRequest(
            body=body,
            tools=tools,
            grammars=catalog.grammars,
            allowed=choice.allowed,
            allowed_later=choice.offered,
            max_calls=request.max_tool_calls,
            parallel_calls=request.parallel_tool_calls is not False,
            echo=echo(request, policy),
            summary=request.reasoning is not None and wants_summary(request.reasoning),
            logprobs=LOGPROBS in extra,
            container_id=self.hosted.container_id,
            sources=read.sources,
            approved=read.approved,
            compacting=read.compacting,
            warming=warming,
            compact_threshold=None if read.compacting else compact_threshold(request, policy),
            encrypted_reasoning=policy.encrypts_reasoning and ENCRYPTED_REASONING in extra,
            call_ids=read.call_ids,
            added=added_fields(body, request, policy),
            losses=self.report.losses(),
        )

    def choice(self, catalog: Catalog) -> ToolChoice:
        """Return which tools may be called. Raises `ApiError` 400."""
        choice = self.request.tool_choice
        if choice is None:
            return ANY_TOOL
        return ToolChoiceReader(catalog, self.report, separate_web_tools=self.policy.separate_web_tools).read(choice)

    def catalog(self) -> Catalog:
        """Return all tools that the request declares."""
        tools = self.request.tools
        declares = tools or (self.kinds and not TOOL_LISTS.isdisjoint(self.kinds))
        if declares:
            check_tool_count(tools, self.items, self.policy.max_tools)
        self.check_urls()
        return Catalog(read_tools(tools or [], self.items, self.policy, self.report, self.hosted)) if declares else NO_TOOLS

    def check_urls(self) -> None:
        """Raise `ApiError` 400 for a URL that is not to be sent."""
        if self.policy.url_inputs != "pass":
            refuse_urls(self.items, self.policy.url_inputs)

    def _read(self, catalog: Catalog, results: Mapping[str, KeptResult]) -> ReadItems:
        """Return the messages for the items, with the calls and approvals among them."""
        instructions = self.request.instructions
        items = self.items
        kinds = self.kinds
        if not kinds:
            reader = ItemReader(self.policy, NO_CALLS, self.report)
            return ReadItems(reader.messages(instructions, items), reader.compacting)
        approvals = NO_APPROVALS if APPROVAL_TYPES.isdisjoint(kinds) else read_approvals(items)
        call_reader = CallItemReader(catalog, self.report, approvals, results)
        has_calls = not (CALL_TYPES.isdisjoint(kinds) and OUTPUT_TYPES.isdisjoint(kinds))
        calls = match_calls(items, call_reader, self.report) if has_calls else NO_CALLS
        labels = () if HONOURED_ITEMS.isdisjoint(kinds) else catalog.mcp_labels
        reader = ItemReader(self.policy, calls, self.report, labels)
        messages = reader.messages(instructions, items)
        sources = tuple(citable(call_reader.sources).values())
        return ReadItems(messages, reader.compacting, calls.ids, tuple(approvals.approved.values()), sources)

    def _body(self, catalog: Catalog, choice: ToolChoice, read: ReadItems, warming: bool) -> Object:
        """Return the complete chat request. `warming`: as `ResponsesRequest.only_warms`."""
        request = self.request
        policy = self.policy
        body: Object = {"model": request.model, "messages": read.messages}
        if catalog.functions and not read.compacting:
            fields = _tool_fields(request, catalog, _with_strings(choice, policy))
            body.update(_unforced(fields, self.report) if policy.raw_tools and fields else fields)
        body |= chat_parameters(request, policy, self.report, self.hosted.kinds)
        if read.compacting:
            body.pop("response_format", None)  # the form of an answer, in which a summary would lose what it is to keep
        if policy.special_tokens:
            body.update(skip_special_tokens=False, spaces_between_special_tokens=False)
        if policy.continues_last_message and read.messages[-1]["role"] == "assistant":
            body.update(add_generation_prompt=False, continue_final_message=True)
        if warming:
            body[policy.max_tokens_field] = 1
            body.pop("min_tokens", None)
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
        return body


def check_kept_items(items: object, path: str, policy: Policy) -> None:
    """Check items that are to be added to a conversation, given at `path` of a body, as a later request will read them.
    Otherwise every later request would be refused. Calls and outputs may be added at different times. Raises `ApiError` 400."""
    kept = entries_at(object_list(items, path), path)
    report = LossReport()
    for entry in kept:
        if entry.kind in _NOT_KEPT:
            message = f"Invalid value: {quote(entry.kind)} is part of a request and cannot be added to a conversation."
            raise invalid_request(message, f"{entry.path}.type", "invalid_value")
    refuse_urls(kept, policy.url_inputs)
    calls = CallItemReader(Catalog(read_tools([], kept, policy, report)), report)
    for entry in kept:
        if entry.kind in CALL_TYPES:
            calls.call(entry)
        elif entry.kind in OUTPUT_TYPES and not is_unpaired(entry):
            output_call_id(entry)
            calls.output(entry)
    ItemReader(policy, NO_CALLS, report).read(kept)


def _tool_fields(request: ResponsesRequest, catalog: Catalog, choice: ToolChoice) -> Object:
    """Return `tools` and related fields; nothing without tools, since chat servers refuse the other fields alone."""
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


def _with_strings(choice: ToolChoice, policy: Policy) -> ToolChoice:
    """Return the choice in a form that servers know which take no object: a named function is the only one that is offered."""
    if policy.named_tool_choice == "object" or not isinstance(choice.value, dict):
        return choice
    return choice._replace(value="required", offered=choice.allowed)


def _unforced(fields: Object, report: LossReport) -> Object:
    """Return the fields for a backend without a parser for calls, which would refuse any other `tool_choice`."""
    if fields.get("tool_choice", "auto") not in ("auto", "none"):
        reason = "the gateway finds calls in the text of this backend and cannot force one"
        report.ignored("parameter", "tool_choice", reason, "tool_choice")
    return {"tools": fields["tools"], "tool_choice": "none"}


def echo(request: ResponsesRequest, policy: Policy) -> Object:
    """Return every field of the response that repeats a request, given a request that has been translated without error."""
    tier = request.service_tier
    honours_tier = tier != "auto" and ("service_tier" in policy.forward or tier in policy.service_tier_priorities)
    fields: Object = {
        "instructions": request.instructions,
        "tools": [_tool(tool) for tool in request.tools] if request.tools else [],
        "tool_choice": "auto" if request.tool_choice is None else _tool_choice(request.tool_choice),
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "max_tool_calls": request.max_tool_calls,
        "text": {"format": {"type": "text"}} if request.text is None else _text(request.text),
        "reasoning": {"effort": None, "summary": None} if request.reasoning is None else _reasoning(request.reasoning, policy),
        "max_output_tokens": request.max_output_tokens,
        "temperature": 1.0 if request.temperature is None else request.temperature,
        "top_p": 1.0 if request.top_p is None else request.top_p,
        "presence_penalty": 0.0 if request.presence_penalty is None else request.presence_penalty,
        "frequency_penalty": 0.0 if request.frequency_penalty is None else request.frequency_penalty,
        "top_logprobs": request.top_logprobs or 0,
        "truncation": request.truncation or "disabled",
        "previous_response_id": request.previous_response_id,
        "store": policy.stores_responses and request.store is not False,
        "background": bool(request.background),
        "service_tier": (tier if honours_tier else None) or "default",
        "metadata": request.metadata or {},
        "safety_identifier": request.safety_identifier,
        "prompt_cache_key": request.prompt_cache_key,
    }
    if request.conversation is not None:
        conversation = request.conversation
        fields["conversation"] = {"id": conversation if isinstance(conversation, str) else conversation.get("id")}
    if request.background_options is not None:
        fields["background_options"] = request.background_options
    if request.moderation is not None and not policy.moderates and "moderation" not in policy.forward:
        fields["moderation"] = NO_MODERATION
    if request.user is not None:
        fields["user"] = request.user
    return fields


def _tool(tool: Object) -> Object:
    """Return a function with all keys of the specification's type, and other tools without the secrets of an MCP server."""
    if tool["type"] == "mcp":
        return {key: value for key, value in tool.items() if key not in _SECRETS}
    if tool["type"] != "function":
        return tool
    return {"type": "function", "name": None, "description": None, "parameters": None, "strict": None} | tool


def _tool_choice(choice: str | Object) -> str | Object:
    if isinstance(choice, dict) and choice["type"] == "allowed_tools" and choice.get("mode") is None:
        return {**choice, "mode": "auto"}
    return choice


def _text(text: TextConfig) -> Object:
    if text.format is None:
        fields: Object = {"format": {"type": "text"}}
    elif text.format["type"] == "json_schema":
        defaults: Object = {"type": "json_schema", "name": None, "description": None, "schema": None, "strict": None}
        text_format = defaults | text.format
        fields = {"format": {**text_format, "name": format_name(text.format), "strict": text_format["strict"] is True}}
    else:
        fields = {"format": text.format}
    if text.verbosity is not None:
        fields["verbosity"] = text.verbosity
    return fields


def _reasoning(reasoning: ReasoningConfig, policy: Policy) -> Object:
    summary = reasoning.summary or reasoning.generate_summary
    return {"effort": effort_in_effect(reasoning.effort, policy), "summary": None if summary == "none" else summary}
