"""The counts of tokens that a chat server reports, wherever it reports them.

OpenAI's `usage` counts first; `token_counts` reads it, whatever the names. Else there are `choices[].usage` (Moonshot),
`x_groq.usage` and the like, and llama.cpp's `timings`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from responses_gateway.wire.chat import ChatUsage, read_usage, token_counts, whole_number
from responses_gateway.wire.deltas import Usage

# Tokens of a block of a server's prefix cache, if the server does not tell: the default of vLLM.
CACHE_BLOCK = 16
# Bytes of a chunk that is searched, and how many of its values are looked at.
_LONGEST = 64 * 1024
_VALUES = 300
# Names of other APIs, without `_` and in small letters (Gemini, Ollama, Vercel) -> the names of this one.
_OTHER_NAMES = {
    "prompttokens": "prompt_tokens", "prompttokencount": "prompt_tokens", "promptevalcount": "prompt_tokens",
    "completiontokens": "completion_tokens", "candidatestokencount": "completion_tokens", "evalcount": "completion_tokens",
    "inputtokens": "input_tokens", "outputtokens": "output_tokens", "totaltokens": "total_tokens",
    "totaltokencount": "total_tokens", "cachedcontenttokencount": "cached_tokens", "cachedinputtokens": "cached_tokens",
    "thoughtstokencount": "reasoning_tokens", "reasoningtokens": "reasoning_tokens",
}  # fmt: skip
_COUNTS = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")


def counts_of(usage: ChatUsage) -> Usage | None:
    """Return the counts that can be true; None if there are none."""
    counts = token_counts(usage)
    return None if counts is None else Usage(*counts)


def merged(earlier: Usage, later: Usage) -> Usage:
    """Return counts that came behind others: a zero, or nothing, takes back no number."""
    return Usage(*(getattr(later, name) or getattr(earlier, name) for name in Usage.__struct_fields__))


def usage_elsewhere(payload: bytes) -> ChatUsage | None:
    """Return the counts of a chunk whose `usage` has none under OpenAI's names, from wherever they are; None if there are
    none."""
    try:
        chunk = json.loads(payload[:_LONGEST])
    except (ValueError, RecursionError):
        return None
    timings = None
    for found in _objects(chunk):
        value = {_OTHER_NAMES.get(name.replace("_", "").lower(), name): count for name, count in found.items()}
        if any(whole_number(value.get(name)) is not None for name in _COUNTS):
            return _read(value, elsewhere=found is not chunk.get("usage"))
        if "predicted_n" in value:
            timings = timings or value
    if timings is None:
        return None
    read = (whole_number(timings.get("prompt_n")) or 0) + (whole_number(timings.get("cache_n")) or 0)
    counts = {"prompt_tokens": read, "completion_tokens": timings.get("predicted_n"), "cached_tokens": timings.get("cache_n")}
    return _read(counts, elsewhere=True)


def _read(value: dict[str, Any], *, elsewhere: bool) -> ChatUsage:
    usage = msgspec.convert(read_usage(value, needed=False), ChatUsage)
    usage.elsewhere = elsewhere
    return usage


def _objects(chunk: Any) -> Iterator[dict[str, Any]]:
    """Iterate over the objects within a chunk, the outer ones first."""
    values: list[Any] = [chunk] if isinstance(chunk, dict) else []
    for value in values:
        if isinstance(value, dict):
            yield value
        inner = value.values() if isinstance(value, dict) else value
        room = _VALUES - len(values)
        values += [entry for entry in inner if isinstance(entry, dict | list)][:room] if room > 0 else []
