"""Headers of a call and of its parameters that stand where none is expected: inside a value, or behind themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from responses_gateway.parsers.arguments import OuterMarkers
from responses_gateway.parsers.arguments.parameter_value import TOKEN
from responses_gateway.parsers.delta_buffer import DeltaBuffer
from responses_gateway.parsers.format import CallFormat, TaggedParameters
from responses_gateway.parsers.lexer import UNDECIDED, Hit, Lexer, compiled, skip_spaces

# Longest header of a call or of a parameter, in characters.
HEADER_LIMIT = 256
_QUOTES = "`'\""
_HALF_TAG = re.compile(r"([^<>\n]{1,40})([<>\n])?")


class Places:
    """The markers that count at each place of a call."""

    def __init__(self, syntax: TaggedParameters, call: CallFormat, markers: Callable[..., Lexer], outer: OuterMarkers) -> None:
        assert call.header is not None  # it has the name
        ends = (*call.closes, *outer.closes, *outer.opens)
        self.header = markers(*call.header.ends, *call.header.stops)
        self.between = markers(*syntax.opens, *syntax.between, *syntax.values, *call.header.end_tags, *ends)
        self.head = markers(*syntax.heads, *syntax.opens, *syntax.values, *syntax.closes, *call.closes)
        self.gap = markers(*syntax.between, *syntax.values, *syntax.opens, *ends)
        tags = (*(syntax.heads if syntax.values else ()), *syntax.others)
        self.keyed_ends = tuple(f"{close[:-1]}=" for close in syntax.closes if close.startswith("</") and not syntax.values)
        self.inside = markers(*self.keyed_ends, *syntax.opens, *tags, *syntax.value_opens, *syntax.closes, *call.opens, *ends)
        self.behind_value = markers(*syntax.opens, *syntax.between, *syntax.values, *ends)
        self.behind_call = markers(*outer.closes, *outer.opens)
        self.behind_end = markers(*syntax.opens, *syntax.closes, *call.opens, *ends)
        self.ends = markers(*call.closes, *outer.closes)
        # The special tokens that the markup is made of: no value ends in one.
        made_of = (*call.opens, call.header.pattern, *syntax.opens, *syntax.heads, *outer.opens)
        self.tokens = frozenset(TOKEN.findall(" ".join(made_of)))


class Head(NamedTuple):
    """The groups of a header, none if it is no header, and where it ends."""

    key: Mapping[str, str | None]
    end: int


def key_of(groups: Mapping[str, str | None], syntax: TaggedParameters, declared: Collection[str]) -> str:
    """Return the key that the groups of a header name. Quotes around that of a declared parameter are not a part of it."""
    key = (groups["key"] or "").strip()
    if syntax.escaped:
        return key.replace("&quot;", '"').replace("&amp;", "&")
    bare = key.strip(_QUOTES)
    return bare if bare in declared and key not in declared else key


@dataclass(eq=False)
class Headers:
    """Reads headers ahead. Each of its methods returns None if more text is needed to tell."""

    _syntax: TaggedParameters
    _call: CallFormat
    _name: str  # of the tool that is called
    _places: Places
    _deltas: DeltaBuffer
    _declared: Collection[str]  # the parameters of the tool

    def __post_init__(self) -> None:
        self.pattern = compiled(self._syntax.header)

    def named_again(self, text: str, at: int) -> int | None:
        """Return the end of a header of this call, once more, whose opening ends at `at`; `at` if it is another one, None if
        more text is needed to tell."""
        header = self._call.header
        assert header is not None
        hit = self._places.header.find(text, at)
        if hit is None or hit.start - at > HEADER_LIMIT:
            return None if len(text) - at < HEADER_LIMIT and not self._deltas.final else at
        name = compiled(header.pattern).fullmatch(text[at : hit.start].strip())
        if name is None or name["name"] != self._name:
            return at
        return hit.end if hit.marker in header.ends else hit.start

    def named_behind(self, marker: str, text: str, at: int) -> int | None:
        """Return the end of a marker at `at`, or of the header of this call that it opens once more."""
        start = at + len(marker)
        return self.named_again(text, start) if marker in self._call.opens else start

    def key_behind(self, text: str, at: int) -> str | None:
        """Return the key of a parameter whose opening is in a value; None if more text is needed. It is "" if it has none."""
        head = self.head_behind(text, at)
        if head is None:
            return None
        return key_of(head.key, self._syntax, self._declared) if head.key else ""

    def head_behind(self, text: str, at: int) -> Head | None:
        """Read the header of a parameter whose opening is in a value; None if more text is needed to tell. Its end is `at` if
        it is none."""
        hit = self._places.head.find(text, at)
        if hit is None and len(text) - at <= HEADER_LIMIT and not self._deltas.final:
            return None
        if hit is None or hit.start - at > HEADER_LIMIT or hit.marker not in self._syntax.heads:
            return Head({}, at)
        header = self.pattern.fullmatch(text[at : hit.start].strip())
        return Head({}, at) if header is None else Head(header.groupdict(), hit.end)

    def half_opening(self, text: str, at: int) -> bool | None:
        """Tell whether the tag that opens a value stands there without its first bracket, perhaps misspelt. None if more text
        is needed to tell."""
        half = _HALF_TAG.match(text, at)
        if half is not None and half[2] is None and half.end() == len(text) and not self._deltas.final:
            return None
        return half is not None and half[2] == ">"

    def whole_end(self, text: str, hit: Hit, key: Mapping[str, str | None]) -> Hit | None:
        """Return the end of a value that has its key once more (`</parameter=path>`), any other marker as it is; None if more
        text is needed to tell."""
        if hit.marker not in self._places.keyed_ends:
            return hit
        end = text.find(">", hit.end, hit.end + HEADER_LIMIT)
        if end < 0:
            return None if len(text) - hit.end < HEADER_LIMIT and not self._deltas.final else hit
        groups = self.pattern.fullmatch(text[hit.end : end])
        if groups is None or groups["key"] != key["key"]:
            return hit
        return Hit(f"{hit.marker[:-1]}>", hit.start, end + 1)

    def key_again(self, text: str, at: int, key: Mapping[str, str | None]) -> int | None:
        """Do as `named_again` for the key of the parameter."""
        head = self.head_behind(text, at)
        if head is None:
            return None
        return head.end if head.key == key else at

    def call_again(self, text: str, at: int, key: Mapping[str, str | None]) -> int | None:
        """Do as `named_again` for the header of the call and the key of the parameter behind it."""
        named = self.named_again(text, at)
        if named is None or named == at:
            return named
        place = skip_spaces(text, named)
        marker = self._places.between.at(text, place)
        if marker == UNDECIDED and not self._deltas.final:
            return None
        if marker not in self._syntax.opens:
            return at
        end = self.key_again(text, place + len(marker), key)
        return at if end == place + len(marker) else end
