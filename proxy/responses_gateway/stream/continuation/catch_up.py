"""A second reading of an answer catches up with the first one.

Where a backend with parsers of its own broke off, the text of its tokens is read again by a parser of ours, from the beginning.
Until that has said what was said before, to the character, nothing is passed on; from there on, everything is. Where it says
anything else, the rest of the answer cannot be known, and it ends."""

from __future__ import annotations

import msgspec

from responses_gateway.stream.continuation.transcript import (
    Part,
    call_numbers,
    is_prefix_of,
    transcript_of,
    without_generated_ids,
)
from responses_gateway.stream.lifecycle.machine import Lifecycle
from responses_gateway.stream.reading.citations import CitationReader
from responses_gateway.wire.deltas import CALL_PARTS, Delta, Finish, Reasoning, Refusal, Text, ToolArguments, Usage

_TEXTS: dict[type, str] = {Reasoning: "reasoning", Text: "text", Refusal: "refusal", ToolArguments: "call"}


class Diverged(Exception):
    """The continuation does not fit what was said before."""


class CatchUp:
    """Takes the deltas of the second reading, and returns those that were not said before. Marks of citations are taken out of
    all of them: what was said before has none."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        """`lifecycle` has written what is to be said again, in its present turn."""
        self._lifecycle = lifecycle
        self._wanted = transcript_of(lifecycle, lifecycle.turn.first_item)
        self._again = lifecycle.as_turn_began()
        self._citations = CitationReader(lifecycle.sources)
        self._compared = 0  # items that are done in both
        self._numbers: dict[int, int] = {}  # of the calls in the second reading -> in the first
        self.caught_up = False

    def take(self, deltas: list[Delta], *, last: bool = False) -> list[Delta]:
        """Return the deltas, or parts of them, behind what was said before. `last`: no more follow. Raise `Diverged`."""
        deltas = self._citations.read(deltas)
        if last:
            deltas += self._citations.finish()
        unseen: list[Delta] = []
        for delta in deltas:
            if self.caught_up or isinstance(delta, Finish | Usage):
                unseen.append(self._renumbered(delta))
            elif isinstance(delta, Reasoning | Text | Refusal | ToolArguments):
                rest = self._say(delta)
                if rest is not None:
                    unseen.append(self._renumbered(rest))
            else:
                self._again.step(delta)
                self._compare()
        return unseen

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
        """Return how much of a text can be said before the two have to be compared again: where it begins something, the first
        visible character; within what is the last in both, as much as the first reading has."""
        said = transcript_of(self._again)
        if not said.parts or said.parts[-1].kind != kind:
            return len(text) - len(text.lstrip()) + 1
        wanted = self._wanted
        if len(said.done) < len(wanted.done) or len(said.parts) < len(wanted.parts):
            return len(text)
        behind = len(wanted.parts[-1].text) - len(said.parts[-1].text) - len(said.space)
        return max(1, min(len(text), behind))

    def _compare(self) -> None:
        wanted = self._wanted
        done = self._again.writer.done
        while self._compared < len(done):
            at = self._compared
            if at >= len(wanted.done) or without_generated_ids(done[at]) != wanted.done[at]:
                raise Diverged
            self._compared += 1
        said = transcript_of(self._again)
        if not said.parts:
            return
        if self._compared < len(wanted.done):
            if not is_prefix_of(said.parts[0], wanted.done[self._compared]):
                raise Diverged
            return
        *before, last = said.parts
        if before != wanted.parts[: len(before)] or len(before) == len(wanted.parts):
            raise Diverged
        if not _may_grow(last, wanted.parts[len(before)]):
            raise Diverged
        if said.parts == wanted.parts:
            self._arrive()

    def _arrive(self) -> None:
        self.caught_up = True
        self._lifecycle.forget_space()  # it comes again
        self._numbers = dict(zip(call_numbers(self._again), call_numbers(self._lifecycle), strict=True))

    def _renumbered(self, delta: Delta) -> Delta:
        """Return a delta with the first reading's number of its call."""
        if isinstance(delta, CALL_PARTS):
            delta.index = self._numbers.get(delta.index, delta.index)
        return delta


def _may_grow(part: Part, wanted: Part) -> bool:
    """Tell whether something is the other, or a beginning of it."""
    same = (part.kind, part.name) == (wanted.kind, wanted.name)
    return same and wanted.text.startswith(part.text) and part.annotations <= wanted.annotations


def _with_text(delta: Reasoning | Text | Refusal | ToolArguments, text: str) -> Reasoning | Text | Refusal | ToolArguments:
    if isinstance(delta, ToolArguments):
        return ToolArguments(delta.index, text)
    return msgspec.structs.replace(delta, text=text)
