"""What an answer of a model that has tools came to: calls, a final answer, or an end in the middle of its work.

`announced` is a guess. All other kinds are certain as to what happened; whether the model meant to go on is certain as
`EarlyEnds` says."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeAlias, get_args

import msgspec

from responses_gateway.parsers import marked_call
from responses_gateway.stream.outcomes.signs import announces
from responses_gateway.wire.deltas import FinishReason

TurnOutcome: TypeAlias = Literal[
    "call",  # the model has made calls
    "final",  # it has answered
    "announced",  # it has said what it would do next, and has not done it: a guess
    "reasoning_only",  # it has only thought
    "empty",  # it has said nothing at all
    "finish_without_call",  # its server says that it ended with calls, and none came
    "malformed_call",  # a call is cut, or nobody could read it
    "call_in_thought",  # its thought ends with a call, which is none there
    "length",  # it was cut at a limit
]
TURN_OUTCOMES: tuple[TurnOutcome, ...] = get_args(TurnOutcome)
# The ends of a model that had more to do. After a call, or at a limit, it is somebody else's turn.
EARLY: frozenset[TurnOutcome] = frozenset(
    {"announced", "reasoning_only", "empty", "finish_without_call", "malformed_call", "call_in_thought"}
)


class TurnEnd(msgspec.Struct, frozen=True):
    """How an answer ended, and what it consists of.

    `says_call`: its server says that it ended with calls. `calls` is the number of those that are whole, `broken_calls` that
    of others; `unread`: markup came that began like a call. `text` and `thought` are all that it says. `tools` are the chat
    names of those offered; `tool_ran`: it follows on a tool's output. `stopped`: a string ended it that the client named."""

    reason: FinishReason | None
    says_call: bool = False
    calls: int = 0
    broken_calls: int = 0
    unread: bool = False
    text: str = ""
    thought: str = ""
    tools: Collection[str] = ()
    tool_ran: bool = False
    stopped: bool = False


def outcome_of(end: TurnEnd) -> TurnOutcome | None:
    """Return what an answer came to; None for one that was filtered or broke off, of which nobody can tell."""
    if end.reason == "length":
        return "length"
    if end.reason != "stop":
        return None
    if end.calls:
        return "call"
    if end.stopped:
        return "final"
    if end.broken_calls or end.unread:
        return "malformed_call"
    if end.says_call:
        return "finish_without_call"
    if end.text.strip():
        return _outcome_of_text(end)
    if end.thought.strip():
        return "call_in_thought" if marked_call(end.thought, end.tools) == "whole" else "reasoning_only"
    return "empty"


def _outcome_of_text(end: TurnEnd) -> TurnOutcome:
    if marked_call(end.text, end.tools) != "none":
        return "malformed_call"
    return "announced" if end.tool_ran and announces(end.text) else "final"
