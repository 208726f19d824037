"""How a turn of the model has ended, as plain values, and whether the model may go on from there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from responses_gateway.parsers import marked_call
from responses_gateway.stream.lifecycle.machine import Lifecycle
from responses_gateway.stream.options import StreamOptions
from responses_gateway.stream.outcomes.outcome import TurnEnd

# Repairs of markup that began like a call, and of which no call came.
_UNREAD = frozenset({"cut_markup", "malformed_markup", "nameless_call_as_text", "arguments_of_no_call"})
_TEXTS = frozenset({"reasoning", "message"})


def turn_end(lifecycle: Lifecycle, repairs: Mapping[str, int], options: StreamOptions) -> TurnEnd:
    """Return how the present turn has ended. `repairs` are those of its last answer."""
    turn = lifecycle.turn
    calls = turn.calls - turn.broken_calls
    text = ""
    thought = ""
    if not calls:  # else it does not matter
        items = [json.loads(item) for item in lifecycle.writer.done[turn.first_item :]]
        thought = _text_of(item for item in items if item["type"] == "reasoning")
        text = "" if turn.thought_repeated else _text_of(item for item in items if item["type"] == "message")
    return TurnEnd(
        turn.finish_reason,
        turn.says_call,
        calls,
        turn.broken_calls,
        not _UNREAD.isdisjoint(repairs),
        text,
        thought,
        options.tools.keys(),
        tool_ran(lifecycle, options),
        turn.stop_string is not None,
    )


def _text_of(items: Iterable[Mapping[str, Any]]) -> str:
    """Return the texts of items, each on lines of its own."""
    parts = [part for item in items for part in item.get("content") or ()]
    return "\n\n".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def tool_ran(lifecycle: Lifecycle, options: StreamOptions) -> bool:
    """Tell whether the model is in the middle of its work, because it has got the output of a tool."""
    judged = options.early_ends
    return (judged is not None and judged.tool_ran) or any(turn.hosted_calls for turn in lifecycle.turns)


def may_call_again(lifecycle: Lifecycle, options: StreamOptions) -> bool:
    """Tell whether the model could make a call if it went on, and none of this turn was written: its client has that."""
    turn = lifecycle.turn
    if options.allowed == frozenset() or lifecycle.out_of_calls or not turn.may_call:
        return False
    return all(json.loads(item)["type"] in _TEXTS for item in lifecycle.writer.done[turn.first_item :])


def is_no_answer(lifecycle: Lifecycle, options: StreamOptions) -> bool:
    """Tell whether the open thought, which is all that the model has said, cannot be an answer, because the model is in the
    middle of its work: then it goes on from there."""
    judged = options.early_ends
    if judged is None or judged.continued == "off" or lifecycle.item is None:
        return False
    return tool_ran(lifecycle, options) or marked_call(lifecycle.item.text, options.tools.keys()) == "whole"
