"""Detects a thought at the beginning of the text of a backend of which it is not known that it parses reasoning.

An answer that begins with the opening marker of a thought is read by a parser from then on. Any other text passes untouched,
and nothing has to be asked about it any more: the first visible character nearly always decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from responses_gateway.stream.reading.markup import Evidence, Markup, Shortcut
from responses_gateway.wire.deltas import Delta, FinishReason, Reasoning, Refusal, Text, ToolCall

_NOTHING_SEEN = Evidence()


@lru_cache
def _beginnings(openings: tuple[str, ...]) -> frozenset[str]:
    """Return all text that may become one of these markers, the empty one included."""
    return frozenset(opening[:end] for opening in openings for end in range(len(opening)))


class LeadingThoughtDetector:
    """Stands in the place of `Markup`, and makes one where it is needed: `markup`, which reads the answer from then on. Once it
    is `settled`, it is known whether the answer begins with a thought; without `markup` nothing has to read its text."""

    def __init__(self, openings: tuple[str, ...], new_markup: Callable[[], Markup]) -> None:
        """Begin a stream. `openings` are the markers that open a thought."""
        self._openings = openings
        self._new_markup = new_markup
        self.markup: Markup | None = None
        self._held: list[Delta] = []  # text that may be the beginning of a marker
        self._start = ""  # that text
        self.settled = False
        self._field = False

    @property
    def repairs(self) -> dict[str, int]:
        """What had to be repaired, by kind."""
        return {} if self.markup is None else self.markup.repairs

    @property
    def evidence(self) -> Evidence:
        """What the stream has shown of how the model thinks."""
        if self.markup is not None:
            return self.markup.evidence
        return Evidence(field=True) if self._field else _NOTHING_SEEN

    @property
    def holds(self) -> bool:
        """Whether some of the text waits for what comes next."""
        return bool(self._held) if self.markup is None else self.markup.holds

    def read(self, deltas: list[Delta], token_ids: Sequence[int] | None) -> list[Delta]:
        """Return what becomes of the deltas of one chunk."""
        if self.markup is not None:
            return self.markup.read(deltas, token_ids)
        out: list[Delta] = []
        for at, delta in enumerate(deltas):
            if type(delta) is Text:
                self._held.append(delta)
                self._start = (self._start + delta.text).lstrip()
                if self._start.startswith(self._openings):
                    self.markup = self._new_markup()
                    self.settled = True
                    return out + self.markup.read([*self._held, *deltas[at + 1 :]], token_ids)
                if self._start not in _beginnings(self._openings):
                    self.settled = True
            elif type(delta) in (Reasoning, Refusal, ToolCall):
                self._field = type(delta) is Reasoning
                self.settled = True
            if self.settled:
                return [*out, *self._release(), *([] if type(delta) is Text else [delta]), *deltas[at + 1 :]]
            if type(delta) is not Text:
                out.append(delta)
        return out

    def finish(self, reason: FinishReason) -> list[Delta]:
        """Return the rest of the text, which is over."""
        return self._release() if self.markup is None else self.markup.finish(reason)

    def shortcut(self, kind: str) -> Shortcut | None:
        """Return how more of an open item of this kind can be read without a parser; None where it cannot."""
        return None if self.markup is None else self.markup.shortcut(kind)

    def _release(self) -> list[Delta]:
        held = self._held
        self._held = []
        return held


# Returns what reads an answer, given the plain data of how it is read; None where the backend parses it.
MarkupOf: TypeAlias = Callable[[Any], Markup | LeadingThoughtDetector | None]
