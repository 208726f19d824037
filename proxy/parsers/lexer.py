"""Finding literal markers in text that arrives in pieces.

A `Lexer` looks for a fixed set of markers. It never looks at a character more often than the longest marker is long, and
it holds text back only while its tail is the beginning of a marker.

`TokenGate` adds what token ids tell: a marker that is one token of the model's vocabulary is a marker only where that
token stands. The same characters spelled with ordinary tokens are text.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

UNDECIDED = ""  # answer of Lexer.at: more text is needed to tell


class Hit(NamedTuple):
    """A marker found in a text: `text[start:end] == marker`."""

    marker: str
    start: int
    end: int


class Terminals:
    """A compiled set of literals; shared by all parsers of a format."""

    __slots__ = ("_first", "_longest", "_pattern", "_prefixes")

    def __init__(self, literals: frozenset[str]) -> None:
        # Longest first: of two markers at one place the longer one wins.
        ordered = sorted(literals, key=lambda literal: (-len(literal), literal))
        self._pattern = re.compile("|".join(map(re.escape, ordered)) or "(?!)")
        self._prefixes = frozenset(literal[:size] for literal in literals for size in range(1, len(literal)))
        self._longest = max(map(len, literals), default=1)
        self._first = re.compile("[" + "".join(re.escape(literal[0]) for literal in ordered) + "]" if ordered else "(?!)")

    def search(self, text: str, start: int) -> re.Match[str] | None:
        return self._pattern.search(text, start)

    def match(self, text: str, start: int) -> re.Match[str] | None:
        return self._pattern.match(text, start)

    def held(self, text: str, start: int) -> int:
        """The index from which the end of `text` may be the beginning of a marker (its length if it is not)."""
        end = len(text)
        place = self._first.search(text, max(start, end - self._longest + 1))
        while place is not None:
            if text[place.start() :] in self._prefixes:
                return place.start()
            place = self._first.search(text, place.start() + 1)
        return end

    def absent(self, text: str) -> bool:
        """No marker is in `text`, nor the beginning of one at its end."""
        if self._first.search(text) is None:  # nearly always
            return True
        return self._pattern.search(text) is None and self.held(text, 0) == len(text)

    def begins(self, text: str, start: int) -> bool:
        """True if all of `text[start:]` is the beginning of a marker (an empty rest is)."""
        return start >= len(text) or (len(text) - start < self._longest and text[start:] in self._prefixes)


@lru_cache(maxsize=1024)
def terminals(literals: frozenset[str]) -> Terminals:
    return Terminals(literals)


class TokenGate:
    """Which markers the token ids vouch for.

    `marker_ids` names the markers that are single tokens. Without ids (or without this knowledge) every marker is admitted
    by its text. Ids may run ahead of the text (a server holds text back for stop strings), so they wait here in order.
    """

    def __init__(self, marker_ids: Mapping[str, int] | None) -> None:
        self._marker_of = {token: marker for marker, token in (marker_ids or {}).items()}
        self._special = frozenset(marker_ids or ())
        self._waiting: deque[str] = deque()
        self.strict = False

    def see(self, token_ids: Sequence[int] | None) -> int:
        """Take the ids of a piece of text; returns how many of them are markers."""
        self.strict = token_ids is not None and bool(self._special)
        seen = [self._marker_of[token] for token in token_ids or () if token in self._marker_of]
        self._waiting.extend(seen)
        return len(seen)

    @property
    def quiet(self) -> bool:
        """No marker token is due: only markers of ordinary tokens can come."""
        return self.strict and not self._waiting

    def special(self, marker: str) -> bool:
        return marker in self._special

    def passes(self, token_ids: Sequence[int] | None) -> bool:
        """Whether no marker is among these ids, and none is due; if so they have been taken, as by `see`."""
        if not self._special:
            return True
        if self._waiting or not self._marker_of.keys().isdisjoint(token_ids or ()):
            return False
        self.strict = token_ids is not None
        return True

    def admits(self, marker: str) -> bool:
        return not self.strict or marker not in self._special or marker in self._waiting

    def take(self, marker: str) -> None:
        """The marker has been consumed. Ids of markers before it were passed over by a state that does not know them."""
        if marker in self._special and marker in self._waiting:
            while self._waiting.popleft() != marker:
                pass


class Lexer:
    """The markers of one state of a parser."""

    __slots__ = ("_all", "_gate", "_plain")

    def __init__(self, literals: Iterable[str], gate: TokenGate) -> None:
        known = frozenset(literals)
        self._gate = gate
        self._all = terminals(known)
        self._plain = terminals(frozenset(literal for literal in known if not gate.special(literal)))

    def absent(self, text: str) -> bool:
        """No marker is in `text`, nor the beginning of one at its end."""
        return (self._plain if self._gate.quiet else self._all).absent(text)

    def find(self, text: str, start: int) -> Hit | None:
        """The first marker in `text` at or after `start`."""
        active = self._plain if self._gate.quiet else self._all
        found = active.search(text, start)
        while found is not None:
            if self._gate.admits(found.group()):
                return Hit(found.group(), found.start(), found.end())
            found = active.search(text, found.start() + 1)
        return None

    def held(self, text: str, start: int) -> int:
        """How far `text` can be given away: what follows may be the beginning of a marker."""
        return (self._plain if self._gate.quiet else self._all).held(text, start)

    def at(self, text: str, start: int) -> str | None:
        """The marker that stands exactly at `start`; UNDECIDED if more text is needed to tell; None if there is none."""
        active = self._plain if self._gate.quiet else self._all
        found = active.match(text, start)
        if found is not None and self._gate.admits(found.group()):
            return found.group()
        return UNDECIDED if active.begins(text, start) else None

    def take(self, marker: str) -> None:
        """The marker has been consumed."""
        self._gate.take(marker)
