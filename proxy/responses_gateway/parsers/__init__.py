"""Turn raw model markup into deltas: reasoning tags, tool calls and channels of every model family.

For servers that run without parsers of their own. `parser` makes a `MarkupParser` for two names, which are those of vLLM's
`--reasoning-parser` and `--tool-call-parser`; `detect` finds the names for a model; `markers` lists the markers of a format,
so that a caller can look up which of them are single tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from responses_gateway.parsers.engine import MarkupParser
from responses_gateway.parsers.interface import REPAIRS, FirstMarker, Parser
from responses_gateway.parsers.marked_calls import MarkedCall, marked_call
from responses_gateway.parsers.registry import REASONING, TOOLS, base_name, detect, fitted, format_of
from responses_gateway.parsers.thought_tokens import (
    PromptEnd,
    ThoughtTokens,
    call_openings,
    item_markers,
    thought_markers,
    thought_tokens,
)

__all__ = [
    "REASONING", "REPAIRS", "TOOLS", "FirstMarker", "MarkedCall", "MarkupParser", "Parser", "PromptEnd", "ThoughtTokens",
    "base_name", "call_openings", "detect", "fitted", "item_markers", "marked_call", "markers", "parser", "reasoning_markers",
    "thought_markers", "thought_tokens",
]  # fmt: skip


def parser(
    reasoning: str | None,
    tools: str | None,
    *,
    schemas: Mapping[str, Mapping[str, Any]],
    thinking_open: bool | None = None,
    marker_ids: Mapping[str, int] | None = None,
    reopens: bool = True,
) -> MarkupParser:
    """Make a parser for one response.

    `reasoning`, `tools`: names of formats; None or "none" for no parser, "auto" for whatever markers come first. `schemas`: the
    tools of the request, by their name in the chat request, with the JSON schema of their parameters. `thinking_open`: whether
    the prompt ends inside an open reasoning block; None for the family's default. `marker_ids`: those of `markers(...)` that
    are single tokens of the model, with their ids. If `feed` is then given token ids, these markers count only where their
    token stands. `reopens`: reasoning may begin anew behind text.

    Raises `ValueError` for an unknown name."""
    form = format_of(reasoning, tools)
    if not reopens:
        form = replace(form, reasoning=replace(form.reasoning, at_start=True))
    return MarkupParser(form, schemas=schemas, thinking_open=thinking_open, marker_ids=marker_ids)


def markers(reasoning: str | None, tools: str | None) -> frozenset[str]:
    """Return the literal markers of a format. Raises `ValueError` for an unknown name."""
    return format_of(reasoning, tools).markers()


def reasoning_markers(reasoning: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the markers with which a format opens and closes reasoning. Raises `ValueError` for an unknown name."""
    form = format_of(reasoning, None).reasoning
    return form.opens, form.closes
