"""The tokens of a model that begin and end its thoughts: by them thoughts are counted in the ids of an answer, and the last
tokens of a prompt tell whether the answer begins inside reasoning.

Many chat templates end with the marker that opens a thought. It is then not part of the answer, and the ids of the prompt's
tokens are the proof."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Literal

import msgspec

from responses_gateway.parsers.format import CallBlock, CallFormat
from responses_gateway.parsers.registry import format_of

# What nobody writes but as a marker: words may be single tokens too.
_MARKER = re.compile(r"[<\[].*[>\]]", re.DOTALL)
# How tokenizers write a space, a line break and a tab.
_BLANK = " \n\t\r▁ĠĊĉč"


class PromptEnd(msgspec.Struct, frozen=True):
    """The tokens of a model by which the end of a prompt is read: opening markers that are single tokens, with their ids, and
    ids of white space, which may follow them."""

    openings: Mapping[str, int]
    blank: frozenset[int] = frozenset()

    def opens(self, last_ids: Sequence[int], openings: Iterable[str]) -> bool | None:
        """Tell by the last ids of a prompt whether it ends behind one of the markers; None if none of them is a token."""
        known = {self.openings[marker] for marker in openings if marker in self.openings}
        last = next((token for token in reversed(last_ids) if token not in self.blank), None)
        return last in known if known and last is not None else None


def prompt_end_of(tokens: Iterable[tuple[int, str]], openings: Iterable[str]) -> PromptEnd:
    """Return the tokens that matter of some text: pairs of an id and how a tokenizer writes it."""
    wanted = frozenset(openings)
    ids: dict[str, int] = {}
    blank: set[int] = set()
    for token, text in tokens:
        if text in wanted:
            ids[text] = token
        elif text and not text.strip(_BLANK):
            blank.add(token)
    return PromptEnd(ids, frozenset(blank))


def ends_open(prompt: str, openings: Iterable[str]) -> bool:
    """Tell whether a prompt, or its tokens joined as a tokenizer writes them, ends behind one of the markers."""
    return prompt.rstrip(_BLANK).endswith(tuple(openings))


class ThoughtTokens(msgspec.Struct, frozen=True):
    """Ids of markers that are single tokens: those that open a thought, those that close it, and those that open a call, which
    ends a thought as well."""

    opens: frozenset[int]
    closes: frozenset[int]
    calls: frozenset[int] = frozenset()


def thought_markers() -> tuple[str, ...]:
    """Return the markers of all families that `thought_tokens` looks for."""
    return tuple(marker for group in _markers() for marker in group)


def thought_tokens(marker_ids: Mapping[str, int]) -> ThoughtTokens | None:
    """Return the tokens of a model, given the ids of those `thought_markers` that are single tokens. None if it has none that
    open and close a thought: then ids do not tell."""
    opens, closes, calls = (frozenset(marker_ids[marker] for marker in group if marker in marker_ids) for group in _markers())
    return ThoughtTokens(opens, closes, calls) if opens and closes else None


def call_openings() -> tuple[str, ...]:
    """Return the markers with which calls begin, of all families."""
    return _markers()[2]


@cache
def item_markers() -> Mapping[str, Literal["reasoning", "message", "call"]]:
    """Return the markers of all families that may be single tokens, and of what kind the item is that begins behind each."""
    form = format_of("auto", "auto")
    begun: dict[str, Literal["reasoning", "message", "call"]] = {}
    parts: list[CallFormat | CallBlock] = [*form.tools.calls, *form.tools.blocks]
    for part in (*parts, *(call for block in form.tools.blocks for call in block.calls)):
        openings = [opening for opening in part.opens if _MARKER.fullmatch(opening)]
        begun.update(dict.fromkeys(part.closes if openings else (), "message"))
        begun.update(dict.fromkeys(openings, "call"))
    begun.update(dict.fromkeys(form.reasoning.closes, "message"))
    begun.update(dict.fromkeys(form.reasoning.opens, "reasoning"))
    return begun


def _markers() -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    form = format_of("auto", "auto")
    return form.reasoning.opens, form.reasoning.closes, tuple(filter(_MARKER.fullmatch, form.tools.openings))
