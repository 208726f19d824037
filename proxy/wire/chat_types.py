"""Convert chat chunks whose fields have other types than OpenAI's.

`tool_calls` as one object (TGI), reasoning as an object or a list, null for an index, 12.0 for a number of tokens, log
probabilities of another shape: the meaning is clear, and no reason to fail a response."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_REASONING = ("reasoning", "reasoning_content", "thinking")
# Fields in which an object may have its text.
_TEXTS = ("text", "content", "summary", "thinking")


def straightened(chunk: Any) -> Any:
    """Convert the payload of a chunk, in place, to the types of `Chunk`; anything not understood is left unchanged."""
    if isinstance(chunk, list) and len(chunk) == 1:  # Gemini's errors
        chunk = chunk[0]
    if not isinstance(chunk, dict):
        return chunk
    for choice in _objects(chunk.get("choices")):
        if choice.get("index", 0) is None:
            del choice["index"]
        if "logprobs" in choice:
            choice["logprobs"] = _logprobs(choice["logprobs"])
        for delta in _objects([choice.get("delta"), choice.get("message")]):
            _straighten_delta(delta)
    usage = chunk.get("usage")
    if isinstance(usage, dict):
        for counts in (usage, *_objects([usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")])):
            whole = {name: int(n) for name, n in counts.items() if isinstance(n, float) and abs(n) < 2**53}
            counts.update(whole)
    return chunk


def text_of(value: Any) -> str:
    """Extract the text of a string, of an object that has one, or of a list of either; it may be empty."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(text for part in value if (text := text_of(part)))
    if isinstance(value, dict):
        return next((text for name in _TEXTS if (text := text_of(value.get(name)))), "")
    return ""


def _straighten_delta(delta: dict[str, Any]) -> None:
    for name in _REASONING:
        if isinstance(delta.get(name), dict | list):
            delta[name] = text_of(delta[name])
    if isinstance(delta.get("content"), dict):
        delta["content"] = [delta["content"]]
    calls = delta.get("tool_calls")
    if isinstance(calls, dict | list):
        delta["tool_calls"] = list(_objects([calls] if isinstance(calls, dict) else calls))


def _logprobs(value: Any) -> dict[str, Any] | None:
    """Return log probabilities in OpenAI's shape, and None for any other, which cannot be sent in a response."""
    tokens = value.get("content") if isinstance(value, dict) else None
    return {"content": tokens} if isinstance(tokens, list) and all(map(_is_logprob, tokens)) else None


def _is_logprob(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("token"), str):
        return False
    tops = entry.get("top_logprobs") or []
    lists = isinstance(tops, list) and isinstance(entry.get("bytes") or [], list)
    return lists and isinstance(entry.get("logprob"), int | float) and all(map(_is_logprob, tops))


def _objects(values: Any) -> Iterator[dict[str, Any]]:
    """Iterate over the objects in a list."""
    return (value for value in (values if isinstance(values, list) else ()) if isinstance(value, dict))
