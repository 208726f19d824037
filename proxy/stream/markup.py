"""The seat of a markup parser in a stream: text of the model goes in, deltas come out, in the right place among the others.

For backends that send raw text, the parser reads all of it. For a backend that parses by itself, it can read what leaked
through (`rescue`); every item that comes of it is counted then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from proxy.stream.deltas import Delta, FinishReason, Reasoning, Text, ToolArguments, ToolCall

#: Calls found in the text are numbered from here, apart from those that the backend itself announces.
_FIRST_CALL = 1_000_000


class Parser(Protocol):
    """What reads the markup of one answer (`formats.MarkupParser`, or a parser of vLLM's)."""

    @property
    def repairs(self) -> dict[str, int]:
        """What had to be forgiven, by kind."""

    def feed(self, text: str, token_ids: Sequence[int] | None = None) -> list[Delta]:
        """The deltas that a piece of text brings."""

    def finish(self, reason: FinishReason) -> list[Delta]:
        """The deltas that were held back."""


class Markup:
    """Puts a parser between the reader and the lifecycle."""

    def __init__(self, new_parser: Callable[[], Parser], *, rescue: bool = False) -> None:
        """`new_parser` makes one for a stretch of text; another is made when the backend itself announces an item."""
        self._new_parser = new_parser
        self._rescue = rescue
        self._parser = new_parser()
        self._fed = False
        self._calls = _FIRST_CALL
        self._numbers: dict[int, int] = {}
        self._repairs: dict[str, int] = {}

    @property
    def repairs(self) -> dict[str, int]:
        """What had to be forgiven or rescued, by kind."""
        total = dict(self._repairs)
        for kind, count in self._parser.repairs.items():
            total[kind] = total.get(kind, 0) + count
        return total

    def read(self, delta: Delta, token_ids: Sequence[int] | None) -> list[Delta]:
        """What becomes of one delta of the reader."""
        if type(delta) is Text:
            self._fed = True
            return self._told_apart(self._parser.feed(delta.text, token_ids))
        if type(delta) in (Reasoning, ToolCall) and self._fed:
            return [*self._close("stop"), delta]
        return [delta]

    def finish(self, reason: FinishReason) -> list[Delta]:
        """The text is over."""
        return self._close(reason)

    def _close(self, reason: FinishReason) -> list[Delta]:
        """End this stretch of text: a partial marker in front of something else is none."""
        out = self._told_apart(self._parser.finish(reason))
        self._repairs = self.repairs
        self._parser, self._fed = self._new_parser(), False
        self._numbers = {}
        return out

    def _told_apart(self, deltas: list[Delta]) -> list[Delta]:
        for delta in deltas:
            if type(delta) is ToolCall:
                self._numbers[delta.index] = self._calls
                delta.index = self._calls
                self._calls += 1
                self._rescued("call_rescued")
            elif type(delta) is ToolArguments:
                delta.index = self._numbers[delta.index]
            elif type(delta) is Reasoning:
                self._rescued("reasoning_rescued")
        return deltas

    def _rescued(self, kind: str) -> None:
        if self._rescue:
            self._repairs[kind] = self._repairs.get(kind, 0) + 1
