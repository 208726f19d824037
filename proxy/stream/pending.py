"""What came too early: deltas that wait until the open call is complete."""

from __future__ import annotations

from collections import deque

from proxy.wire.deltas import Delta, ToolArguments, ToolCall


class Held:
    """Groups of deltas in their order: a call with the arguments that came for it, or the pieces of one text."""

    __slots__ = ("_calls", "groups")

    def __init__(self) -> None:
        self.groups: deque[list[Delta]] = deque()
        self._calls: dict[int, list[Delta]] = {}  # the groups of calls, by their index

    @property
    def calls(self) -> int:
        """How many calls wait."""
        return len(self._calls)

    @property
    def ends_in_text(self) -> bool:
        """The last group is a text, which may go on."""
        return bool(self.groups) and type(self.groups[-1][0]) is not ToolCall

    def add(self, delta: Delta) -> None:
        """A call, or a piece of a text."""
        if type(delta) is ToolCall:
            group: list[Delta] = [delta]
            self._calls[delta.index] = group
            self.groups.append(group)
        elif self.groups and type(self.groups[-1][0]) is type(delta):
            self.groups[-1].append(delta)
        else:
            self.groups.append([delta])

    def add_arguments(self, delta: ToolArguments) -> bool:
        """Arguments for a call that waits. False if there is none of that index."""
        group = self._calls.get(delta.index)
        if group is not None:
            group.append(delta)
        return group is not None

    def take(self) -> list[Delta]:
        """The first group, which waits no longer."""
        group = self.groups.popleft()
        if type(group[0]) is ToolCall:
            del self._calls[group[0].index]
        return group

    def clear(self) -> None:
        """Nothing waits any more."""
        self.groups.clear()
        self._calls.clear()
