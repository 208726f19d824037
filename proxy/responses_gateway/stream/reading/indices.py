"""What the indices of the entries of `tool_calls` tell, and what shows that they tell nothing."""

from __future__ import annotations

from collections.abc import Collection

from responses_gateway.stream.reading.call import PartialCall
from responses_gateway.wire.deltas import Delta


class Indices:
    """The calls of one answer by their indices.

    A call is *chosen* if arguments came to it by their index alone while another one waited for its own: if indices turn out to
    be wrong, they may be the other's. What it gets is withheld while there are arguments at an index that no call has."""

    def __init__(self) -> None:
        self.at: dict[int, PartialCall] = {}  # the last one of each index
        self.other: dict[int, PartialCall] = {}  # indices under which another call came too, by its id
        self.chosen: dict[PartialCall, None] = {}  # and may still be doubted
        self._withheld: list[Delta] = []
        self._overlap = False  # a call has begun before another one had all of its arguments

    def begin(self, call: PartialCall, waiting: Collection[PartialCall]) -> None:
        """Note a new call, and those that wait for more."""
        self._overlap = self._overlap or bool(waiting)
        if call.index is not None:
            self.at[call.index] = call
            self.other.pop(call.index, None)

    def bind(self, index: int, call: PartialCall) -> None:
        """Note that a piece of a call came at an index."""
        if self.at.setdefault(index, call) is not call:
            self.other[index] = call

    def choose(self, call: PartialCall) -> None:
        """Note that arguments came to a call by their index alone."""
        if self._overlap and call.name:
            self.chosen[call] = None

    def take_chosen(self) -> list[PartialCall]:
        """Return the calls that were chosen so far: once for each time, because there may be many."""
        chosen = list(self.chosen)
        self.chosen.clear()
        return chosen

    def withhold(self, delta: Delta) -> None:
        """Keep a delta of a chosen call back."""
        self._withheld.append(delta)

    def release(self) -> list[Delta]:
        """Return what was withheld."""
        withheld = self._withheld
        self._withheld = []
        return withheld

    def forget(self, gone: Collection[PartialCall]) -> None:
        """Let nothing that comes belong to these calls."""
        self.at = {index: call for index, call in self.at.items() if call not in gone}
        self.other = {index: call for index, call in self.other.items() if call not in gone}
