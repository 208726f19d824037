"""Tokens that the backend used, and of which nothing came: a parser of the server that does not fit the model leaves calls out.

Nothing is said where the difference may be markup, the end token or white space, and nothing of answers that this gateway left
something out of itself. What came is taken to have as many tokens as it can have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from responses_gateway.stream.tokens.counter import TokenCounter, markup_of

# Tokens of a call that are markup: its name, the syntax around its arguments.
_PER_CALL = 40
# Repairs that leave out what the model said.
_OMISSIONS = frozenset({"call_suppressed", "stray_arguments", "cut_call_omitted", "broken_text_omitted"})


def unseen_tokens(tokens: TokenCounter, output: Sequence[str], repairs: Mapping[str, int]) -> int:
    """Return how many of the tokens that a completed answer used never came, 0 if there is no sign of that. `output`: the JSON
    of its items; `repairs`: those of the lifecycle."""
    used = tokens.reported
    if used is None or not _OMISSIONS.isdisjoint(repairs):
        return 0
    markup = markup_of(len(output))
    items = [msgspec.json.decode(item.encode("utf-8", "replace")) for item in output]
    calls = [item for item in items if item["type"] not in ("message", "reasoning")]
    # What markup a call has depends on how the model writes it; the more arguments, the more there may be.
    markup += sum(_PER_CALL + len(_arguments(call)) // 2 for call in calls)
    thought = tokens.reported_reasoning
    seen = thought + sum(_most_tokens(text) for text in _texts(items, with_reasoning=not thought))
    if tokens.meter is not None:
        seen = max(seen, sum(count for kind, count in tokens.by_kind().items() if kind != "other"))
    return used - seen if used > seen + markup else 0


def said_more(used: int | None, thought: int | None, reasoning: str) -> bool:
    """Tell whether an answer used more tokens than its reasoning, which is all that was sent: something else was left out.
    `used` and `thought` are what the backend reports of the answer and of its reasoning."""
    if used is None:
        return False
    seen = thought or 0
    if not seen or not reasoning.isascii():  # vLLM does not count tokens that end inside a character
        seen = max(seen, _most_tokens(reasoning))
    return used > seen + markup_of(1)


def _texts(items: Iterable[dict[str, Any]], *, with_reasoning: bool) -> Iterable[str]:
    for item in items:
        if item["type"] == "message" or (item["type"] == "reasoning" and with_reasoning):
            for part in item.get("content") or ():
                yield part.get("text") or part.get("refusal") or ""
        elif item["type"] != "reasoning":
            yield _arguments(item)


def _arguments(call: dict[str, Any]) -> str:
    found = call.get("arguments", call.get("input", call.get("action")))
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()


def _most_tokens(text: str) -> int:
    """Return how many tokens a text has at most, as language models count: a letter is half a token at most, a byte of anything
    else one."""
    letters = sum(map(str.isalpha, text)) if text.isascii() else 0
    return letters // 2 + len(text.encode("utf-8", "replace")) - letters
