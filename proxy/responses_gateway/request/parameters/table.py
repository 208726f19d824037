"""The parameters of a request, as data: what becomes of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from responses_gateway.request.loss_report import Outcome


class Parameter(NamedTuple):
    """The outcome of a parameter. `matters`: ignoring it could change the answer, so strict mode refuses it. `neutral`: values
    that request nothing and are not reported."""

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

# Refused with a 400 unless responses are stored (see `refuse_unavailable`).
REJECTED = (
    Parameter("background", "rejected", "needs stored responses", neutral=(False,)),
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
    Parameter("tool_choice", "ignored", "if no such tool is left; a forced call that the backend did not make", matters=True),
    Parameter("parallel_tool_calls", "preserved", "sent, and enforced by the gateway; dropped if no tools are left"),
    Parameter("max_tool_calls", "adapted", "enforced by the gateway: further calls are not passed on"),
    Parameter("max_output_tokens", "preserved", "sent under the name that the backend supports"),
    Parameter("text.format", "preserved", "its `type` is `text`, `json_object` or `json_schema`; sent as response_format"),
    Parameter("text.verbosity", "preserved", "sent as verbosity, if the settings forward it"),
    Parameter("text.verbosity", "ignored", "otherwise: few chat servers support it", matters=True),
    Parameter("reasoning.effort", "preserved", "sent as reasoning_effort: none, minimal, low, medium, high"),
    Parameter("reasoning.effort", "adapted", "xhigh and max are sent as high; none also turns off thinking in the template"),
    Parameter("reasoning.effort", "ignored", "other values", matters=True),
    Parameter("reasoning.summary", "adapted", "the reasoning itself is repeated as its summary; likewise `generate_summary`"),
    *REASONING,
    Parameter("moderation", "adapted", JUDGED),
    Parameter("top_logprobs", "preserved", "sent, if log probabilities are included"),
    Parameter("top_logprobs", "ignored", "if include does not ask for log probabilities"),
    Parameter(
        "include", "preserved", "message.output_text.logprobs, reasoning.encrypted_content, token_ids; results of hosted tools"
    ),
    Parameter("include", "ignored", "other values of the API (the rest is refused); log probabilities that do not come"),
    Parameter("stream", "preserved", "the backend is always asked to stream"),
    Parameter("metadata", "preserved", "echoed"),
    Parameter("store", "preserved", "if the gateway stores responses"),
    Parameter("store", "ignored", "if it does not", matters=True, neutral=(False,)),
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
    Parameter("unknown", "ignored", "otherwise", matters=True),
)

# Fields of a chat request that force its answer into a grammar.
_GRAMMARS = ("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar")

# Parameters of chat servers that the Responses API does not have: sent unchanged.
SAMPLING = (
    "seed", "stop", "stop_token_ids", "include_stop_str_in_output", "top_k", "min_p", "repetition_penalty", "length_penalty",
    "logit_bias", "bad_words", "min_tokens", "ignore_eos", "thinking_token_budget", "chat_template_kwargs",
    "mm_processor_kwargs", *_GRAMMARS, "priority", "cache_salt", "vllm_xargs",
)  # fmt: skip

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
    kind = layout.get("type") if isinstance(layout, dict) else None
    return kind not in (None, "text") or any(map(body.get, _GRAMMARS))
