"""The value of one parameter in tags: its text on the way out, and the markup of the same kind that it may hold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from responses_gateway.parsers.arguments import OuterMarkers
from responses_gateway.parsers.arguments.values import escape
from responses_gateway.parsers.format import CallFormat, TaggedParameters

_QUOTES = "`'\""
_LOOKED_AT = 256  # characters behind a tag inside a value that tell what the tag is
_NAME = re.compile(r"""\s*["']?[\w.\-:/]+["']?\s*>?\s*""")
_PARAMETER_ON_LINES = re.compile(r"[^<>\n]+>\n\s*\S")
_HEADER = re.compile(r"[^<>\n]*>")
# A tag, or an end tag without its first bracket.
_LAST_TAG = re.compile(r"(?:</([\w:.\-]+)>|<[^<>]{1,80}>|<[/\\][^<>]{0,80}|<[\w|｜][^<>\s]{2,80}|[/\\][^<>/\\\n]{2,80}>)\s*\Z")
TOKEN = re.compile(r"<[|｜][^<>\s]{1,40}[|｜]>")
_LAST_TOKEN = re.compile(rf"({TOKEN.pattern})\s*\Z")
# What stands behind an end tag where the markup goes on: prose and code have it within a sentence, or in quotes.
_GOES_ON = re.compile(r"[^\S\n]*[\n<]|\w")
_LAST_TAG_LENGTH = 128  # with the white space behind it
_BEGINNING = re.compile(r"<[^\s=>]+")


class ParameterValue:
    """Gives out one value: piece by piece if it is a string, converted at its end if not."""

    def __init__(self, emit: Callable[[str], None], convert: Callable[[str], str] | None, trim: bool) -> None:
        self.blank = True  # nothing visible has come
        self.opened = True  # by a tag of its own
        self._emit = emit
        self._convert = convert
        self._trim = trim
        self._lines = trim
        self._lead: list[str] = []  # white space at the beginning: it may stand before a second opening
        self._tail = ""  # a newline that belongs to the markup if the value ends here
        self._kept: list[str] = []
        self._end = ""  # what came last
        if convert is None:
            emit('"')

    @property
    def at_line_start(self) -> bool:
        """Whether what comes next begins a line, in markup that has lines of its own."""
        return self._lines and (not self._end or self._end.endswith("\n"))

    def stands_in(self, following: str) -> bool:
        """Tell whether what stands behind the text so far is in quotes, one of which follows it."""
        return bool(self._end) and self._end[-1] in _QUOTES and self._end[-1] == following

    def add(self, piece: str) -> None:
        """Add the next piece."""
        if not piece:
            return
        self._end = (self._end + piece[-_LAST_TAG_LENGTH:])[-_LAST_TAG_LENGTH:]
        if not self.blank:
            self._write(piece)
        elif piece.isspace():
            self._lead.append(piece)
        else:
            self.blank = False
            self._write(self._first(piece))

    def _first(self, piece: str) -> str:
        whole = "".join((*self._lead, piece))
        return whole.removeprefix("\n") if self._trim else whole

    def _write(self, piece: str) -> None:
        if self._trim:
            piece = self._tail + piece
            self._tail = "\n" if piece.endswith("\n") else ""
            piece = piece.removesuffix("\n")
        if self._convert is None:
            self._emit(escape(piece))
        else:
            self._kept.append(piece)

    @property
    def ends_in_tag(self) -> bool:
        """Whether the value ends in a tag, perhaps without a bracket, that ends nothing in it: it may stand for the value's
        own end, misspelt."""
        last = _LAST_TAG.search(self._end)
        return last is not None and not (last[1] and f"<{last[1]}" in self._end)

    def ends_in(self, tokens: frozenset[str]) -> bool:
        """Tell whether the value ends in one of these special tokens."""
        last = _LAST_TOKEN.search(self._end) if tokens else None
        return last is not None and last[1] in tokens

    def opened_again(self, opening: str, closes: tuple[str, ...]) -> DoubledValue:
        """Return what goes on in the place of a blank value whose opening, as it is written, stands there twice."""
        return DoubledValue(self._emit, self._convert or _string_end, self._trim, [opening], closes)

    def close(self) -> str:
        """Give out the rest; return the JSON text of a value that was kept."""
        if self.blank:
            self._write(self._first(""))
        if self._convert is None:
            self._emit('"')
            return ""
        value = self._convert(self._text)
        self._emit(value)
        return value

    @property
    def _text(self) -> str:
        return "".join(self._kept)


class DoubledValue(ParameterValue):
    """A value whose opening stands there twice or more often, which tells only at its end whether that belongs to it: not if
    the value holds no end but those that make up for the openings."""

    def __init__(
        self,
        emit: Callable[[str], None],
        convert: Callable[[str], str],
        trim: bool,
        openings: list[str],
        closes: tuple[str, ...],
    ) -> None:
        super().__init__(emit, convert, False)
        self._lines = trim
        self._openings = openings
        self._closes = closes

    def opened_again(self, opening: str, closes: tuple[str, ...]) -> DoubledValue:
        """Take one more opening."""
        return DoubledValue(self._emit, self._convert or _string_end, self._lines, [*self._openings, opening], closes)

    @property
    def _text(self) -> str:
        text = "".join(self._kept)
        value = text
        for _ in self._openings:
            end = next((close for close in self._closes if value.rstrip().endswith(close)), None)
            value = value if end is None else value.rstrip().removesuffix(end)
        if any(close in value for close in self._closes):
            return "".join(self._openings) + text
        return value.removeprefix("\n").removesuffix("\n") if self._lines else value


def _string_end(text: str) -> str:
    """Return the rest of a JSON string that is open already."""
    return f'{escape(text)}"'


class InnerMarkup:
    """Follows the tags inside a value that are of the call's own kind: an end tag that closes what was opened in the value is a
    part of it. `values` of parameters, and `calls`, are open in it; `openings` are all tags that open a value."""

    def __init__(self, syntax: TaggedParameters, call: CallFormat, outer: OuterMarkers) -> None:
        self.values = 0
        self.calls = 0
        self.openings = 0
        self.keys: set[str] = set()  # of the tool, which open within a line
        self.declared = False  # the parameter that opened last is one of the tool
        self.ended = False  # an end tag came that closes nothing in the value
        self._reopened = False  # then another parameter has begun
        self._loose = False  # the last tag is such an end
        self._swallowed = False  # behind such an end the markup seems to go on
        self._keyed = bool(syntax.values)  # key and value have tags of their own
        self._trim = syntax.trim
        self._pairs = {
            "block end": "block",
            "call end": "call",
            "value end": "value" if syntax.values else "key",
            "head": "key",
        }
        self._open: Counter[str] = Counter()  # tags without their end so far, by kind
        self._first = ""  # the kind of the tag that the value begins with
        self._alone = False  # the last tag has no counterpart
        self._visible = False  # text stands between the tags
        self._kinds = {
            **dict.fromkeys(outer.opens, "block"),
            **dict.fromkeys(outer.closes, "block end"),
            **dict.fromkeys((*syntax.heads, *syntax.others), "head"),
            **dict.fromkeys(syntax.values, "value"),
            **dict.fromkeys(syntax.closes, "value end"),
            **dict.fromkeys(call.closes, "call end"),
            **dict.fromkeys(call.opens, "call"),
            **dict.fromkeys(syntax.opens, "key"),
        }
        name = _BEGINNING.match((syntax.values or syntax.opens)[0])
        self._opening = name.group() if name else syntax.opens[0]  # as other markup of this name has it
        self._others = 0  # such tags without their end so far
        self._last = ""  # the kind of the tag that came last
        self._behind = ""  # the beginning of the text since then
        self._on_line = False  # that tag began a line

    @property
    def in_call(self) -> bool:
        """Whether a call has begun in the value, with its name."""
        return self.calls > 0 or (self._last == "call" and _NAME.fullmatch(self._behind) is not None)

    @property
    def opened(self) -> bool:
        """Whether a value has been opened in this one, perhaps with the tags of another family, and not ended."""
        return self.openings > 0 or self._others > 0

    @property
    def swallows(self) -> bool:
        """Whether another parameter may stand in the value, whose opening is missing or cannot be read."""
        return self._swallowed or (self._loose and _GOES_ON.match(self._behind) is not None)

    @property
    def torn(self) -> bool:
        """Whether a part of the call itself seems to stand in the value: a parameter that begins in it and does not end, an end
        before another parameter, or a tag at its edge without the counterpart, unless the value is made of tags."""
        on_line = self._trim and self._last == "key" and self._on_line
        parameter = self.values > 0 if self._keyed else on_line and _PARAMETER_ON_LINES.match(self._behind) is not None
        begins = self._first in self._pairs or self._open[self._first] > 0
        visible_behind = self._visible_behind
        edge = (begins or (self._alone and not visible_behind)) and (self._visible or visible_behind)
        return parameter or self._reopened or edge

    @property
    def _visible_behind(self) -> bool:
        """Whether there is more than white space behind the last tag, with its header."""
        header = _HEADER.match(self._behind) if self._last in ("key", "call") and not self._keyed else None
        return bool(self._behind[header.end() if header else 0 :].strip())

    def takes(self, following: str, closes: tuple[str, ...]) -> bool:
        """Tell by the tag behind an end tag of a value whether it closes what was opened in this one."""
        return (self.openings > 0 and following in closes) or (self.calls > 0 and self.values > 0)

    def add(self, piece: str) -> None:
        """Take text of the value."""
        self._others += piece.count(self._opening)
        if self._last and len(self._behind) < _LOOKED_AT:
            self._behind += piece[:_LOOKED_AT]

    def tag(self, marker: str, value: ParameterValue, following: str) -> None:
        """Take a tag that stands in the value behind its text so far; `following`: the character after it."""
        kind = self._kinds[marker]
        self._pair(kind, visible_before=self._visible_behind if self._last else not value.blank)
        self._swallowed = self.swallows or (self._loose and not self._behind)
        self._loose = kind == "value end" and not self.opened and not value.stands_in(following)
        match kind:
            case "key":
                self.calls += self.in_call and not self.calls
                self.values += not self._keyed
                self.openings += not self._keyed
                self._reopened = self.ended
            case "value":
                self.values += self._last == "head" and not self._behind.strip()
                self.openings += 1
                self._reopened = self.ended
            case "value end" if self._others and not self.openings:
                self._others -= 1
            case "value end":
                self.ended = self.ended or self._loose
                self.values = max(0, self.values - 1)
                self.openings = max(0, self.openings - 1)
            case "call end":
                self.calls = 0
                self.values = 0
        self._last = kind
        self._behind = ""
        self._on_line = value.at_line_start

    def _pair(self, kind: str, *, visible_before: bool) -> None:
        """Note whether a tag has its counterpart in the value; `visible_before`: text stands between it and the last one."""
        if not self._last and not visible_before and (self._keyed or kind != "key" or self.declared):
            self._first = kind
        self._visible = self._visible or visible_before
        opening = self._pairs.get(kind)
        self._alone = opening is None or not self._open[opening]
        if opening is None:
            self._open[kind] += 1
        elif not self._alone:
            self._open[opening] -= 1
