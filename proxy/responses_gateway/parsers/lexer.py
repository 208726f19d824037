"""Find literal markers in text that arrives in pieces.

A `Lexer` looks for a fixed set of markers. It never looks at a character more often than the longest marker is long, and
it holds text back only while its tail is the beginning of a marker.

`TokenGate` uses token ids: a marker that is one token of the model's vocabulary counts as a marker only where that token
stands. The same characters spelled with ordinary tokens are text.

`SourceText` is the text that has arrived and has not been consumed yet."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

UNDECIDED = ""  # answer of Lexer.at: more text is needed to tell
_SPACES = re.compile(r"\s*")


@lru_cache(maxsize=256)
def compiled(expression: str) -> re.Pattern[str]:
    """Compile a regular expression of a format."""
    return re.compile(expression, re.DOTALL)


def skip_spaces(text: str, at: int) -> int:
    """Return the index of the first character from `at` on that is no white space."""
    match = _SPACES.match(text, at)
    return match.end() if match else at


class Hit(NamedTuple):
    """A marker found in a text: `text[start:end] == marker`."""

    marker: str
    start: int
    end: int


class Terminals:
    """A compiled set of literals; shared by all parsers of a format."""

    __slots__ = ("_first", "_longest", "_prefixes", "pattern")

    def __init__(self, literals: frozenset[str]) -> None:
        # Longest first: of two markers at one place the longer one wins.
        ordered = sorted(literals, key=lambda literal: (-len(literal), literal))
        self.pattern = re.compile("|".join(map(re.escape, ordered)) or "(?!)")
        self._prefixes = frozenset(literal[:size] for literal in literals for size in range(1, len(literal)))
        self._longest = max(map(len, literals), default=1)
        self._first = re.compile("[" + "".join(re.escape(literal[0]) for literal in ordered) + "]" if ordered else "(?!)")

    def held(self, text: str, start: int) -> int:
        """Return the index from which the end of `text` may be the beginning of a marker (its length if it is not)."""
        end = len(text)
        place = self._first.search(text, max(start, end - self._longest + 1))
        while place is not None:
            if text[place.start() :] in self._prefixes:
                return place.start()
            place = self._first.search(text, place.start() + 1)
        return end

    def absent(self, text: str) -> bool:
        """Tell whether no marker is in `text`, nor the beginning of one at its end."""
        if self._first.search(text) is None:  # nearly always
            return True
        return self.pattern.search(text) is None and self.held(text, 0) == len(text)

    def begins(self, text: str, start: int) -> bool:
        """Tell whether all of `text[start:]` is the beginning of a marker (an empty rest is)."""
        return start >= len(text) or (len(text) - start < self._longest and text[start:] in self._prefixes)


@lru_cache(maxsize=1024)
def terminals(literals: frozenset[str]) -> Terminals:
    """Compile a set of literals, or return the one compiled before."""
    return Terminals(literals)


class TokenGate:
    """Tells by the token ids which markers in the text are markers. `marker_ids` names the markers that are single tokens.
    Without ids, or without these names, every marker is admitted by its text. Ids may run ahead of the text (a server holds
    text back for stop strings), so they wait here in order. `special`: the markers that are single tokens."""

    def __init__(self, marker_ids: Mapping[str, int] | None) -> None:
        self._marker_of = {token: marker for marker, token in (marker_ids or {}).items()}
        self.special = frozenset(marker_ids or ())
        self._waiting: deque[str] = deque()
        self.strict = False

    def observe(self, token_ids: Sequence[int] | None) -> None:
        """Take the ids of a piece of text."""
        self.strict = token_ids is not None and bool(self.special)
        self._waiting.extend(self._marker_of[token] for token in token_ids or () if token in self._marker_of)

    def rewind(self, token_ids: Sequence[int]) -> None:
        """Forget the last ids, whose text has not come."""
        markers = [self._marker_of[token] for token in token_ids if token in self._marker_of]
        for marker in reversed(markers):
            if self._waiting and self._waiting[-1] == marker:
                self._waiting.pop()

    @property
    def quiet(self) -> bool:
        """No marker token is due: only markers of ordinary tokens can come."""
        return self.strict and not self._waiting

    def passes(self, token_ids: Sequence[int] | None) -> bool:
        """Take the ids, as `observe` does, if no marker is among them and none is due; tell whether they were taken."""
        if not self.special:
            return True
        if self._waiting or not self._marker_of.keys().isdisjoint(token_ids or ()):
            return False
        self.strict = token_ids is not None
        return True

    def admits(self, marker: str) -> bool:
        """Tell whether the marker, found in the text, is one."""
        return not self.strict or marker not in self.special or marker in self._waiting

    def take(self, marker: str) -> None:
        """Note that the marker was consumed. Ids of markers before it belong to text in which they do not count."""
        if marker in self.special and marker in self._waiting:
            while self._waiting.popleft() != marker:
                pass


class Lexer:
    """Finds the markers that count at one place of a format."""

    __slots__ = ("_all", "_gate", "_plain")

    def __init__(self, literals: Iterable[str], gate: TokenGate) -> None:
        known = frozenset(literals)
        self._gate = gate
        self._all = terminals(known)
        self._plain = terminals(known - gate.special) if gate.special else self._all

    def absent(self, text: str) -> bool:
        """Tell whether no marker is in `text`, nor the beginning of one at its end."""
        return (self._plain if self._gate.quiet else self._all).absent(text)

    def find(self, text: str, start: int) -> Hit | None:
        """Find the first marker in `text` at or after `start`."""
        active = self._plain if self._gate.quiet else self._all
        match = active.pattern.search(text, start)
        while match is not None:
            if self._gate.admits(match.group()):
                return Hit(match.group(), match.start(), match.end())
            match = active.pattern.search(text, match.start() + 1)
        return None

    def held(self, text: str, start: int) -> int:
        """Return how far `text` can be given out: what follows may be the beginning of a marker."""
        return (self._plain if self._gate.quiet else self._all).held(text, start)

    def at(self, text: str, start: int) -> str | None:
        """Return the marker exactly at `start`; UNDECIDED if more text is needed to tell; None if there is none."""
        active = self._plain if self._gate.quiet else self._all
        match = active.pattern.match(text, start)
        if match is not None and self._gate.admits(match.group()):
            return match.group()
        return UNDECIDED if active.begins(text, start) else None

    def take(self, marker: str) -> None:
        """Note that the marker was consumed."""
        self._gate.take(marker)


class SourceText:
    """Holds what is left to read, `text[at:]`. Consumed text is dropped by the next `extend`."""

    def __init__(self, gate: TokenGate) -> None:
        self.text = ""
        self.at = 0
        self.gate = gate
        self._lexers: dict[tuple[str, ...], Lexer] = {}

    def extend(self, piece: str) -> None:
        """Append a piece that has arrived."""
        self.text = self.text[self.at :] + piece if self.at < len(self.text) else piece
        self.at = 0

    def put_back(self, piece: str) -> None:
        """Put text in front, to be read again."""
        self.text = piece + self.text[self.at :]
        self.at = 0

    def advance(self, end: int) -> str:
        """Consume up to `end`; return the text that was consumed."""
        piece = self.text[self.at : end]
        self.at = end
        return piece

    def spaces(self) -> str:
        """Consume white space; return it."""
        return self.advance(skip_spaces(self.text, self.at))

    @property
    def empty(self) -> bool:
        """Tell whether nothing is left."""
        return self.at >= len(self.text)

    def markers(self, *literals: str) -> Lexer:
        """Return a lexer for these markers; the same one each time."""
        lexer = self._lexers.get(literals)
        if lexer is None:
            lexer = self._lexers[literals] = Lexer(literals, self.gate)
        return lexer
