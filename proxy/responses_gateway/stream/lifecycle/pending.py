"""Deltas that came too early: they wait until the open call is complete."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from responses_gateway.wire.deltas import Delta, Reasoning, Refusal, Text, ToolArguments, ToolCall, ToolCallCut, ToolCallExtra

_TEXTS = (Reasoning, Text, Refusal)
_WITH_TEXT = (*_TEXTS, ToolArguments)


@dataclass(slots=True)
class PendingDeltas:
    """Groups of deltas in their order: a call with the arguments that came for it, or the pieces of one text."""

    _groups: deque[list[Delta]] = field(default_factory=deque)
    _calls: dict[int, list[Delta]] = field(default_factory=dict)  # the groups of calls, by their index

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def calls(self) -> int:
        """How many calls wait."""
        return len(self._calls)

    def add(self, delta: Delta) -> None:
        """Add a call, or a piece of a text."""
        if type(delta) is ToolCall:
            group: list[Delta] = [delta]
            self._calls[delta.index] = group
            self._groups.append(group)
        elif self._groups and type(self._groups[-1][0]) is type(delta):
            self._groups[-1].append(delta)
        else:
            self._groups.append([delta])

    def add_to_call(self, delta: ToolArguments | ToolCallCut | ToolCallExtra) -> bool:
        """Add a part to a call that waits. Return False if there is none of that index."""
        group = self._calls.get(delta.index)
        if group is not None and type(delta) is ToolCallExtra:
            group[0].extra = delta.extra  # type: ignore[union-attr]
        elif group is not None:
            group.append(delta)
        return group is not None

    def whole_calls(self) -> Iterator[tuple[str, str, str]]:
        """Yield the calls that wait, in order, as chat name, arguments, and what the server wants back; cut ones left out."""
        for group in self._groups:
            call = group[0]
            if type(call) is ToolCall and not any(type(delta) is ToolCallCut for delta in group):
                yield call.name, "".join([delta.text for delta in group if type(delta) is ToolArguments]), call.extra

    @property
    def call_numbers(self) -> list[int]:
        """The numbers of the calls that wait, in order."""
        return [group[0].index for group in self._groups if type(group[0]) is ToolCall]

    def texts(self) -> Iterator[tuple[Delta, str]]:
        """Yield what waits, in order: the first delta of each group, and the text or the arguments so far."""
        for group in self._groups:
            yield group[0], "".join([delta.text for delta in group if isinstance(delta, _WITH_TEXT)])

    def forget_space(self) -> None:
        """Forget the white space at the end of a text that waits behind all else."""
        while self._groups and isinstance(self._groups[-1][-1], _TEXTS):
            last = self._groups[-1][-1]
            last.text = last.text.rstrip()
            if last.text:
                return
            self._groups[-1].pop()
            if not self._groups[-1]:
                self._groups.pop()

    def take(self) -> list[Delta]:
        """Remove the first group and return it; the arguments of a call as one piece."""
        group = self._groups.popleft()
        call = group[0]
        if type(call) is not ToolCall:
            return group
        del self._calls[call.index]
        arguments = "".join([delta.text for delta in group[1:] if type(delta) is ToolArguments])
        cut = [delta for delta in group if type(delta) is ToolCallCut]
        return [call, ToolArguments(call.index, arguments), *cut]
