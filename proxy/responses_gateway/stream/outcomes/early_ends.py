"""Which answers of a request with tools end early, and from which of them the model is asked to go on, within bounds.

A model that is asked the same again may say the same again, for ever: two early ends in a row are the most, and an answer that
repeats the one before it is the last. So is one that asks something, since it is its reader's turn."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from responses_gateway.stream.outcomes.outcome import EARLY, TurnEnd, TurnOutcome
from responses_gateway.stream.outcomes.signs import asks

Continued: TypeAlias = Literal["off", "certain", "all"]
# Early ends from which the model goes on without a call between them, and in one turn of the user's.
MOST_IN_A_ROW = 2
MOST_IN_A_TURN = 6


class EarlyEnds(msgspec.Struct, frozen=True):
    """How the answers to one request are judged at their ends.

    `continued`: from which of them the model is to go on. `tool_ran`: the request ends with the output of a tool, so that the
    model is in the middle of its work."""

    continued: Continued = "off"
    tool_ran: bool = False

    def are_continued(self, outcome: TurnOutcome, *, tool_ran: bool) -> bool:
        """Tell whether the model is to go on from an answer with this outcome, as far as that alone tells."""
        if self.continued == "all" and outcome == "announced":
            return True
        return self.continued != "off" and is_certain(outcome, tool_ran=tool_ran)


class AsItWas(NamedTuple):
    """How a response ends if the answer that follows on an early end brings nothing: as incomplete for this reason, if any."""

    reason: str | None


class EarlyTurns:
    """The early ends of one response. `as_it_was` is there while an answer follows on one of them, and has brought nothing."""

    __slots__ = ("_in_a_row", "_last", "_total", "as_it_was")

    def __init__(self) -> None:
        self._in_a_row = 0
        self._total = 0
        self._last: TurnEnd | None = None
        self.as_it_was: AsItWas | None = None

    def repeats(self, end: TurnEnd) -> bool:
        """Tell whether an answer says the same as the one that it follows on."""
        last = self._last
        return last is not None and (last.text.strip(), last.thought.strip()) == (end.text.strip(), end.thought.strip())

    def goes_on(self, end: TurnEnd) -> bool:
        """Tell whether the model may go on from an answer whose outcome wants it to."""
        within = self._in_a_row < MOST_IN_A_ROW and self._total < MOST_IN_A_TURN
        return within and not asks(end.text) and not self.repeats(end)

    def begin(self, end: TurnEnd, as_it_was: AsItWas) -> None:
        """Note that the model goes on from an answer."""
        self._in_a_row += 1
        self._total += 1
        self._last = end
        self.as_it_was = self.as_it_was or as_it_was

    def progress(self) -> None:
        """Note that the model has made a call, or has answered."""
        self._in_a_row = 0
        self._last = None
        self.as_it_was = None


def is_certain(outcome: TurnOutcome, *, tool_ran: bool) -> bool:
    """Tell whether an answer with this outcome was no end that the model meant. A first thought, before any tool ran, may be
    all that it had to say."""
    return outcome in EARLY and outcome != "announced" and (tool_ran or outcome != "reasoning_only")
