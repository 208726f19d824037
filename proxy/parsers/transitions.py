"""The table of a format: what each marker does in free text."""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache

from proxy.parsers.format import Block, Call, Format, Reasoning, Tools


class State(Enum):
    """Where free text belongs."""

    TEXT = auto()
    REASONING = auto()


class Act(Enum):
    """What a marker does in free text."""

    THINK = auto()  # reasoning begins
    ANSWER = auto()  # reasoning ends
    CALL = auto()  # a call, or a block of calls, may begin
    CHANNEL = auto()  # the header of a message begins
    MESSAGE_END = auto()
    WRAP = auto()  # the answer's wrapping begins
    UNWRAP = auto()
    STRAY = auto()  # reasoning ends that had not begun
    LATE = auto()  # a call ends that is over already, or never began


def transitions(form: Format) -> dict[State, dict[str, Act]]:
    """What each marker does in each state."""
    reasoning, tools = form.reasoning or Reasoning(), form.tools or Tools()
    inner = tuple(call for block in tools.blocks for call in block.calls)
    parts: tuple[Call | Block, ...] = (*tools.calls, *tools.blocks)
    ends = {marker for part in (*parts, *inner) for marker in part.closes}
    opens = {marker for part in parts for marker in part.opens}
    text = {
        **dict.fromkeys(ends, Act.LATE),
        **({} if reasoning.at_start else dict.fromkeys(reasoning.closes, Act.STRAY)),
        **{opening: Act.WRAP for opening, _ in reasoning.wrappers},
        **{closing: Act.UNWRAP for _, closing in reasoning.wrappers},
        **dict.fromkeys(opens, Act.CALL),
        **dict.fromkeys(reasoning.opens, Act.THINK),
    }
    thinking = {
        **dict.fromkeys(reasoning.opens, Act.THINK),
        **dict.fromkeys(opens, Act.CALL),
        **dict.fromkeys(reasoning.closes, Act.ANSWER),
    }
    if form.channels is not None:
        for table in (text, thinking):
            table.update(dict.fromkeys(form.channels.ends, Act.MESSAGE_END))
            table.update(dict.fromkeys(form.channels.opens, Act.CHANNEL))
    return {State.TEXT: text, State.REASONING: thinking}


@lru_cache(maxsize=256)
def pattern(expression: str) -> re.Pattern[str]:
    """A compiled expression of a format."""
    return re.compile(expression, re.DOTALL)
