"""Calls in a text that nobody has parsed: in a thought, or in an answer whose server has missed them."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Literal, TypeAlias

from responses_gateway.parsers.engine import MarkupParser
from responses_gateway.parsers.format import Format, ReasoningFormat, ToolFormat
from responses_gateway.parsers.registry import format_of
from responses_gateway.wire.deltas import Text, ToolArguments, ToolCall
from responses_gateway.wire.json_text import read_object

# Characters at the end of a text that are read: a call that the model ended with stands there.
_LONGEST = 8_192

# How the markers begin that stand in no ordinary text.
_MARKER = ("<", "[TOOL", "]<]")
# What a text ends with: a whole call, one that broke off, or neither.
MarkedCall: TypeAlias = Literal["whole", "cut", "none"]


def marked_call(text: str, tools: Collection[str]) -> MarkedCall:
    """Tell whether a text ends with a call of one of these tools in the markup of any model family, but not in code."""
    tail = text[-_LONGEST:]
    form = _marked_calls()
    if not _is_in(tail, _MARKER) or not _is_in(tail, form.tools.openings):  # the first alone tells it of nearly every text
        return "none"
    parser = MarkupParser(form, schemas={tool: {} for tool in tools})
    name = ""
    arguments = ""
    for delta in [*parser.feed(tail), *parser.finish("stop")]:
        if type(delta) is ToolCall:
            name = delta.name
            arguments = ""
        elif type(delta) is ToolArguments:
            arguments += delta.text
        elif type(delta) is Text and delta.text.strip():
            name = ""
    if "cut_markup" in parser.repairs:
        return "cut"
    if name not in tools:
        return "none"
    return "cut" if read_object(arguments or "{}") is None else "whole"


def _is_in(text: str, markers: Collection[str]) -> bool:
    return any(marker in text for marker in markers)


@lru_cache(maxsize=1)
def _marked_calls() -> Format:
    """Return the calls of all families that have a marker which means nothing else: a block of code is none."""
    tools = format_of(None, "auto").tools
    calls = tuple(call for call in tools.calls if call.opens[0].startswith(_MARKER))
    blocks = tuple(block for block in tools.blocks if block.opens[0].startswith(_MARKER))
    return Format(ReasoningFormat(), ToolFormat(calls, blocks))
