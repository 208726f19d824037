"""The parameters of a request: what becomes of each, as data, their fields of the chat request, and their values in effect."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple

from responses_gateway.request.fields import (
    Entry,
    Object,
    optional_flag,
    optional_object,
    optional_text,
    quote,
    required_object,
    text,
    wrong_type,
)
from responses_gateway.request.loss_report import LossReport, Outcome
from responses_gateway.request.parameters.background_options import check_background_options, long_window
from responses_gateway.request.parameters.moderation import read_modes
from responses_gateway.request.parameters.other_format import TOLD
from responses_gateway.request.policy import Policy
from responses_gateway.wire.added_fields import ALWAYS_ADDED, CALLS_IN_TEXT, EFFORTS, HINT, AddedField, AddedFields
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.hosted_kinds import HOSTED
from responses_gateway.wire.requests import INCLUDABLE, TOKEN_IDS, ReasoningConfig, ResponsesRequest, TextConfig

PATH = "text.format"
DEFAULT_NAME = "response"
LOGPROBS = "message.output_text.logprobs"
ENCRYPTED_REASONING = "reasoning.encrypted_content"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_EFFORTS = {name: name for name in ("none", "minimal", "low", "medium", "high")} | {"xhigh": "high", "max": "high"}
_UNSUPPORTED = "'{}' is not supported by this gateway configuration."
# Values of `include` that ask for a member of the items of a kind of hosted tools -> the kind.
_INCLUDED = {kind.item.include: kind.name for kind in HOSTED.values() if kind.item.on_request}
# Variables of the chat template.
_VARIABLES = "chat_template_kwargs"
# Fields that no client has asked for: a limit, a format's strictness, and what keeps a model from thinking.
_OWN_LIMITS = {"max_completion_tokens": AddedField("max_tokens"), "max_tokens": AddedField("max_completion_tokens")}
_OWN_SWITCH = AddedField(switch=True)
# The parameters whose values may be refused.
_CHECKED = frozenset({"background_options", "moderation", "multi_agent", "prompt_cache_options"})


class Parameter(NamedTuple):
    """The outcome of a parameter. Of one of `IGNORED` or `REASONING`, `matters`: ignoring it could change the answer, so strict
    mode refuses it; `neutral`: values that request nothing and are not reported."""

    name: str
    outcome: Outcome
    note: str
    matters: bool = False
    neutral: tuple[Any, ...] = ()


# Sent to the backend under the same name.
COPIED = (
    Parameter("temperature", "preserved", "sent unchanged"),
    Parameter("top_p", "preserved", "sent unchanged"),
    Parameter("presence_penalty", "preserved", "sent unchanged"),
    Parameter("frequency_penalty", "preserved", "sent unchanged"),
    Parameter("user", "preserved", "sent unchanged, and echoed"),
)

# What becomes of `moderation` where there is a guard model.
JUDGED = "the guard model of the settings judges, whatever `model` the request names"

# Not sent, unless `Policy.forward` names them.
IGNORED = (
    Parameter("context_management", "ignored", "needs a `compact_threshold` and the `type` `compaction`", matters=True),
    Parameter("moderation", "ignored", "without a guard model the response has an `error` instead of scores", matters=True),
    Parameter("truncation", "ignored", "input is never dropped", neutral=("disabled",)),
    Parameter("service_tier", "ignored", "a hint; there is only one tier", neutral=("auto", "default")),
    Parameter("prompt_cache_key", "ignored", "echoed; not sent to the backend"),
    Parameter("prompt_cache_retention", "ignored", "the backend decides what it caches"),
    Parameter(
        "prompt_cache_options", "ignored", "not echoed; the backend decides what it caches (`mode`, `ttl`)", neutral=({},)
    ),
    Parameter("safety_identifier", "ignored", "echoed; not sent to the backend"),
    Parameter("client_metadata", "ignored", "the client's notes"),
    Parameter("access_programs", "ignored", "specific to OpenAI (`cyber`)"),
    Parameter("image", "ignored", "`context_compression` has no effect", neutral=({}, {"context_compression": "disabled"})),
    Parameter("stream_options", "ignored", "`include_obfuscation` has no effect", neutral=({}, {"include_obfuscation": False})),
)
_IGNORED = frozenset(parameter.name for parameter in IGNORED)

# Refused with a 400 unless responses are stored (see `refuse_unsupported`).
REJECTED = (
    Parameter("background", "rejected", "needs stored responses"),
    Parameter("previous_response_id", "rejected", "needs stored responses"),
    Parameter("conversation", "rejected", "needs stored conversations"),
    Parameter("prompt", "rejected", "there are no stored prompts (`id`, `version`, `variables`)"),
)

# Refused because a client relies on their effect (see `refuse_unsupported`), and what of them is not.
REFUSED = (
    Parameter("moderation.policy", "rejected", "the `mode` `block` of `input` or `output` without a guard model; unknown ones"),
    Parameter("multi_agent", "rejected", "if it is `enabled`; `max_concurrent_subagents` alone has no effect"),
)

# Fields of those that the gateway honours, forwarded or not.
HONOURED = {"prompt_cache_options": ("prewarm", "comparison_response_id")}

# Handled by the store, if there is one.
STATEFUL = ("background", "previous_response_id", "conversation")

# Fields of `reasoning` that chat servers do not support.
REASONING = (
    Parameter(
        "reasoning.context",
        "ignored",
        "all reasoning is sent, and the chat template decides how much the model sees",
        matters=True,
        neutral=("auto", "all_turns"),
    ),
    Parameter("reasoning.mode", "ignored", "the model has only one mode", matters=True, neutral=("standard",)),
)

# Handled individually.
SPECIAL = (
    Parameter("model", "preserved", "sent unchanged"),
    Parameter("input", "preserved", "becomes the messages; see the items"),
    Parameter("instructions", "preserved", "leads the system message"),
    Parameter("tools", "preserved", "see the tools"),
    Parameter("tool_choice", "preserved", "sent, and enforced by the gateway; dropped if no tools are left"),
    Parameter("tool_choice", "adapted", "offered alone, or not forced, if the backend refuses to force a call"),
    Parameter("tool_choice", "ignored", "if no such tool is left; a forced call that the backend did not make"),
    Parameter("parallel_tool_calls", "preserved", "sent unless refused, and enforced by the gateway; dropped without tools"),
    Parameter("max_tool_calls", "adapted", "enforced by the gateway: further calls are not passed on"),
    Parameter("max_output_tokens", "preserved", "sent under the name that the backend supports"),
    Parameter("text.format", "preserved", "its `type` is `text`, `json_object` or `json_schema`; sent as response_format"),
    Parameter("text.format", "adapted", TOLD.reason),
    Parameter("text.verbosity", "preserved", "sent as verbosity, if the settings forward it"),
    Parameter("text.verbosity", "ignored", "otherwise: few chat servers support it"),
    Parameter("reasoning.effort", "preserved", "sent as reasoning_effort: none, minimal, low, medium, high"),
    Parameter("reasoning.effort", "adapted", "xhigh and max are sent as high; none also turns off thinking in the template"),
    Parameter("reasoning.effort", "ignored", "other values"),
    Parameter("reasoning.summary", "adapted", "the reasoning itself is repeated as its summary; likewise `generate_summary`"),
    *REASONING,
    Parameter("moderation", "adapted", JUDGED),
    Parameter("top_logprobs", "preserved", "sent, if log probabilities are included"),
    Parameter("top_logprobs", "ignored", "if include does not ask for log probabilities"),
    Parameter(
        "include", "preserved", "message.output_text.logprobs, reasoning.encrypted_content, token_ids; results of hosted tools"
    ),
    Parameter("include", "ignored", "other values of the API (the rest is refused); logprobs and ids that do not come"),
    Parameter("stream", "preserved", "the backend is always asked to stream"),
    Parameter("metadata", "preserved", "echoed"),
    Parameter("store", "preserved", "if the gateway stores responses"),
    Parameter("store", "ignored", "if it does not"),
    Parameter(
        "background_options",
        "preserved",
        "a `completion_window` of `2h` or `8h` waits for idle backends, and `continuation_id` ranks its follow-ups higher "
        "(see [docs/state.md](state.md#completion-windows)); sent instead if the settings forward it",
    ),
    Parameter("background_options", "adapted", "begins at once if a client's own key for the backend is not kept"),
    Parameter("type", "preserved", "marks a WebSocket message"),
    Parameter("generate", "preserved", "if false, the backend only reads the prompt, and its one token is dropped"),
    Parameter("stream_id", "preserved", "the lane of a WebSocket message, and of the events of its response"),
    Parameter("unknown", "preserved", "if the settings forward it"),
    Parameter("unknown", "ignored", "otherwise"),
)

# Fields of a chat request that force its answer into a grammar.
_GRAMMARS = ("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar")

# Parameters of chat servers that the Responses API does not have: sent unchanged.
SAMPLING = (
    "seed", "stop", "stop_token_ids", "include_stop_str_in_output", "top_k", "min_p", "repetition_penalty", "length_penalty",
    "logit_bias", "bad_words", "min_tokens", "ignore_eos", "thinking_token_budget", "chat_template_kwargs",
    "mm_processor_kwargs", *_GRAMMARS, "priority", "cache_salt", "vllm_xargs",
)  # fmt: skip
_SAMPLING = frozenset(SAMPLING)

# Chat fields that the gateway sets itself: a client's parameter of that name is never forwarded.
RESERVED = frozenset({
    "messages", "stream_options", "n", "logprobs", "max_tokens", "max_completion_tokens", "response_format", "reasoning_effort",
    "functions", "function_call", "echo", "add_generation_prompt", "continue_final_message", "return_token_ids",
    "stream_interval",
})  # fmt: skip

_FORWARDED = "if the settings forward it"
_PRIORITY = Parameter("service_tier", "adapted", "sent as the priority configured for this tier, if there is one")
_CARRIED = {
    "context_management": f"a context that exceeds its compact_threshold is compacted; sent {_FORWARDED}",
    "prompt_cache_options": "`prewarm` does what `generate: false` does; `comparison_response_id` names a stored response, or "
    "one of the last hour whose request had these options, too: `prompt_cache_diagnostics` compares the prompts; "
    f"sent {_FORWARDED}",
}

_STORED = {"conversation": "if the gateway stores responses: the `id`, or an object with it"}

# The whole table.
PARAMETERS = (
    *SPECIAL,
    *COPIED,
    *IGNORED,
    _PRIORITY,
    *(Parameter(name, "preserved", _CARRIED.get(name, _FORWARDED)) for name, *_ in IGNORED if name not in RESERVED),
    *REJECTED,
    *REFUSED,
    *(Parameter(name, "preserved", _STORED.get(name, "if the gateway stores responses")) for name in STATEFUL),
    *(Parameter(name, "preserved", "sent unchanged") for name in SAMPLING),
)


def has_grammar(body: Mapping[str, Any]) -> bool:
    """Tell whether a chat request forces its answer into a grammar."""
    layout = body.get("response_format")
    kind = layout.get("type") if type(layout) is dict else None
    return kind not in (None, "text") or any(map(body.get, _GRAMMARS))


def refuse_unsupported(request: ResponsesRequest, policy: Policy) -> None:
    """Raise `ApiError` 400 for parameters that need a store, or that this gateway does not support at all: ignoring them would
    answer a different question. And for such values of others, and fields of them of the wrong type."""
    if request.prompt is not None:
        raise invalid_request(_UNSUPPORTED.format("prompt"), "prompt", "unsupported_parameter")
    if not policy.stores_responses:
        if request.previous_response_id is not None:
            message = f"{_UNSUPPORTED.format('previous_response_id')} Send the whole conversation as 'input'."
            raise invalid_request(message, "previous_response_id", "previous_response_not_found")
        if request.conversation is not None:
            raise invalid_request(_UNSUPPORTED.format("conversation"), "conversation", "unsupported_parameter")
        if request.background:
            raise invalid_request(_UNSUPPORTED.format("background"), "background", "unsupported_parameter")
    if not _CHECKED.isdisjoint(request.model_fields_set):
        _refuse_values(request, policy)


def with_updates(request: ResponsesRequest, entries: Iterable[Entry]) -> ResponsesRequest:
    """Return the request with the effort and the output format of its `configuration_update` items. An update stays in effect
    until the next one that names the same value, so it overrides the parameters of the request. Raises `ApiError` 400."""
    for entry in entries:
        if entry.kind == "configuration_update":
            request = _updated(request, entry)
    return request


def chat_parameters(request: ResponsesRequest, policy: Policy, report: LossReport, hosted: Container[str]) -> Object:
    """Return the fields of the chat request that are neither messages nor tools. `hosted` are the kinds of hosted tools that
    can be run. Raises `ApiError` 400."""
    fields = _extras(request, policy, report)
    explicit_fields = request.model_fields_set
    for parameter in COPIED:
        value = getattr(request, parameter.name) if parameter.name in explicit_fields else None
        if value is not None:
            fields[parameter.name] = value
            report.preserved("parameter", parameter.name)
    _limit(request, policy, report, fields)
    if request.reasoning is not None:
        _reasoning(request.reasoning, policy, report, fields)
    if request.text is not None:
        _text(request.text, policy, report, fields)
    if request.include or request.top_logprobs:
        _logprobs(request, policy, report, fields, hosted)
    has_priority = request.service_tier in policy.service_tier_priorities
    if has_priority:
        fields.setdefault("priority", policy.service_tier_priorities[request.service_tier or ""])
        report.adapted("parameter", "service_tier", "sent as a priority")
    if request.background_options is not None:
        _background_options(request, request.background_options, policy, report, fields)
    if not _IGNORED.isdisjoint(explicit_fields):
        _ignored(request, policy, report, fields, has_priority=has_priority)
    _gateway_parameters(request, explicit_fields, policy, report)
    if policy.template_variables:
        fields[_VARIABLES] = {**policy.template_variables, **_variables(fields)}
    return fields


def added_fields(body: Object, request: ResponsesRequest, policy: Policy) -> AddedFields:
    """Return the fields of the chat request for a request that are the gateway's own."""
    more = {**policy.own_fields}
    if request.max_output_tokens is None and policy.default_max_output_tokens is not None:
        more.update(_OWN_LIMITS)
    if _VARIABLES in body:
        variables = (request.model_extra or {}).get(_VARIABLES)
        own = policy.template_variables
        if not variables and not own:
            more[_VARIABLES] = _OWN_SWITCH
        elif isinstance(variables, dict | None) and "enable_thinking" not in {**own, **(variables or {})}:
            more[f"{_VARIABLES}.enable_thinking"] = _OWN_SWITCH
    effort = body.get("reasoning_effort")
    if effort in EFFORTS and not policy.strict and not policy.own_fields:
        more[f"reasoning_effort={effort}"] = AddedField(needed=True, word=True, switch=True)
    if policy.raw_tools:
        more["tool_choice"] = CALLS_IN_TEXT
    if "priority" in body and (request.model_extra or {}).get("priority") is None:
        more["priority"] = HINT
    return {**ALWAYS_ADDED, **more} if more else ALWAYS_ADDED


def _ignored(request: ResponsesRequest, policy: Policy, report: LossReport, fields: Object, *, has_priority: bool) -> None:
    """Report the parameters that are usually not sent, and send those that the policy forwards."""
    for parameter in IGNORED:
        value = getattr(request, parameter.name)
        if value is None or value in parameter.neutral or (parameter.name == "service_tier" and has_priority):
            continue
        if parameter.name in HONOURED and not value.keys() - HONOURED[parameter.name]:
            report.preserved("parameter", parameter.name)
        elif parameter.name in policy.forward and parameter.name not in RESERVED:
            fields[parameter.name] = value
            report.preserved("parameter", parameter.name)
        elif parameter.name == "context_management" and compact_threshold(request, policy) is not None:
            report.preserved("parameter", parameter.name)
        elif parameter.name == "moderation" and policy.moderates:
            report.adapted("parameter", parameter.name, JUDGED)
        else:
            report.ignored("parameter", parameter.name, parameter.note, parameter.name, matters=parameter.matters)


def _background_options(request: ResponsesRequest, options: Object, policy: Policy, report: LossReport, fields: Object) -> None:
    report.preserved("parameter", "background_options")
    if "background_options" in policy.forward:
        fields["background_options"] = options
        return
    window = long_window(request)
    if window is not None and window in policy.service_tier_priorities:
        fields.setdefault("priority", policy.service_tier_priorities[window])


def effort_in_effect(effort: str | None, policy: Policy) -> str | None:
    """Return the effort to echo: the requested one, unless it was ignored."""
    ignored = policy.reasoning_effort == "drop" or (policy.reasoning_effort == "map" and effort not in _EFFORTS)
    return None if ignored else effort


def compact_threshold(request: ResponsesRequest, policy: Policy) -> int | None:
    """Return the lowest `compact_threshold` of `context_management`, in tokens, or None if the gateway is not to compact.
    Raises `ApiError` 400."""
    if request.context_management is None or not policy.compacts_context or "context_management" in policy.forward:
        return None
    thresholds = []
    for index, entry in enumerate(request.context_management):
        path = f"context_management[{index}]"
        if not isinstance(entry, dict):
            raise wrong_type(path, "an object")
        if entry.get("type") != "compaction":
            message = f"Invalid value for '{path}.type': 'compaction' is expected, not {quote(entry.get('type'))}."
            raise invalid_request(message, f"{path}.type", "invalid_value")
        threshold = entry.get("compact_threshold")
        if threshold is None:
            continue
        if not isinstance(threshold, int) or isinstance(threshold, bool) or threshold < 1:
            message = f"Invalid value for '{path}.compact_threshold': a number of tokens is expected."
            raise invalid_request(message, f"{path}.compact_threshold", "invalid_value")
        thresholds.append(threshold)
    return min(thresholds, default=None)


def wants_summary(reasoning: ReasoningConfig) -> bool:
    """Tell whether a summary of the reasoning was requested."""
    return (reasoning.summary or reasoning.generate_summary) not in (None, "none")


def _updated(request: ResponsesRequest, entry: Entry) -> ResponsesRequest:
    changes: dict[str, ReasoningConfig | TextConfig] = {}
    reasoning = optional_object(entry.item, "reasoning", entry.path)
    if reasoning is not None and "effort" in reasoning:
        effort = optional_text(reasoning, "effort", f"{entry.path}.reasoning")
        changes["reasoning"] = (request.reasoning or ReasoningConfig()).model_copy(update={"effort": effort})
    text = optional_object(entry.item, "text", entry.path)
    if text is not None:
        path = f"{entry.path}.text"
        layout = required_object(text, "format", path)
        response_format(layout, f"{path}.format")
        changes["text"] = (request.text or TextConfig()).model_copy(update={"format": layout})
    return request.model_copy(update=changes) if changes else request


def _extras(request: ResponsesRequest, policy: Policy, report: LossReport) -> Object:
    """Return the parameters outside the Responses API that are sent, and report the others."""
    fields: Object = {}
    unknown: list[str] = []
    extra = request.model_extra or {}
    for name in extra:
        value = extra[name]
        if value is None:
            continue
        if name in _SAMPLING:
            fields[name] = value
            report.preserved("parameter", name)
        elif name not in RESERVED and ("*" in policy.forward or name in policy.forward):
            fields[name] = value
            report.preserved("parameter", "unknown")
        else:
            unknown.append(name[:64])
    for path, config in (("reasoning", request.reasoning), ("text", request.text)):
        if config is not None and config.model_extra:
            unknown += [f"{path}.{name[:64]}" for name, value in config.model_extra.items() if value is not None]
    if unknown:
        reason = f"not a parameter of the Responses API: {', '.join(unknown)[:200]}"
        report.ignored("parameter", "unknown", reason, unknown[0])
    return fields


def _reasoning(reasoning: ReasoningConfig, policy: Policy, report: LossReport, fields: Object) -> None:
    if reasoning.effort is not None:
        _effort(reasoning.effort, policy, report, fields)
    for parameter, value in zip(REASONING, (reasoning.context, reasoning.mode), strict=True):
        if value is not None and value not in parameter.neutral:
            report.ignored("parameter", parameter.name, parameter.note, parameter.name, matters=parameter.matters)


def _limit(request: ResponsesRequest, policy: Policy, report: LossReport, fields: Object) -> None:
    limit = request.max_output_tokens or policy.default_max_output_tokens
    if limit is not None:
        fields[policy.max_tokens_field] = limit
    if request.max_output_tokens is not None:
        report.preserved("parameter", "max_output_tokens")


def _effort(effort: str, policy: Policy, report: LossReport, fields: Object) -> None:
    if effort_in_effect(effort, policy) is None:
        report.ignored("parameter", "reasoning.effort", "the backend does not support it", "reasoning.effort")
        return
    sent = _EFFORTS[effort] if policy.reasoning_effort == "map" else effort
    fields["reasoning_effort"] = sent
    if sent != effort:
        report.adapted("parameter", "reasoning.effort", f"sent as {sent}")
    elif sent == "none" and policy.reasoning_effort == "map":
        variables = _variables(fields) if _VARIABLES in fields else {}
        fields[_VARIABLES] = {"enable_thinking": False, **variables}
        report.adapted("parameter", "reasoning.effort", "also sent as the template variable enable_thinking=false")
    else:
        report.preserved("parameter", "reasoning.effort")


def _variables(fields: Object) -> Object:
    """Return the variables of the chat template that the client has sent. Raise `ApiError` 400."""
    variables = fields.get(_VARIABLES, {})
    if not isinstance(variables, dict):
        raise wrong_type(_VARIABLES, "an object")
    return variables


def _text(text: TextConfig, policy: Policy, report: LossReport, fields: Object) -> None:
    if text.format is not None:
        report.preserved("parameter", "text.format")
        sent = response_format(text.format)
        if sent is not None:
            fields["response_format"] = sent
    if text.verbosity is None:
        return
    if "text.verbosity" in policy.forward:
        fields["verbosity"] = text.verbosity
        report.preserved("parameter", "text.verbosity")
    else:
        report.ignored("parameter", "text.verbosity", "chat servers do not support it", "text.verbosity")


def _logprobs(request: ResponsesRequest, policy: Policy, report: LossReport, fields: Object, hosted: Container[str]) -> None:
    for index, wanted in enumerate(request.include or ()):
        if wanted == LOGPROBS:
            fields["logprobs"] = True
            report.preserved("parameter", "include")
        elif (
            wanted == TOKEN_IDS
            or (wanted == ENCRYPTED_REASONING and policy.encrypts_reasoning)
            or _INCLUDED.get(wanted) in hosted
        ):
            report.preserved("parameter", "include")
        elif wanted not in INCLUDABLE:
            message = f"Invalid value: {quote(wanted)}. Supported values are: {', '.join(map(quote, INCLUDABLE))}."
            raise invalid_request(message, f"include[{index}]", "invalid_value")
        else:
            report.ignored("parameter", "include", "nothing to include", f"include[{index}]", matters=False)
    if not request.top_logprobs:
        return
    if "logprobs" in fields:
        fields["top_logprobs"] = request.top_logprobs
        report.preserved("parameter", "top_logprobs")
    else:
        report.ignored("parameter", "top_logprobs", "include does not ask for log probabilities", "top_logprobs", matters=False)


def _gateway_parameters(request: ResponsesRequest, fields: Container[str], policy: Policy, report: LossReport) -> None:
    """Report the parameters that the gateway itself implements."""
    if request.max_tool_calls is not None:
        report.adapted("parameter", "max_tool_calls", "enforced by the gateway")
    if request.reasoning is not None and wants_summary(request.reasoning):
        report.adapted("parameter", "reasoning.summary", "the reasoning itself is repeated as its summary")
    if request.metadata:
        report.preserved("parameter", "metadata")
    for name in STATEFUL:
        if name in fields and getattr(request, name):
            report.preserved("parameter", name)
    if policy.stores_responses and request.store is not None:
        report.preserved("parameter", "store")
    elif request.store:
        report.ignored("parameter", "store", "this gateway does not store responses", "store")


def response_format(layout: Object, path: str = PATH) -> Object | None:
    """Return the chat request's `response_format` for the format at `path`, or None for plain text. Raises `ApiError` 400."""
    kind = text(layout, "type", path)
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "json_object"}
    if kind == "json_schema":
        return {"type": "json_schema", "json_schema": _json_schema(layout, path)}
    message = f"Invalid value: {quote(kind)}. Supported values are: 'text', 'json_object', 'json_schema'."
    raise invalid_request(message, f"{path}.type", "invalid_value")


def _json_schema(layout: Object, path: str) -> Object:
    """Nest the fields, which are flat in Responses, and add the name that Chat requires."""
    schema: Object = {"name": format_name(layout, path)}
    description = optional_text(layout, "description", path)
    if description is not None:
        schema["description"] = description
    schema["schema"] = required_object(layout, "schema", path)
    strict = optional_flag(layout, "strict", path)
    if strict is not None:
        schema["strict"] = strict
    return schema


def format_name(layout: Object, path: str = PATH) -> str:
    """Return the name of a JSON schema format."""
    name = optional_text(layout, "name", path)
    if name is None:
        return DEFAULT_NAME
    if not _NAME.fullmatch(name):
        message = "The name of a format must consist of 1 to 64 letters, digits, underscores and dashes."
        raise invalid_request(message, f"{path}.name", "invalid_value")
    return name


def _refuse_values(request: ResponsesRequest, policy: Policy) -> None:
    """Raise `ApiError` 400 for a moderation that is to block without a guard model, and for several agents; and for fields of
    the wrong type in parameters that are read here."""
    if request.moderation is not None and "moderation" not in policy.forward:
        read_modes(request.moderation, may_block=policy.moderates)
    if request.multi_agent is not None and optional_flag(request.multi_agent, "enabled", "multi_agent"):
        message = "Several agents are not supported by this gateway: have the client run them."
        raise invalid_request(message, "multi_agent", "unsupported_value")
    if request.background_options is not None and "background_options" not in policy.forward:
        check_background_options(request, request.background_options)
    if request.prompt_cache_options is not None:
        optional_flag(request.prompt_cache_options, "prewarm", "prompt_cache_options")
        optional_text(request.prompt_cache_options, "comparison_response_id", "prompt_cache_options")
