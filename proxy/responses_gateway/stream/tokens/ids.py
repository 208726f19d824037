"""Counting the tokens of an answer, and of its thoughts, by their ids.

A thought is what stands between two markers. So its tokens are counted where their ids stand, and not where text comes: a
server may send several tokens in one chunk, sends those of a character without text but for the last one, and leaves markers
out of the text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from responses_gateway.parsers import ThoughtTokens
from responses_gateway.wire.deltas import Delta, Finish, Reasoning, Refusal, Text, ToolCall

_NO_TOKENS = ThoughtTokens(frozenset(), frozenset())
_ANSWER = frozenset({Text, Refusal})
_TEXTS = _ANSWER | {Reasoning}


class IdCount:
    """The tokens of one turn of the model, however they were cut into chunks: `take` gets all their ids in order, `note` what
    the chunks brought. `total` is the number of ids."""

    __slots__ = (
        "_before", "_came", "_first", "_marked", "_markers", "_open_at", "_stopped", "_thought", "_tokens", "total",
    )  # fmt: skip

    def __init__(self, tokens: ThoughtTokens | None) -> None:
        """`tokens` are those that begin and end a thought, if they are known."""
        self._tokens = tokens or _NO_TOKENS
        self._markers = self._tokens.opens | self._tokens.closes | self._tokens.calls
        self._came: set[type] = set()  # the kinds of what the ids said
        self._stopped = False  # the model ended by itself: the last id is the end token
        self.restart()

    def restart(self, ids: Sequence[int] = ()) -> None:
        """Count these ids in the place of all before. What was noted stays."""
        self.total = 0
        self._first: Literal["none", "open", "close", "call"] = "none"  # what the first marker did
        self._before = 0  # tokens before it
        self._thought = 0  # tokens of thoughts behind it that are over
        self._open_at: int | None = None  # where the thought began that is not over
        self._marked = 0  # markers
        if ids:
            self.take(ids)

    def take(self, ids: Sequence[int]) -> None:
        """Count the ids of a chunk."""
        if self._markers.isdisjoint(ids):  # nearly always
            self.total += len(ids)
        else:
            for token in ids:
                if token in self._markers:
                    self._take_marker(token)
                self.total += 1

    def _take_marker(self, token: int) -> None:
        tokens = self._tokens
        opens = token in tokens.opens
        if self._first == "none":
            self._first = "open" if opens else "close" if token in tokens.closes else "call"
            self._before = self.total
        if self._open_at is not None:
            self._thought += self.total - self._open_at
        self._open_at = self.total + 1 if opens else None
        self._marked += 1

    def note(self, deltas: Iterable[Delta]) -> None:
        """Note what came of the ids."""
        for delta in deltas:
            if type(delta) is Finish:
                self._stopped = delta.reason == "stop"
            elif type(delta) is ToolCall or (type(delta) in _TEXTS and not delta.text.isspace()):  # type: ignore[union-attr]
                self._came.add(type(delta))

    @property
    def markup(self) -> int:
        """The tokens that are known to be no text: markers, and the end token."""
        return self._marked + (self._stopped and self.total > self._marked)

    @property
    def thought(self) -> int | None:
        """The tokens of the thoughts, without markers; None if the ids do not tell. Where the first marker does not open a
        thought, the prompt has opened it."""
        if Reasoning not in self._came:
            return 0
        texted = not _ANSWER.isdisjoint(self._came)
        unclosed = 0 if self._open_at is None else self.total - self._open_at
        match self._first:
            case "open":
                found = self._thought
            case "close":
                found = self._before + self._thought
            case "call" if not texted:
                found = self._before + self._thought
            case "none" if self._markers and not texted and ToolCall not in self._came:
                found = 0
                unclosed = self.total
            case _:
                return None
        return found + unclosed - (unclosed > 0 and self._stopped)
