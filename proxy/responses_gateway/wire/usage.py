"""The counts of tokens that a chat server reports, wherever it reports them, and whatever it calls them.

OpenAI's `usage` counts first. Else there are `choices[].usage` (Moonshot), `x_groq.usage` and the like, and llama.cpp's
`timings`. A name tells what it counts by its words, since no list of names would ever be whole: `num_cached_tokens`,
`prompt_cache_hit_tokens`, `cacheReadInputTokens` and `cached_prompt_text_tokens` are tokens that were read from the cache."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeAlias

from responses_gateway.wire.chat import ChatUsage, CompletionTokensDetails, PromptTokensDetails, possible, whole_number
from responses_gateway.wire.deltas import Usage

# Tokens of a block of a server's prefix cache, if the server does not tell: the default of vLLM.
CACHE_BLOCK = 16
# Bytes of a chunk that is searched, and how many of its values are looked at.
_LONGEST = 64 * 1024
_VALUES = 300

# How many members of an object are looked at.
_MEMBERS = 64

# Names of counts, without `_` and `-` and in small letters.
_NAMES = {
    "prompt": re.compile(r"(?:total|num|n)?(?:prompt|input)(?:tokens?(?:count)?|evalcount)"),
    "completion": re.compile(
        r"(?:total|num|n)?(?:completion|output|candidates|generated|eval)(?:tokens?(?:count)?|(?<=eval)count)"
    ),
    "total": re.compile(r"totaltokens?(?:count)?"),
}
_DETAIL = re.compile(r".*(?:cach|reason|think|thought).*tokens?(?:count)?")
_CACHE_WRITE = re.compile(r"creat|writ")
# What a cache did not have; a limit.
_NO_DETAIL = re.compile(r"miss|(?:un|no|non|not)(?:cach|reason|think)|max|budget|limit")
# Anthropic's names of what its `input_tokens` do not have in them.
_APART = re.compile(r"cache(?:read|creation|write)input")

# Details that count something.
_HAS_DETAILS = re.compile(rb'"[\w-]*(?:cach|reason|think|thought)[\w-]*"\s{0,9}:\s{0,9}"?[1-9]', re.IGNORECASE)

# Input, output, cached, written to the cache, reasoning; None for what is not known.
_Counts: TypeAlias = tuple[int | None, int | None, int | None, int | None, int | None]


def counts_of(usage: ChatUsage) -> Usage | None:
    """Return the counts that can be true; None if input and output are not known."""
    read = possible(usage.prompt_tokens)
    written = possible(usage.completion_tokens)
    if read is None and written is None:
        return None
    total = possible(usage.total_tokens) or 0
    missing = total - (read or 0) - (written or 0)
    if read is None or written is None:
        read = missing if read is None and missing > 0 else read
        written = missing if written is None and missing > 0 else written
        missing = 0
    prompt = usage.prompt_tokens_details
    cached = None if prompt is None else possible(prompt.cached_tokens)
    cache_write = None if prompt is None else possible(prompt.created_cache_tokens)
    completion = usage.completion_tokens_details
    reasoning = None if completion is None else possible(completion.reasoning_tokens)
    if missing > 0 or usage.apart:
        read, written = _added_up(usage, missing, (read, written, cached, cache_write, reasoning))
    return Usage(read, written, cached, cache_write, reasoning)


def _added_up(usage: ChatUsage, missing: int, counts: _Counts) -> tuple[int | None, int | None]:
    """Add what is counted apart. Where the sum has more tokens than input and output, they are of the cache if that many are,
    else of thoughts: of those Gemini's API tells nothing else. Where there is no sum, the names of Anthropic's API say it."""
    read, written, cached, cache_write, reasoning = counts
    of_cache = (cached or 0) + (cache_write or 0)
    if read is None or written is None:
        return (read + of_cache if usage.apart and read is not None else read), written
    is_apart = usage.apart and (missing != 0 or of_cache > read)
    if of_cache and (is_apart or (missing != reasoning and missing in (of_cache, of_cache + (reasoning or 0)))):
        read += of_cache
        missing -= of_cache
    return read, written + max(missing, 0)


def merged(earlier: Usage, later: Usage) -> Usage:
    """Return counts that came behind others: a zero, or nothing, takes back no number."""
    return Usage(*(getattr(later, name) or getattr(earlier, name) for name in Usage.__struct_fields__))


def usage_in(payload: bytes, usage: ChatUsage | None) -> ChatUsage | None:
    """Return the counts of a chunk, whose `usage` was decoded: from wherever they are, under whatever names."""
    if usage is not None and usage.prompt_tokens and not _HAS_DETAILS.search(payload):
        return usage
    try:
        chunk = json.loads(payload[:_LONGEST])
    except (ValueError, RecursionError):
        return usage
    if not isinstance(chunk, dict):
        return usage
    reported = chunk.get("usage")
    for value in (reported if isinstance(reported, dict) else {}, *_objects(chunk)):
        counts = read_counts(value)
        if counts.prompt_tokens is not None or counts.completion_tokens is not None:
            counts.elsewhere = value is not reported
            return counts
    timings = next((value for value in _objects(chunk) if "predicted_n" in value), None)
    return usage if timings is None else _read_timings(timings)


def _read_timings(timings: dict[str, Any]) -> ChatUsage:
    cached = whole_number(timings.get("cache_n"))
    read = (whole_number(timings.get("prompt_n")) or 0) + (cached or 0)
    details = PromptTokensDetails(cached_tokens=cached)
    return ChatUsage(read, whole_number(timings.get("predicted_n")), None, details, elsewhere=True)


def read_counts(value: dict[str, Any]) -> ChatUsage:
    """Return the counts of an object, and of the objects in it that have details: of each kind the largest, since some are
    parts of others."""
    found: dict[str, int] = {}
    apart = False
    for name, count in _counts(value):
        kind = _kind(name)
        if kind:
            found[kind] = max(found.get(kind, 0), count)
        apart = apart or _APART.match(name) is not None
    return ChatUsage(
        found.get("prompt"),
        found.get("completion"),
        found.get("total"),
        PromptTokensDetails(found.get("cached"), found.get("cache_write")),
        CompletionTokensDetails(found.get("reasoning")),
        apart=apart and not any(name.startswith("prompt") for name in value),
    )


def _counts(value: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Iterate over the whole numbers of an object, and of those in it that have details, with their bare names."""
    for name, member in islice(value.items(), _MEMBERS):
        entries = member.items() if isinstance(member, dict) and "details" in name.lower() else ((name, member),)
        for inner, entry in islice(entries, _MEMBERS):
            count = possible(whole_number(entry))
            if count is not None:
                yield inner.replace("_", "").replace("-", "").lower(), count


def _kind(name: str) -> str:
    """Return what the count of a bare name counts; empty if that is nothing of these."""
    for kind, pattern in _NAMES.items():
        if pattern.fullmatch(name):
            return kind
    if _DETAIL.fullmatch(name) is None or _NO_DETAIL.search(name):
        return ""
    if "cach" not in name:
        return "reasoning"
    return "cache_write" if _CACHE_WRITE.search(name) else "cached"


def _objects(chunk: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Iterate over the objects within a chunk, the outer ones first."""
    values: list[Any] = [chunk]
    for value in values:
        if isinstance(value, dict):
            yield value
        inner = value.values() if isinstance(value, dict) else value
        room = _VALUES - len(values)
        values += [entry for entry in inner if isinstance(entry, dict | list)][:room] if room > 0 else []
