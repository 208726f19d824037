"""The parameters of a request: one table that says what becomes of each, and the code that does it."""

from __future__ import annotations

from typing import Any, NamedTuple

from proxy.request.fields import Object, wrong_type
from proxy.request.loss_report import Ledger, Outcome
from proxy.request.parameters.context_management import compact_threshold
from proxy.request.parameters.text_format import response_format
from proxy.request.policy import Policy
from proxy.wire.requests import ResponsesRequest


class Parameter(NamedTuple):
    """What becomes of a parameter. `neutral`: values that ask for nothing, and are not put on record.

    `matters`: ignoring it could change the answer, so strict mode refuses it.
    """

    name: str
    outcome: Outcome
    note: str
    matters: bool = False
    neutral: tuple[Any, ...] = ()


#: Sent to the backend under the same name.
COPIED = (
    Parameter("temperature", "preserved", "sent as it is"),
    Parameter("top_p", "preserved", "sent as it is"),
    Parameter("presence_penalty", "preserved", "sent as it is"),
    Parameter("frequency_penalty", "preserved", "sent as it is"),
    Parameter("user", "preserved", "sent as it is, and echoed"),
)

#: Not sent, unless `Policy.forward` names them.
IGNORED = (
    Parameter("context_management", "ignored", "without a compact_threshold nothing is compacted", matters=True),
    Parameter("moderation", "ignored", "the gateway does not moderate", matters=True),
    Parameter("truncation", "ignored", "input is never dropped", neutral=("disabled",)),
    Parameter("service_tier", "ignored", "a hint; there is one tier", neutral=("auto", "default")),
    Parameter("prompt_cache_key", "ignored", "echoed; not sent to the backend"),
    Parameter("prompt_cache_retention", "ignored", "the backend decides what it caches"),
    Parameter("prompt_cache_options", "ignored", "the backend decides what it caches"),
    Parameter("safety_identifier", "ignored", "echoed; not sent to the backend"),
    Parameter("client_metadata", "ignored", "the client's own notes"),
    Parameter("access_programs", "ignored", "they are OpenAI's"),
    Parameter("image", "ignored", "images are sent as they are", neutral=({}, {"context_compression": "disabled"})),
    Parameter("stream_options", "ignored", "the stream is not obfuscated", neutral=({}, {"include_obfuscation": False})),
)

#: Refused with a 400 where nothing is stored (see `proxy/request/parameters/unavailable.py`).
REJECTED = (
    Parameter("background", "rejected", "needs stored responses", neutral=(False,)),
    Parameter("previous_response_id", "rejected", "needs stored responses"),
    Parameter("conversation", "rejected", "needs stored conversations"),
    Parameter("prompt", "rejected", "there are no stored prompts"),
)

#: Carried by the store, where there is one.
STATEFUL = ("background", "previous_response_id", "conversation")

#: Parts of `reasoning` that chat servers do not know.
REASONING = (
    Parameter(
        "reasoning.context",
        "ignored",
        "all reasoning that the input holds is sent; the chat template decides what the model sees of it",
        matters=True,
        neutral=("auto", "all_turns"),
    ),
    Parameter("reasoning.mode", "ignored", "the model has one mode", matters=True, neutral=("standard",)),
)

#: Carried by code of their own.
SPECIAL = (
    Parameter("model", "preserved", "sent as it is"),
    Parameter("input", "preserved", "becomes the messages; see the items"),
    Parameter("instructions", "preserved", "leads the system message"),
    Parameter("tools", "preserved", "see the tools"),
    Parameter("tool_choice", "preserved", "sent, and enforced by the gateway; dropped where no tools are left"),
    Parameter("tool_choice", "ignored", "where it asks for a hosted tool, or for any tool and there is none", matters=True),
    Parameter("parallel_tool_calls", "preserved", "sent, and enforced by the gateway; dropped where no tools are left"),
    Parameter("max_tool_calls", "adapted", "enforced by the gateway: calls beyond it are not passed on"),
    Parameter("max_output_tokens", "preserved", "sent under the name that the backend knows"),
    Parameter("text.format", "preserved", "sent as response_format"),
    Parameter("text.verbosity", "preserved", "sent as verbosity, if the gateway is told to forward it"),
    Parameter("text.verbosity", "ignored", "otherwise: few chat servers know it", matters=True),
    Parameter("reasoning.effort", "preserved", "sent as reasoning_effort: none, minimal, low, medium, high"),
    Parameter("reasoning.effort", "adapted", "xhigh and max are sent as high; none also turns off thinking in the template"),
    Parameter("reasoning.effort", "ignored", "other words", matters=True),
    Parameter("reasoning.summary", "adapted", "the reasoning itself is repeated as its summary"),
    *REASONING,
    Parameter("top_logprobs", "preserved", "sent, if log probabilities are included"),
    Parameter("top_logprobs", "ignored", "where include does not ask for log probabilities"),
    Parameter("include", "preserved", "message.output_text.logprobs; reasoning.encrypted_content, where the gateway seals"),
    Parameter("include", "ignored", "anything else"),
    Parameter("stream", "preserved", "the backend is always asked to stream"),
    Parameter("metadata", "preserved", "echoed"),
    Parameter("store", "preserved", "if the gateway stores responses"),
    Parameter("store", "ignored", "if it does not", matters=True, neutral=(False,)),
    Parameter("type", "preserved", "marks a WebSocket message"),
    Parameter("generate", "preserved", "part of a WebSocket message"),
    Parameter("stream_id", "preserved", "marks a WebSocket message, and the events of its response"),
    Parameter("unknown", "preserved", "any other parameter, if the gateway is told to forward it"),
    Parameter("unknown", "ignored", "any other parameter", matters=True),
)

#: Parameters that the Responses API does not have, but users of chat servers send: sent as they are.
SAMPLING = (
    "seed",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "top_k",
    "min_p",
    "repetition_penalty",
    "length_penalty",
    "logit_bias",
    "bad_words",
    "min_tokens",
    "ignore_eos",
    "thinking_token_budget",
    "chat_template_kwargs",
    "mm_processor_kwargs",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "priority",
    "cache_salt",
    "vllm_xargs",
)
_SAMPLING = frozenset(SAMPLING)

#: Chat fields that are the gateway's own: a client's parameter of that name is never forwarded.
RESERVED = frozenset(
    {
        "messages",
        "stream_options",
        "n",
        "logprobs",
        "max_tokens",
        "max_completion_tokens",
        "response_format",
        "reasoning_effort",
        "functions",
        "function_call",
        "echo",
        "add_generation_prompt",
        "continue_final_message",
        "return_token_ids",
        "stream_interval",
    }
)

_FORWARDED = "if the gateway is told to forward it"
_CARRIED = {"context_management": f"the gateway compacts what is longer than its compact_threshold; sent {_FORWARDED}"}

#: The whole table.
PARAMETERS = (
    *SPECIAL,
    *COPIED,
    *IGNORED,
    *(Parameter(name, "preserved", _CARRIED.get(name, _FORWARDED)) for name, *_ in IGNORED if name not in RESERVED),
    *REJECTED,
    *(Parameter(name, "preserved", "if the gateway stores responses") for name in STATEFUL),
    *(Parameter(name, "preserved", "sent as it is") for name in SAMPLING),
)

LOGPROBS = "message.output_text.logprobs"
SEALED_REASONING = "reasoning.encrypted_content"
_EFFORTS = {
    "none": "none",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}


def chat_parameters(request: ResponsesRequest, policy: Policy, ledger: Ledger) -> Object:
    """The fields of the chat request that are neither messages nor tools. Raises `ApiError` 400."""
    fields = _extras(request, policy, ledger)
    for parameter in COPIED:
        value = getattr(request, parameter.name)
        if value is not None:
            fields[parameter.name] = value
            ledger.preserved("parameter", parameter.name)
    if request.max_output_tokens is not None:
        fields[policy.max_tokens_field] = request.max_output_tokens
        ledger.preserved("parameter", "max_output_tokens")
    _effort(request, policy, ledger, fields)
    _reasoning(request, ledger)
    _text(request, policy, ledger, fields)
    _logprobs(request, policy, ledger, fields)
    for parameter in IGNORED:
        value = getattr(request, parameter.name)
        if value is None or value in parameter.neutral:
            continue
        if parameter.name in policy.forward and parameter.name not in RESERVED:
            fields[parameter.name] = value
            ledger.preserved("parameter", parameter.name)
        elif parameter.name == "context_management" and threshold_in_use(request, policy) is not None:
            ledger.preserved("parameter", parameter.name)
        else:
            ledger.ignored("parameter", parameter.name, parameter.note, parameter.name, matters=parameter.matters)
    _gateway_parameters(request, policy, ledger)
    return fields


def effort_in_use(request: ResponsesRequest, policy: Policy) -> str | None:
    """The effort to echo: what was asked for, unless it was ignored."""
    effort = request.reasoning.effort if request.reasoning else None
    ignored = policy.reasoning_effort == "drop" or (policy.reasoning_effort == "map" and effort not in _EFFORTS)
    return None if ignored else effort


def threshold_in_use(request: ResponsesRequest, policy: Policy) -> int | None:
    """From how many tokens on the gateway is to compact by itself; None if it is not. Raises `ApiError` 400."""
    if not policy.compacts_context or "context_management" in policy.forward:
        return None
    return compact_threshold(request)


def wants_summary(request: ResponsesRequest) -> bool:
    """Whether a summary of the reasoning was asked for."""
    reasoning = request.reasoning
    wanted = (reasoning.summary or reasoning.generate_summary) if reasoning else None
    return wanted not in (None, "none")


def wants_logprobs(request: ResponsesRequest) -> bool:
    """Whether log probabilities of the answer's text were asked for."""
    return LOGPROBS in (request.include or ())


def _extras(request: ResponsesRequest, policy: Policy, ledger: Ledger) -> Object:
    """Parameters outside the Responses API."""
    fields: Object = {}
    unknown: list[str] = []
    for name, value in (request.model_extra or {}).items():
        if value is None:
            continue
        if name in _SAMPLING:
            fields[name] = value
            ledger.preserved("parameter", name)
        elif name not in RESERVED and (policy.forward_unknown or name in policy.forward):
            fields[name] = value
            ledger.preserved("parameter", "unknown")
        else:
            unknown.append(name[:64])
    for path, config in (("reasoning", request.reasoning), ("text", request.text)):
        given = (config.model_extra or {}) if config is not None else {}
        unknown += [f"{path}.{name[:64]}" for name, value in given.items() if value is not None]
    if unknown:
        reason = f"no parameter of the Responses API: {', '.join(unknown)[:200]}"
        ledger.ignored("parameter", "unknown", reason, unknown[0])
    return fields


def _effort(request: ResponsesRequest, policy: Policy, ledger: Ledger, fields: Object) -> None:
    effort = request.reasoning.effort if request.reasoning else None
    if effort is None:
        return
    if effort_in_use(request, policy) is None:
        ledger.ignored("parameter", "reasoning.effort", "the backend does not take it", "reasoning.effort")
        return
    sent = _EFFORTS[effort] if policy.reasoning_effort == "map" else effort
    fields["reasoning_effort"] = sent
    if sent != effort:
        ledger.adapted("parameter", "reasoning.effort", f"sent as {sent}")
    elif sent == "none" and policy.reasoning_effort == "map":
        _turn_off_thinking(fields)
        ledger.adapted("parameter", "reasoning.effort", "also sent as the template variable enable_thinking=false")
    else:
        ledger.preserved("parameter", "reasoning.effort")


def _reasoning(request: ResponsesRequest, ledger: Ledger) -> None:
    for parameter in REASONING:
        value = getattr(request.reasoning, parameter.name.removeprefix("reasoning."), None)
        if value is not None and value not in parameter.neutral:
            ledger.ignored("parameter", parameter.name, parameter.note, parameter.name, matters=parameter.matters)


def _turn_off_thinking(fields: Object) -> None:
    variables = fields.get("chat_template_kwargs", {})
    if not isinstance(variables, dict):
        raise wrong_type("chat_template_kwargs", "an object")
    fields["chat_template_kwargs"] = {"enable_thinking": False, **variables}


def _text(request: ResponsesRequest, policy: Policy, ledger: Ledger, fields: Object) -> None:
    text = request.text
    if text is None:
        return
    if text.format is not None:
        ledger.preserved("parameter", "text.format")
        sent = response_format(text.format)
        if sent is not None:
            fields["response_format"] = sent
    if text.verbosity is None:
        return
    if "text.verbosity" in policy.forward:
        fields["verbosity"] = text.verbosity
        ledger.preserved("parameter", "text.verbosity")
    else:
        ledger.ignored("parameter", "text.verbosity", "chat servers do not know it", "text.verbosity")


def wants_sealed_reasoning(request: ResponsesRequest) -> bool:
    """Whether the reasoning was asked for in sealed form."""
    return SEALED_REASONING in (request.include or ())


def _logprobs(request: ResponsesRequest, policy: Policy, ledger: Ledger, fields: Object) -> None:
    for index, wanted in enumerate(request.include or ()):
        if wanted == LOGPROBS:
            fields["logprobs"] = True
            ledger.preserved("parameter", "include")
        elif wanted == SEALED_REASONING and policy.seals_reasoning:
            ledger.preserved("parameter", "include")
        else:
            ledger.ignored("parameter", "include", "nothing to include", f"include[{index}]", matters=False)
    if not request.top_logprobs:
        return
    if "logprobs" in fields:
        fields["top_logprobs"] = request.top_logprobs
        ledger.preserved("parameter", "top_logprobs")
    else:
        ledger.ignored("parameter", "top_logprobs", "include does not ask for log probabilities", "top_logprobs", matters=False)


def _gateway_parameters(request: ResponsesRequest, policy: Policy, ledger: Ledger) -> None:
    """What the gateway does itself."""
    if request.max_tool_calls is not None:
        ledger.adapted("parameter", "max_tool_calls", "enforced by the gateway")
    if wants_summary(request):
        ledger.adapted("parameter", "reasoning.summary", "the reasoning itself is repeated as its summary")
    if request.metadata:
        ledger.preserved("parameter", "metadata")
    for name in STATEFUL:
        if getattr(request, name):
            ledger.preserved("parameter", name)
    if policy.stores_responses and request.store is not None:
        ledger.preserved("parameter", "store")
    elif request.store:
        ledger.ignored("parameter", "store", "this gateway does not store responses", "store")
