"""Write JSON, and read JSON that is still being written: whether it is closed, and its strings so far."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring
from operator import is_
from typing import Any, TypeVar

import msgspec

from responses_gateway.wire.tools import CUSTOM_INPUT

_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')
# Pieces with more characters are searched for values as a whole, because each bracket takes a microsecond.
_LONG = 4096
_WHOLE = r'[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+"'
for _ in range(2):  # levels of nesting
    _WHOLE += rf"|\{{(?:{_WHOLE})*+\}}|\[(?:{_WHOLE})*+\]"
_WHOLES = re.compile(rf"(?:{_WHOLE})*+", re.DOTALL)
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_LOW_SURROGATE = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_REPLACEMENT = "\ufffd"
# A surrogate pair, or half of one, as escapes: what begins it may be the end of an escaped backslash.
_SURROGATES = re.compile(rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|[c-fC-F][0-9a-fA-F]{2})")
_HALF = len(rb"\ud83d")
T = TypeVar("T")

_any_object = msgspec.json.Decoder(dict[str, Any])

encode = msgspec.json.Encoder().encode
# Writes JSON as models do, with spaces. Made once, because `json.dumps` makes one for each call.
spaced_json = json.JSONEncoder(ensure_ascii=False).encode
# Returns a text as a JSON string.
quote = encode_basestring


def same_list(one: list[Any] | None, other: list[Any] | None) -> bool:
    """Tell whether two lists are the same JSON: for Python alone, 1 equals true. Quick for those that have the same objects."""
    if one and other and len(one) == len(other) and all(map(is_, one, other)):
        return True
    return encode(one) == encode(other)


def json_text(value: Any) -> str:
    """Return plain data as compact JSON."""
    try:
        return encode(value).decode()
    except UnicodeEncodeError:  # half a surrogate pair: the encoder of the stream replaces it
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=msgspec.json.decode)


def member_json(item: Mapping[str, Any], name: str) -> str:
    """Return the JSON of a member of an object; empty if it has none."""
    return json_text(item[name]) if name in item else ""


def quoted(value: Any) -> bytes:
    """Return a text, or other plain data, as JSON in UTF-8."""
    try:
        return encode(value)
    except UnicodeEncodeError:  # half a surrogate pair
        return json_text(value).encode("utf-8", "replace")


def sendable(text: str) -> str:
    """Return the text as a client gets it: halves of surrogate pairs cannot be sent."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def json_object(text: str) -> str | None:
    """Return the JSON object that a model wrote as strict JSON, or None if it is no object. Control characters in strings,
    which JSON wants escaped, are taken as the model means them, and a string with an object in it is that; all else stays."""
    try:
        _any_object.decode(text)
    except (ValueError, RecursionError):
        return _mended(text)[0]
    return text


def read_object(text: str) -> dict[str, Any] | None:
    """Return the object that a model wrote as JSON, in the same way."""
    text = text.encode("utf-8", "replace").decode()
    try:
        return _any_object.decode(text)
    except (ValueError, RecursionError):
        return _mended(text)[1]


def plain_json(text: str | bytes) -> Any:
    """Return what a text means as JSON; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def refuse_constant(name: str) -> Any:
    """Raise `ValueError` for `NaN` and `Infinity`, as `parse_constant` of Python's `json`, which takes them for JSON."""
    raise ValueError(f"{name} is not JSON")


def with_whole_characters(data: bytes) -> bytes:
    """Return JSON with U+FFFD for half a surrogate pair that is written as an escape: programs in JavaScript send one where
    they cut a text within an emoji, and send it again with each turn."""
    return _SURROGATES.sub(_whole, data)


def _whole(match: re.Match[bytes]) -> bytes:
    data = match.string
    start = match.start()
    first = start
    while data[first - 1 : first] == b"\\":
        first -= 1
    low = match[1]
    if (start - first) % 2:  # a backslash in a text
        return match[0][:_HALF] + (rb"\ufffd" if low else b"")
    return match[0] if low else rb"\ufffd"


def decode_as(data: bytes, kind: type[T]) -> T:
    """Decode JSON that somebody else has made. Raise `msgspec.DecodeError` for all that it cannot be."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (RecursionError, UnicodeDecodeError) as error:
        raise msgspec.DecodeError(str(error)) from None


def _mended(text: str) -> tuple[str | None, dict[str, Any] | None]:
    """Return an object that is no strict JSON as such, and as an object; None if it is none. It may be encoded twice."""
    try:
        value = json.loads(text, strict=False)
        value = json.loads(value, strict=False) if isinstance(value, str) else value
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
        return written, _any_object.decode(written)
    except (ValueError, RecursionError):
        return None, None


@dataclass(slots=True)
class JsonScanner:
    """Finds where the brackets of a JSON object or array that arrives in pieces are closed. Linear in the text."""

    _depth: int = 0
    _opened: bool = False
    _in_string: bool = False
    _escaped: bool = False

    @property
    def closed(self) -> bool:
        """A bracket was opened, and every bracket and string is closed again."""
        return self._opened and self._depth <= 0 and not self._in_string

    def feed(self, text: str) -> int:
        """Read the next piece. Return where the object or array ends in it, or the length of the piece if it does not end."""
        if self.closed:
            return 0
        at = 0
        if self._escaped and text:
            at = 1
            self._escaped = False
        while True:
            if len(text) > _LONG and self._depth > 0 and not self._in_string:
                at = _WHOLES.match(text, at).end()  # type: ignore[union-attr]  # which may be empty
            match = (_INSIDE if self._in_string else _OUTSIDE).search(text, at)
            if match is None:
                return len(text)
            at = match.end()
            match match[0]:
                case '"':
                    self._in_string = not self._in_string
                case "\\":
                    self._escaped = at == len(text)
                    at += 1
                case "{" | "[":
                    self._depth += 1
                    self._opened = True
                case _:
                    self._depth -= 1
                    if self.closed:
                        return at


@dataclass(slots=True)
class StringDecoder:
    """Decodes the inside of a JSON string that arrives in pieces, from just behind its opening quote. An escape cut by the end
    of a piece waits for the next one, a high surrogate for its low half. What JSON forbids (raw control characters, unknown
    escapes, lone surrogates) is taken as a model would mean it, never refused: the backslash of an unknown escape is kept, and
    a lone surrogate is replaced by U+FFFD."""

    _rest: str = ""
    closed: bool = False
    unread: int = 0  # characters of the last piece behind the closing quote

    def feed(self, text: str) -> str:
        """Return the characters that the piece completes; nothing more once the closing quote was read."""
        if self.closed:
            return ""
        text = self._rest + text
        self._rest = ""
        out: list[str] = []
        at = 0
        while True:
            match = _INSIDE.search(text, at)
            if match is None:
                out.append(text[at:])
                break
            out.append(text[at : match.start()])
            if match[0] == '"':
                self.closed = True
                self.unread = len(text) - match.end()
                break
            decoded = _escape(text, match.end())
            if decoded is None:
                self._rest = text[match.start() :]
                break
            character, at = decoded
            out.append(character)
        return "".join(out)


def _escape(text: str, at: int) -> tuple[str, int] | None:
    """Return the character of the escape whose backslash stands before `at`, and where it ends; None if it is cut."""
    letter = text[at : at + 1]
    if letter != "u":
        return (_ESCAPES.get(letter, "\\" + letter), at + 1) if letter else None
    digits = _HEX4.match(text, at + 1)
    if digits is None:
        cut = len(text) < at + 5 and re.fullmatch(r"[0-9a-fA-F]*", text[at + 1 :])
        return None if cut else ("\\u", at + 1)
    code = int(digits[0], 16)
    at += 5
    if not 0xD800 <= code < 0xE000:
        return chr(code), at
    if code >= 0xDC00:
        return _REPLACEMENT, at
    low = _LOW_SURROGATE.match(text, at)
    if low is not None:
        return chr(0x10000 + ((code - 0xD800) << 10) + (int(low[1], 16) - 0xDC00)), at + 6
    if len(text) < at + 6 and re.fullmatch(r"(\\(u[dD]?([dD][c-fC-F][0-9a-fA-F]?)?)?)?", text[at:]):
        return None
    return _REPLACEMENT, at


@dataclass(slots=True)
class CustomInput:
    """Takes the freeform text of a tool out of the arguments of the function that stands for it. Expected is an object with the
    one member `member`, a string, which is decoded as it arrives. A model may write something else: then all is kept, and
    `finish` takes the one string of the object, else the arguments as they stand."""

    member: str = CUSTOM_INPUT
    tool: str = ""  # its name: gpt-oss writes `{"command": ["apply_patch", "…"]}`, as it would call a program
    _buffer: str = ""
    _decoder: StringDecoder | None = None
    _undecided: bool = True

    @property
    def expected(self) -> bool:
        """Whether the arguments have the expected form."""
        return self._decoder is not None

    @property
    def closed(self) -> bool:
        """Whether they have it, and the string that is the input is closed."""
        return self._decoder is not None and self._decoder.closed

    def feed(self, text: str) -> str:
        """Return the piece of input that this piece of the arguments completes."""
        if self._decoder is not None:
            return self._decoder.feed(text)
        if not self._undecided:
            return ""
        self._buffer += text
        head = re.match(rf'\s*\{{\s*"{self.member}"\s*:\s*"', self._buffer)
        if head is not None:
            self._decoder = StringDecoder()
            return self._decoder.feed(self._buffer[head.end() :])
        self._undecided = f'{{"{self.member}":"'.startswith("".join(self._buffer.split()))
        return ""

    def finish(self, arguments: str) -> str:
        """Return the rest of the input. `arguments` are all of them, once more, for those that are not of the expected form."""
        if self._decoder is not None:
            return ""
        try:
            value: Any = json.loads(arguments, strict=False)
        except (ValueError, RecursionError):
            return arguments
        if isinstance(value, str):  # which may be the expected object once more
            inner = read_object(value)
            value = inner if inner is not None and list(inner) == [self.member] else value
        if isinstance(value, dict):
            values = [v[1] if isinstance(v, list) and len(v) == 2 and v[0] == self.tool else v for v in value.values()]
            strings = [v for v in values if isinstance(v, str)]
            entry = value.get(self.member)
            value = entry if isinstance(entry, str) else strings[0] if len(strings) == 1 else value
        return sendable(value) if isinstance(value, str) else arguments if value else ""
