"""The counts of tokens that a chat server reports, wherever it reports them, and whatever it calls them.

OpenAI's `usage` counts first; what it does not tell of the cache and of thoughts may stand beside it. Else there are
`choices[].usage` (Moonshot), `x_groq.usage` and the like, and llama.cpp's `timings`. A name tells what it counts by its words,
since no list of names would ever be whole: `num_cached_tokens`, `prompt_cache_hit_tokens`, `cacheReadInputTokens` and
`cached_prompt_text_tokens` are tokens that were read from the cache."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from responses_gateway.wire.chat import ChatUsage, CompletionTokensDetails, PromptTokensDetails, possible, whole_number
from responses_gateway.wire.deltas import Usage

# Tokens of a block of a server's prefix cache, if the server does not tell: the default of vLLM.
CACHE_BLOCK = 16
# Bytes of a member of a chunk that is searched, and how many values are looked at.
_LONGEST = 64 * 1024
_VALUES = 300
_MEMBERS = 64  # how many members of an object are looked at

# Names of counts, without `_` and `-` and in small letters.
_NAMES = {
    "prompt": re.compile(r"(?:total|num|n)?(?:prompt|input)(?:tokens?(?:count)?|evalcount)"),
    "completion": re.compile(r"(?:total|num|n)?(?:completion|output|candidates|generated)tokens?(?:count)?|evalcount"),
    "total": re.compile(r"totaltokens?(?:count)?"),
}
_DETAIL = re.compile(r".*(?:cach|reason|think|thought).*tokens?(?:count)?|cachen")
_CACHE_WRITE = re.compile(r"creat|writ")
# What a cache did not have; a limit.
_NO_DETAIL = re.compile(r"miss|(?:un|no|non|not)(?:cach|reason|think)|max|budget|limit")
# Anthropic's names of what its `input_tokens` do not have in them.
_APART = re.compile(r"cache(?:read|creation|write)input")
# Details that count something, in small letters, without the beginning of their names: each quotation mark would be tried.
_HAS_DETAILS = re.compile(rb'(?:cach|reason|think|thought)[\w-]{0,32}"\s{0,9}:\s{0,9}"?[1-9]')

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def counts_of(usage: ChatUsage) -> Usage | None:
    """Return the counts that can be true; None if input and output are not known.

    What is counted apart is added. Where the sum has more tokens than input and output, they are of the cache if that many are,
    else of thoughts: Gemini's API tells nothing else of those. Where there is no sum, the names of Anthropic's API say it."""
    prompt = usage.prompt_tokens_details or PromptTokensDetails()
    completion = usage.completion_tokens_details or CompletionTokensDetails()
    details = (prompt.cached_tokens, prompt.created_cache_tokens, completion.reasoning_tokens)
    numbers = (usage.prompt_tokens, usage.completion_tokens, *details)
    counts = Usage(*[None if count is None else possible(count) for count in numbers])
    if counts.input is None and counts.output is None:
        return None
    missing = (possible(usage.total_tokens) or 0) - (counts.input or 0) - (counts.output or 0)
    of_cache = (counts.cached or 0) + (counts.cache_write or 0)
    if counts.input is None:
        counts.input = missing if missing > 0 else None
    elif counts.output is None and missing > 0:
        counts.output = missing
    else:
        apart = usage.apart and (missing != 0 or of_cache > counts.input)
        reasoning = counts.reasoning or 0
        if of_cache and (apart or (missing != reasoning and missing in (of_cache, of_cache + reasoning))):
            counts.input += of_cache
            missing -= of_cache
        counts.output = counts.output if missing <= 0 or counts.output is None else counts.output + missing
    return counts


def merged(earlier: Usage, later: Usage) -> Usage:
    """Return counts that came behind others: a zero, or nothing, takes back no number."""
    return Usage(*(getattr(later, name) or getattr(earlier, name) for name in Usage.__struct_fields__))


def usage_in(payload: bytes, usage: ChatUsage | None) -> ChatUsage | None:
    """Return the counts of a chunk, whose `usage` was decoded: from wherever they are, under whatever names."""
    if usage is not None and usage.prompt_tokens and not _HAS_DETAILS.search(payload.lower()):
        return usage
    try:
        members = _members.decode(payload).items()
        chunk = {name: json.loads(bytes(value)) for name, value in members if len(memoryview(value)) <= _LONGEST}
    except (msgspec.DecodeError, ValueError, RecursionError):
        return usage
    reported = chunk.get("usage")
    for value in (reported if isinstance(reported, dict) else {}, *_objects(chunk)):
        counts = read_counts(value)
        if counts.prompt_tokens is not None or counts.completion_tokens is not None:
            counts = read_counts(value, (other for other in chunk.values() if isinstance(other, dict) and other is not value))
            counts.elsewhere = value is not reported
            return counts
    timings = next((value for value in _objects(chunk) if "predicted_n" in value), None)
    if timings is None:
        return usage
    cached = whole_number(timings.get("cache_n"))
    read = (whole_number(timings.get("prompt_n")) or 0) + (cached or 0)
    return ChatUsage(read, whole_number(timings.get("predicted_n")), None, PromptTokensDetails(cached), elsewhere=True)


def read_counts(value: dict[str, Any], beside: Iterable[dict[str, Any]] = ()) -> ChatUsage:
    """Return the counts of an object, and of the objects in it that have details; what it does not tell of the cache and of
    thoughts, an object `beside` it may (`timings`, `perf_metrics`)."""
    counts = _largest(value)
    for other in map(_largest, beside):
        for kind, whole in (("cached", "prompt"), ("reasoning", "completion")):
            if not counts.get(kind) and 0 < other.get(kind, 0) <= counts.get(whole, 0):
                counts[kind] = other[kind]
    prompt = PromptTokensDetails(counts.get("cached"), counts.get("cache_write"))
    completion = CompletionTokensDetails(counts.get("reasoning"))
    apart = any(_APART.match(name) for name, _ in _counts(value)) and not any(name.startswith("prompt") for name in value)
    return ChatUsage(counts.get("prompt"), counts.get("completion"), counts.get("total"), prompt, completion, apart=apart)


def _largest(value: dict[str, Any]) -> dict[str, int]:
    """Return the counts of an object by what they count: of each kind the largest, since some are parts of others."""
    counts: dict[str, int] = {}
    for name, count in _counts(value):
        kind = _kind(name)
        counts[kind] = max(counts.get(kind, 0), count)
    return counts


def _counts(value: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Iterate over the whole numbers of an object, and of those in it that have details, with their bare names."""
    for name, member in islice(value.items(), _MEMBERS):
        has_counts = isinstance(member, dict) and "details" in name.lower() and "cost" not in name
        entries = member.items() if has_counts else ((name, member),)
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
