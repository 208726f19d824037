"""Arguments that are no JSON, where there is one reading of them.

What is read: line breaks and other control characters in strings, escapes that JSON does not know (if a string has no others),
commas before a closing bracket, literals and strings of Python, a fence around it all, a bracket or a text behind it, all of it
as a JSON string, and an object that lacks only its last bracket, behind a value that is whole. What is not: a string or a list
that was cut, quotes that are not escaped, a key that stands twice, a second object, members behind the object."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from responses_gateway.stream.validity.schema import Steps, Unchecked
from responses_gateway.wire.json_text import refuse_constant

# Longer arguments are not read, in characters, nor deeper ones.
_LONGEST = 128 * 1024
_DEEPEST = 32

_SPACE = re.compile(r"[ \t\r\n]*")
_FENCE = re.compile(r"[ \t\r\n]*```[A-Za-z0-9]*[ \t]*\r?\n?")
_FENCE_END = re.compile(r"[ \t\r\n]*```")
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_PYTHON_STRING = re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL)
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]{0,400})(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?)(?=[ \t\r\n,\]}])")
_WORD = re.compile(r"(true|false|null|True|False|None)(?![A-Za-z0-9_])")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_KNOWN = re.compile(r'["\\/bfnrt]|u[0-9a-fA-F]{4}')
# Escapes of other languages: what they stand for there may be meant.
_ELSEWHERE = re.compile(r"\\(?:['`\n\r]|x[0-9a-fA-F]{2}|U[0-9a-fA-F]{8})")
_CONTROL = re.compile(r"[\x00-\x1f]")
# In a string of Python between single quotes: an escape, or a character that JSON wants escaped.
_PYTHON_PIECE = re.compile(r'\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)|"', re.DOTALL)
# Where another object may begin.
_OBJECT = re.compile(r"\{\s*[\"']")
# The end of a string, and of what it is in.
_STRING_END = re.compile(r"\"\s*[\]}]")
# Where the members of an object may go on.
_MEMBERS = re.compile(r"[\s\]}]*[,:]")


class MeantObject(NamedTuple):
    """An object that was read, and what had to be repaired, by kind."""

    value: dict[str, Any]
    kinds: tuple[str, ...]


class _NoReading(ValueError):
    """There is none, or more than one."""


def hides_more(rest: str) -> bool:
    """Tell whether another object, or the end of a string whose quotes are not escaped, stands behind an object."""
    if _OBJECT.search(rest) is not None:
        return True
    return rest.count('"') % 2 == 1 and _STRING_END.search(rest, rest.rindex('"')) is not None


def contradicts_itself(text: str) -> bool:
    """Tell whether a key stands twice in JSON, with different values."""
    try:
        decoded(text[:_LONGEST])
    except ValueError as error:
        return isinstance(error, _NoReading)
    return False


def decoded(text: str) -> Any:
    """Return the value of JSON. Raise `ValueError` for what is none, or has a key twice, with different values."""
    try:
        return json.loads(text, object_pairs_hook=_members, parse_constant=refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_malformed(text: str, steps: Steps) -> MeantObject | None:
    """Return the one object that was meant; None if there is no such reading. Raise `Unchecked` if that takes too long."""
    if len(text) > _LONGEST:
        raise Unchecked
    try:
        return _Reader(text, steps).whole()
    except (ValueError, RecursionError):
        return None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs) and any(members[key] != value for key, value in pairs):
        raise _NoReading
    return members


class _Reader:
    """Reads one text from its beginning. Each kind of repair is noted once, in order."""

    def __init__(self, text: str, steps: Steps) -> None:
        self._text = text
        self._at = 0
        self._steps = steps
        self._kinds: dict[str, None] = {}
        self._cut = False  # the last bracket is missing

    def whole(self) -> MeantObject:
        """Read all of it."""
        fence = _FENCE.match(self._text)
        if fence is not None:
            self._kinds["fence"] = None
            self._at = fence.end()
        self._skip()
        value = self._value(0)
        self._read_rest(fenced=fence is not None)
        if type(value) is str and self._kinds.keys() <= {"fence"}:
            self._kinds["stringified_arguments"] = None
            value = decoded(value)
        if type(value) is not dict:
            raise _NoReading
        return MeantObject(value, tuple(self._kinds))

    def _read_rest(self, *, fenced: bool) -> None:
        if fenced:
            end = _FENCE_END.match(self._text, self._at)
            self._at = self._at if end is None else end.end()
        rest = self._text[self._at :].strip()
        if hides_more(rest) or _MEMBERS.match(rest) or (rest and self._cut):
            raise _NoReading
        if rest:
            self._kinds["extra_bracket" if not rest.strip("]} \t\r\n") else "trailing_text"] = None

    def _skip(self) -> str:
        """Skip white space; return the next character."""
        match = _SPACE.match(self._text, self._at)
        self._at = self._at if match is None else match.end()
        return self._text[self._at : self._at + 1]

    def _take(self, expression: re.Pattern[str]) -> str:
        match = expression.match(self._text, self._at)
        if match is None:
            raise _NoReading
        self._at = match.end()
        return match[1]

    def _value(self, depth: int) -> Any:
        self._steps.take()
        if depth > _DEEPEST:
            raise _NoReading
        match self._text[self._at : self._at + 1]:
            case "{":
                return self._object(depth)
            case "[":
                return self._list(depth)
            case '"' | "'":
                return self._string()
            case "-" | "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9":
                return decoded(self._take(_NUMBER))
            case _:
                word = self._take(_WORD)
                if word[0].isupper():
                    self._kinds["python_literal"] = None
                return _WORDS[word]

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self._at += 1
        character = self._skip()
        while character != "}":
            if character not in ("'", '"'):
                raise _NoReading
            name = self._string()
            if name in members or self._skip() != ":":
                raise _NoReading
            self._at += 1
            self._skip()
            members[name] = self._value(depth + 1)
            character = self._skip()
            if character == "" and depth == 0 and not self._cut:
                self._cut = True
                self._kinds["missing_bracket"] = None
                return members
            character = self._next(character, "}")
        self._at += 1
        return members

    def _list(self, depth: int) -> list[Any]:
        values: list[Any] = []
        self._at += 1
        character = self._skip()
        while character != "]":
            values.append(self._value(depth + 1))
            character = self._next(self._skip(), "]")
        self._at += 1
        return values

    def _next(self, character: str, end: str) -> str:
        """Read what stands behind a value: a comma, or the end. Return the character that follows, or the end."""
        if character == end:
            return character
        if character != ",":
            raise _NoReading
        self._at += 1
        character = self._skip()
        if character == end:
            self._kinds["trailing_comma"] = None
        return character

    def _string(self) -> str:
        if self._text[self._at] == "'":
            self._kinds["python_literal"] = None
            body = _PYTHON_PIECE.sub(_in_json, self._take(_PYTHON_STRING))
        else:
            body = self._take(_STRING)
        if _CONTROL.search(body):
            self._kinds["control_character"] = None
        if "\\" in body:
            escapes = _ESCAPE.findall(body)
            self._steps.take(len(escapes) // 16)
            known = [escape for escape in escapes if _KNOWN.fullmatch(escape)]
            if len(known) < len(escapes):
                if known or _ELSEWHERE.search(body):
                    raise _NoReading
                self._kinds["invalid_escape"] = None
                return body
        value = json.loads(f'"{body}"', strict=False)
        assert isinstance(value, str)
        return value


def _in_json(piece: re.Match[str]) -> str:
    """Return a piece of a string of Python as it stands in one of JSON. Raise `_NoReading` for an escape that they read in
    different ways."""
    escape = piece[1]
    if escape is None:
        return '\\"'
    if escape == "'":
        return "'"
    if escape[0] == "x" and len(escape) == 3:
        return "\\u00" + escape[1:]
    if escape in ("\\", '"', "b", "f", "n", "r", "t") or (escape[0] == "u" and len(escape) == 5):
        return piece[0]
    raise _NoReading
