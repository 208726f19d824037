"""What a turn came to, as plain values: the items that it has written, and what is known of their calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from responses_gateway.stream.lifecycle.machine import Lifecycle
from responses_gateway.stream.options import StreamOptions
from responses_gateway.stream.outcomes.outcome import TurnEnd

# Repairs of markup that began like a call, and of which no call came.
_UNREAD = frozenset({"cut_markup", "malformed_markup", "nameless_call_as_text", "arguments_of_no_call"})


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
    )


def tool_ran(lifecycle: Lifecycle, options: StreamOptions) -> bool:
    """Tell whether the model is in the middle of its work, because it has got the output of a tool."""
    judged = options.early_ends
    return (judged is not None and judged.tool_ran) or any(turn.hosted_calls for turn in lifecycle.turns)


def _text_of(items: Iterable[Mapping[str, Any]]) -> str:
    """Return the texts of items, each on lines of its own."""
    parts = [part for item in items for part in item.get("content") or ()]
    return "\n\n".join(str(part.get("text") or part.get("refusal") or "") for part in parts)
