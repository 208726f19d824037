"""Read JSON that arrives in pieces: the end of a value, and the arguments of a call.

The text is passed on as the model wrote it. Only what would not be JSON is mended: raw control characters and invalid
escapes inside strings, and brackets left open where the model itself ended the call."""

from __future__ import annotations

import re
from collections.abc import Callable

from responses_gateway.parsers.arguments.values import escape
from responses_gateway.parsers.delta_buffer import DeltaBuffer
from responses_gateway.parsers.interface import Repair
from responses_gateway.parsers.lexer import UNDECIDED, Lexer, skip_spaces
from responses_gateway.wire.json_text import StringDecoder

_IN_STRING = re.compile(r'["\\<\x00-\x1f]')
_OUTSIDE = re.compile(r'["{}\[\]<]')
_SCALAR_END = re.compile(r"[\s,}\]<]")
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_CUT_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_CLOSING = {"{": "}", "[": "]"}


class JsonSpan:
    """Finds the end of one JSON value. An end marker inside a string is part of the string, unless the string is broken."""

    def __init__(self, stops: Lexer, repair: Callable[[Repair], None]) -> None:
        self.done = False
        self.stopped = False  # an end marker came before the value was complete
        self._stops = stops
        self._repair = repair
        self._open: list[str] = []
        self._started = False
        self._in_string = False
        self._broken = False  # the string has a raw newline, which no JSON string has

    def read(self, text: str, at: int, pieces: list[str]) -> int:
        """Append the text of the value to `pieces`; return the index of the first character that was not consumed."""
        while not self.done and at < len(text):
            step = self._string(text, at, pieces) if self._in_string else self._outside(text, at, pieces)
            if step == at:
                break
            at = step
        return at

    def missing(self) -> str | None:
        """Return the brackets that close the open ones; None if that would not help."""
        return None if self._in_string else "".join(_CLOSING[bracket] for bracket in reversed(self._open))

    def _outside(self, text: str, at: int, pieces: list[str]) -> int:
        bare = not self._open and (self._started or text[at] not in '"{[')
        self._started = True
        match = (_SCALAR_END if bare else _OUTSIDE).search(text, at)
        if match is None:
            pieces.append(text[at:])
            return len(text)
        place = match.start()
        char = match.group()
        if char == "<":
            return self._stop(text, at, place, pieces)
        if bare:
            pieces.append(text[at:place])
            self.done = True
            return place
        if char == '"':
            self._in_string = True
            self._broken = False
        elif char in _CLOSING:
            self._open.append(char)
        else:
            self._close(char)
        pieces.append(text[at : place + 1])
        return place + 1

    def _close(self, bracket: str) -> None:
        if _CLOSING[self._open.pop()] != bracket:
            self._repair("malformed_arguments")
        self.done = not self._open

    def _string(self, text: str, at: int, pieces: list[str]) -> int:
        match = _IN_STRING.search(text, at)
        if match is None:
            pieces.append(text[at:])
            return len(text)
        place = match.start()
        char = match.group()
        if char == "<":
            if self._broken:
                return self._stop(text, at, place, pieces)
            pieces.append(text[at : place + 1])
            return place + 1
        if char == '"':
            self._in_string = False
            self.done = not self._open
            pieces.append(text[at : place + 1])
            return place + 1
        pieces.append(text[at:place])
        if char == "\\":
            return self._escape(text, place, pieces)
        self._broken = self._broken or char == "\n"
        self._repair("escaped_control")
        pieces.append(escape(char))
        return place + 1

    def _escape(self, text: str, place: int, pieces: list[str]) -> int:
        match = _ESCAPE.match(text, place)
        if match is not None:
            pieces.append(match.group())
            return match.end()
        if _CUT_ESCAPE.fullmatch(text, place):
            return place
        self._repair("escaped_control")
        pieces.append("\\\\")
        return place + 1

    def _stop(self, text: str, at: int, place: int, pieces: list[str]) -> int:
        pieces.append(text[at:place])
        marker = self._stops.at(text, place)
        if marker == UNDECIDED:
            return place
        if marker is None:
            pieces.append("<")
            return place + 1
        self.done = self.stopped = True
        return place


class ArgumentsValue:
    """Reads the arguments of a call as a JSON value: an object, a string that holds one, or nothing."""

    def __init__(self, emit: Callable[[str], None], deltas: DeltaBuffer, stops: Lexer) -> None:
        self.done = False
        self._emit = emit
        self._deltas = deltas
        self._stops = stops
        self._span: JsonSpan | None = None
        self._string: StringDecoder | None = None
        self._blank = True  # nothing visible has come of the string
        self._unwrapping = False
        self._kept: list[str] = []  # text that may still turn out to be nothing or a string
        self._inner = ""  # unwrapped text that waits for more
        self._verbatim = False

    def read(self, text: str, at: int) -> int:
        if self._span is None:
            at = skip_spaces(text, at)
            if at == len(text):
                return at
            marker = self._stops.at(text, at)
            if marker == UNDECIDED:
                return at
            if marker is not None:
                self._emit("{}")
                self.done = True
                return at
            self._span = JsonSpan(self._stops, self._deltas.repair)
            self._verbatim = text[at] == "{"
            if text[at] == '"':
                self._string = StringDecoder()
                at += 1
        if self._string is not None:
            return self._read_string(self._string, text, at)
        return self._read_span(self._span, text, at)

    def _read_span(self, span: JsonSpan, text: str, at: int) -> int:
        pieces: list[str] = []
        at = span.read(text, at, pieces)
        if self._verbatim:
            for piece in pieces:
                self._emit(piece)
        else:
            self._kept.extend(pieces)
        if not span.done:
            return at
        self.done = True
        if not self._verbatim:
            word = "".join(self._kept).strip()
            self._emit("{}" if word in ("null", "None", "") else word)
        missing = span.missing() if span.stopped else ""
        if missing:
            self._deltas.repair("unclosed_json")
            self._emit(missing)
        return at

    def _read_string(self, string: StringDecoder, text: str, at: int) -> int:
        piece = string.feed(text[at:])
        self._kept.append(piece)
        if self._blank and piece.strip():
            self._blank = False
            self._unwrapping = piece.lstrip().startswith("{")
            if self._unwrapping:
                self._deltas.repair("stringified_arguments")
        if self._unwrapping:
            self._unwrap()
        if string.closed:
            self.done = True
            if not self._unwrapping:
                inner = "".join(self._kept)
                self._emit(f'"{escape(inner)}"' if inner.strip() else "{}")
        return len(text) - string.unread

    def _unwrap(self) -> None:
        assert self._span is not None
        inner = self._inner + "".join(self._kept)
        self._kept.clear()
        pieces: list[str] = []
        self._inner = inner[self._span.read(inner, 0, pieces) :]
        for piece in pieces:
            self._emit(piece)
