"""Which answers of a request with tools end early, so that the model may be asked to go on."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from responses_gateway.stream.outcomes.outcome import EARLY, TurnOutcome

Continued: TypeAlias = Literal["off", "certain", "all"]


class EarlyEnds(msgspec.Struct, frozen=True):
    """How the answers to one request are judged at their ends.

    `continued`: from which of them the model is to go on. `tool_ran`: the request ends with the output of a tool, so that the
    model is in the middle of its work."""

    continued: Continued = "off"
    tool_ran: bool = False


def is_certain(outcome: TurnOutcome, *, tool_ran: bool) -> bool:
    """Tell whether an answer with this outcome was no end that the model meant. A first thought, before any tool ran, may be
    all that it had to say."""
    return outcome in EARLY and outcome != "announced" and (tool_ran or outcome != "reasoning_only")
