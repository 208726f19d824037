"""Which answers another backend can continue, and what it is asked. Plain data, no I/O.

What decides is the chat request. An engine begins the grammar of an answer anew where it continues one, so that a forced
answer would get a second object; pictures are not in the ids of a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from responses_gateway.request.parameters.table import has_grammar

# Why another backend cannot continue an answer.
Obstacle: TypeAlias = Literal["grammar", "forced_tool", "strict_tool", "media", "logprobs", "parameter", "no_ids"]
# Fields that mean the same to `/v1/completions`.
_COPIED = (
    "temperature", "top_p", "presence_penalty", "frequency_penalty", "user", "seed", "stop", "stop_token_ids",
    "include_stop_str_in_output", "top_k", "min_p", "repetition_penalty", "logit_bias", "bad_words", "ignore_eos", "priority",
    "cache_salt", "vllm_xargs",
)  # fmt: skip
# Fields that have done their work with the prompt, or that are set anew.
_DONE = (
    "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "stream", "stream_options",
    "return_token_ids", "max_tokens", "max_completion_tokens", "min_tokens", "reasoning_effort", "chat_template_kwargs",
    "skip_special_tokens", "spaces_between_special_tokens", "verbosity", "metadata", "store", "service_tier",
    "prompt_cache_key", "safety_identifier",
)  # fmt: skip
_KNOWN = frozenset((*_COPIED, *_DONE))


def why_not_continuable(body: Mapping[str, Any]) -> Obstacle | None:
    """Return why no other backend could continue the answer to a chat request; None if one could."""
    if has_grammar(body):
        return "grammar"
    if body.get("tool_choice") not in (None, "auto", "none"):
        return "forced_tool"
    if any(tool.get("function", {}).get("strict") for tool in body.get("tools") or ()):
        return "strict_tool"
    if body.get("logprobs"):
        return "logprobs"
    if any(_has_media(message.get("content")) for message in body["messages"]):
        return "media"
    if any(name not in _KNOWN and value is not None for name, value in body.items()):
        return "parameter"
    return None


def longest_stop(body: Mapping[str, Any]) -> int:
    """Return the length of the longest stop string; 0 without any."""
    stop = body.get("stop")
    texts = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    return max((len(text) for text in texts if isinstance(text, str)), default=0)


class CannotContinue(Exception):
    """The answer cannot be continued; the text is the reason."""


def completion_request(
    body: Mapping[str, Any], prompt: Sequence[int], generated: Sequence[int], context: int | None, *, raw: bool, model: str
) -> bytes:
    """Return the request that has a backend continue `generated`. `context`: how many tokens its context has, if it tells.
    `raw`: the first backend sent raw text. Raise `CannotContinue`."""
    request: dict[str, Any] = {name: body[name] for name in _COPIED if body.get(name) is not None}
    request["model"] = model
    request["prompt"] = [*prompt, *generated]
    request["max_tokens"] = _tokens_left(body, len(prompt), len(generated), context)
    request |= _rest(body, len(generated))
    if body.get("logprobs"):  # which nobody sees but who keeps them: a client's own would have been an obstacle
        request["logprobs"] = body.get("top_logprobs") or 0
    for name in ("skip_special_tokens", "spaces_between_special_tokens"):
        request[name] = bool(body.get(name, True)) if raw else False
    return msgspec.json.encode(request)


def chat_request(body: Mapping[str, Any], prompt: Sequence[int], generated: Sequence[int], *, model: str) -> bytes:
    """Return the chat request that does the same, where the server takes ids in the place of the messages."""
    request = {**body, **_rest(body, len(generated)), "model": model}
    for name in ("max_tokens", "max_completion_tokens"):
        if body.get(name) is not None:
            request[name] = _tokens_left(body, len(prompt), len(generated), None)
    request["kv_transfer_params"] = {"prompt_token_ids": [*prompt, *generated]}
    return msgspec.json.encode(request)


def _rest(body: Mapping[str, Any], generated: int) -> dict[str, Any]:
    rest: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
    if body.get("min_tokens"):
        rest["min_tokens"] = max(0, body["min_tokens"] - generated)
    return rest


def _tokens_left(body: Mapping[str, Any], prompt: int, generated: int, context: int | None) -> int:
    """Return how many tokens may still be generated: `/v1/completions` generates 16 by default."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    limits: list[int] = [] if limit is None else [limit - generated]
    if context is not None:
        limits.append(context - prompt - generated)
    if not limits:
        raise CannotContinue("context_unknown")
    if min(limits) < 1:
        raise CannotContinue("no_room")
    return min(limits)


def _has_media(content: Any) -> bool:
    return isinstance(content, list) and any(part.get("type") != "text" for part in content if isinstance(part, dict))
