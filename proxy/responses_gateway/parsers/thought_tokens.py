"""The tokens of a model that begin and end its thoughts, by which thoughts are counted in the ids of an answer."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from responses_gateway.parsers.registry import format_of

# What nobody writes but as a marker: words may be single tokens too.
_MARKER = re.compile(r"[<\[].*[>\]]", re.DOTALL)


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


def _markers() -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    form = format_of("auto", "auto")
    calls = [opening for call in form.tools.calls for opening in call.opens]
    calls += [opening for block in form.tools.blocks for opening in block.opens]
    return form.reasoning.opens, form.reasoning.closes, tuple(filter(_MARKER.fullmatch, calls))
