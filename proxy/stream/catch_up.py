"""A second reading of an answer catches up with the first one.

Where a backend with parsers of its own broke off, the text of its tokens is read again by a parser of ours, from the beginning.
Until that has said what was said before, to the character, nothing is passed on; from there on, everything is. Where it says
anything else, nobody knows how the answer would have gone on, and it ends."""

from __future__ import annotations

import msgspec

from proxy.stream.lifecycle import Lifecycle
from proxy.stream.options import StreamOptions
from proxy.stream.said import comparable, may_become, said_by
from proxy.stream.writer import EventWriter
from proxy.wire.deltas import Delta, Finish, Reasoning, Refusal, Text, ToolArguments, ToolCallCut, Usage

_TEXTS: dict[type, str] = {Reasoning: "reasoning", Text: "text", Refusal: "refusal", ToolArguments: "call"}


class Diverged(Exception):
    """The continuation does not fit what was said before."""


class CatchUp:
    """Takes the deltas of the second reading, and returns those that are news."""

    def __init__(self, options: StreamOptions, lifecycle: Lifecycle, begin: int = 0) -> None:
        """`lifecycle` has said what is to be said again, behind the first items; `options` are its own."""
        self._lifecycle = lifecycle
        self._wanted = said_by(lifecycle, begin)
        self._again = Lifecycle(msgspec.structs.replace(options, seal=None), EventWriter())
        self._compared = 0  # items that are done in both
        self._call: int | None = None  # the number that the open call has in the second reading
        self.caught_up = False

    def take(self, deltas: list[Delta]) -> list[Delta]:
        """Return the deltas, or parts of them, behind what was said before. Raise `Diverged`."""
        news: list[Delta] = []
        for delta in deltas:
            if self.caught_up or isinstance(delta, Finish | Usage):
                news.append(self._renumbered(delta))
            elif isinstance(delta, Reasoning | Text | Refusal | ToolArguments):
                rest = self._say(delta)
                if rest is not None:
                    news.append(self._renumbered(rest))
            else:
                self._again.step(delta)
                self._compare()
        return news

    def _say(self, delta: Reasoning | Text | Refusal | ToolArguments) -> Delta | None:
        """Say a text again, up to where the first reading has ended; return what is left of it."""
        text = delta.text
        while text:
            end = self._next_end(_TEXTS[type(delta)], text)
            self._again.step(_with_text(delta, text[:end]))
            self._compare()
            text = text[end:]
            if self.caught_up:
                break
        return _with_text(delta, text) if text else None

    def _next_end(self, kind: str, text: str) -> int:
        """Return how much of a text can be said before the two have to be compared again: where it opens an item, the first
        visible character; within the item that is open in both, as much as the first reading has."""
        again = self._again
        if again.state != kind:
            return len(text) - len(text.lstrip()) + 1
        if len(again.writer.done) < len(self._wanted.done):
            return len(text)
        said = said_by(again).text + again.space
        return max(1, min(len(text), len(self._wanted.text) - len(said)))

    def _compare(self) -> None:
        wanted = self._wanted
        done = self._again.writer.done
        while self._compared < len(done):
            at = self._compared
            if at >= len(wanted.done) or comparable(done[at]) != wanted.done[at]:
                raise Diverged
            self._compared += 1
        said = said_by(self._again)
        if self._compared < len(wanted.done):
            if not may_become(said, wanted.done[self._compared]):
                raise Diverged
            return
        _, kind, name, text = said
        if kind == "idle":
            return
        if (kind, name) != (wanted.kind, wanted.name) or not wanted.text.startswith(text):
            raise Diverged
        if text == wanted.text:
            self._arrive()

    def _arrive(self) -> None:
        self.caught_up = True
        self._lifecycle.forget_space()  # it comes again
        if self._again.call is not None:
            self._call = self._again.call.index

    def _renumbered(self, delta: Delta) -> Delta:
        """Return a delta with the first reading's number of the call that was open."""
        call = self._lifecycle.call
        if isinstance(delta, ToolArguments | ToolCallCut) and call is not None and delta.index == self._call:
            delta.index = call.index
        return delta


def _with_text(delta: Reasoning | Text | Refusal | ToolArguments, text: str) -> Reasoning | Text | Refusal | ToolArguments:
    if isinstance(delta, ToolArguments):
        return ToolArguments(delta.index, text)
    return msgspec.structs.replace(delta, text=text, tokens=delta.tokens if text == delta.text else None)
