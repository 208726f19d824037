"""What of an answer is not written yet: deltas that came too early, which wait until the open call is complete, and white space
(Unicode's), which may never be written.

White space is never an item of its own. At the end of a text it is held until more text follows. Beside reasoning and calls
it is a separator of the model's template up to its last line break, and is dropped; what comes behind the line break is the
indentation of the text that follows. So the items do not depend on where the backend cut its deltas."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from responses_gateway.stream.reading.logprobs import split_at
from responses_gateway.wire.chat import TokenLogprob
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


class WhiteSpace:
    """`text` stands at the end of the open text, or before the first one; `indent` before the message that may come next. Each
    has the log probabilities of its tokens. `fresh`: nothing but a text's leading white space has come yet."""

    __slots__ = ("fresh", "indent", "indent_logprobs", "logprobs", "text")

    def __init__(self) -> None:
        self.begin_turn()

    def begin_turn(self) -> None:
        """Hold nothing: the model begins an answer."""
        self.text = ""
        self.logprobs: list[TokenLogprob] = []
        self.indent = ""
        self.indent_logprobs: list[TokenLogprob] = []
        self.fresh = True

    def trimmed(self, text: str) -> str:
        """Return what to write of more of the open text: white space that was held comes before it, that at its end is held.
        Empty if it is white space alone."""
        text = self.text + text
        body = text.rstrip()
        self.text = text[len(body) :]
        return body

    def trimmed_logprobs(self, text: str, logprobs: list[TokenLogprob] | None) -> list[TokenLogprob]:
        """Return the log probabilities of a text that was just `trimmed`, given those of the delta that brought its end."""
        logprobs = self.logprobs + (logprobs or [])
        self.logprobs = []
        if self.text:
            logprobs, self.logprobs = split_at(logprobs, text)
        return logprobs

    def hold(self, delta: Reasoning | Text | Refusal, *, in_its_item: bool) -> None:
        """Hold a delta of white space alone; `in_its_item`: an item of its own kind is open."""
        logprobs = delta.logprobs if type(delta) is Text else None
        if in_its_item or (self.fresh and type(delta) is not Reasoning):
            self.text += delta.text
            self.logprobs += logprobs or []
        elif type(delta) is not Reasoning:
            self.indent += delta.text
            self.indent_logprobs += logprobs or []
        elif self.fresh:  # an empty thinking block: what follows is separated from it
            self.drop()

    def begin_message(self, delta: Text | Refusal) -> None:
        """Give a message that begins its indentation."""
        if not self.fresh:
            self.drop()
            text = self.indent + delta.text
            begin = text.rfind("\n", 0, len(text) - len(text.lstrip())) + 1
            delta.text = text[begin:]
            if type(delta) is Text and (self.indent_logprobs or delta.logprobs):
                logprobs = self.indent_logprobs + (delta.logprobs or [])
                delta.logprobs = split_at(logprobs, text[:begin])[1] if begin else logprobs
            self.drop_indent()
        self.fresh = False

    def drop(self) -> None:
        """Forget what stands at the end of the open text."""
        self.text = ""
        self.fresh = False
        if self.logprobs:
            self.logprobs = []

    def drop_indent(self) -> None:
        """Forget what stands before the next message."""
        self.indent = ""
        if self.indent_logprobs:
            self.indent_logprobs = []

    def drop_all(self) -> None:
        """Forget both."""
        self.drop()
        self.drop_indent()
