"""Read tagged parameters: `<parameter=K>V</parameter>` and its many relatives.

Values are typed by the JSON schema of the tool. A value that can only be a string is given out as it arrives; any other
when it is complete. An end tag counts only where the markup continues after it, so that a value may contain tags."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from responses_gateway.parsers.arguments import ArgumentsReader, ReadStatus
from responses_gateway.parsers.arguments.values import STRING, dumps, escape, given, obvious, typed, types_of
from responses_gateway.parsers.delta_buffer import DeltaBuffer
from responses_gateway.parsers.format import CallFormat, TaggedParameters
from responses_gateway.parsers.lexer import UNDECIDED, Lexer, compiled, skip_spaces

_HEADER_LIMIT = 256  # longest header of a parameter, in characters
_GAP_LIMIT = 64  # more white space than this after an end tag decides nothing


class ParameterValue:
    """Gives out one value: piece by piece if it is a string, converted at its end if not."""

    def __init__(self, emit: Callable[[str], None], convert: Callable[[str], str] | None, trim: bool) -> None:
        self._emit = emit
        self._convert = convert
        self._trim = trim
        self._fresh = trim
        self._tail = ""  # a newline that belongs to the markup if the value ends here
        self._kept: list[str] = []
        if convert is None:
            emit('"')

    @property
    def at_line_start(self) -> bool:
        return bool(self._tail) or self._fresh

    def add(self, piece: str) -> None:
        """Add the next piece."""
        if not piece:
            return
        if self._fresh:
            self._fresh = False
            piece = piece.removeprefix("\n")
            if not piece:
                return
        if self._trim:
            piece = self._tail + piece
            self._tail = "\n" if piece.endswith("\n") else ""
            piece = piece.removesuffix("\n")
        if self._convert is None:
            self._emit(escape(piece))
        else:
            self._kept.append(piece)

    def close(self) -> str:
        """Give out the rest; return the JSON text of a value that was kept."""
        if self._convert is None:
            self._emit('"')
            return ""
        value = self._convert("".join(self._kept))
        self._emit(value)
        return value


class ParametersReader(ArgumentsReader):
    """Reads the parameters of one call. `outer`: markers that end the call if its own end marker is missing."""

    def __init__(
        self,
        syntax: TaggedParameters,
        call: CallFormat,
        name: str,
        call_id: str,
        deltas: DeltaBuffer,
        markers: Callable[..., Lexer],
        outer: tuple[str, ...],
    ) -> None:
        self._syntax = syntax
        self._name = name
        self._call_id = call_id
        self._deltas = deltas
        self._closes = call.closes
        self._outer_markers = outer
        self._between_markers = markers(*syntax.opens, *call.closes, *syntax.closes, *outer)
        self._head_markers = markers(*syntax.heads)
        self._value_markers = markers(*syntax.values)
        self._inside_markers = markers(*syntax.opens, *syntax.closes, *call.closes)
        self._outer = markers(*outer)
        self._header = compiled(syntax.header)
        schema = deltas.schema(name)
        self._schema: Mapping[str, Any] = schema or {}
        properties = self._schema.get("properties")
        self._properties: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
        self._begun = False
        self._keys: set[str] = set()
        self._opening = ""  # the marker that opened the parameter
        self._value: ParameterValue | None = None
        self._wrapper = ""  # the parameter that may hold all arguments
        self._step: Callable[[str, int], int] = self._between

    def read(self, text: str, at: int) -> int:
        while self.status is ReadStatus.READING:
            step = self._step
            before = at
            at = step(text, at)
            if at == before and self._step == step:
                break
        return at

    def finish(self, cut: bool, rest: str) -> None:
        # The beginning of a marker stands between two parameters: only that of an end is no part of a parameter.
        between = self._step in (self._between, self._stray_text)
        if between and not cut and (not rest or any(marker.startswith(rest) for marker in self._closes)):
            self._deltas.repair("missing_end")
            self._end()
        elif self._begun:
            self._deltas.cut_call()

    def _between(self, text: str, at: int) -> int:
        at = skip_spaces(text, at)
        marker = self._between_markers.at(text, at)
        if marker == UNDECIDED:
            return at
        if marker is None:
            self._step = self._stray_text
            return at
        end = at + len(marker)
        if marker in self._syntax.closes and not self._begun:
            self.status = ReadStatus.REJECTED
            return at
        if marker in self._outer_markers and marker not in self._closes:
            self._deltas.repair("missing_end")
            self._end()
            return at
        self._between_markers.take(marker)
        if marker in self._syntax.opens:
            self._begin()
            self._opening = marker
            self._step = self._head
        elif marker in self._closes:
            self._end()
        else:
            self._deltas.repair("stray_end")
        return end

    def _stray_text(self, text: str, at: int) -> int:
        """Keep text where only tags belong."""
        if not self._begun:
            self.status = ReadStatus.REJECTED
            return at
        hit = self._between_markers.find(text, at)
        end = hit.start if hit else self._between_markers.held(text, at)
        self._deltas.stray(text[at:end])
        self._step = self._between if hit else self._stray_text
        return end

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._deltas.begin_call(self._name, self._call_id)

    def _end(self) -> None:
        self._begin()
        self._deltas.arguments("}" if self._keys else "{}")
        self.status = ReadStatus.DONE

    def _head(self, text: str, at: int) -> int:
        hit = self._head_markers.find(text, at)
        if hit is None and len(text) - at <= _HEADER_LIMIT:
            return at
        if hit is None or hit.start - at > _HEADER_LIMIT:
            self._deltas.stray(self._opening)
            self._step = self._between
            return at
        self._head_markers.take(hit.marker)
        header = self._header.fullmatch(text[at : hit.start].strip())
        if header is None:
            self._deltas.stray(self._opening + text[at : hit.end])
            self._step = self._between
            return hit.end
        groups = header.groupdict()
        key = header["key"].replace("&quot;", '"').replace("&amp;", "&") if self._syntax.escaped else header["key"]
        self._open_value(key, groups)
        self._step = self._gap if self._syntax.values else self._inside
        return hit.end

    def _open_value(self, key: str, groups: Mapping[str, str | None]) -> None:
        emit = self._deltas.arguments
        wraps = not self._keys and key in self._syntax.wrappers and key not in self._properties
        self._wrapper = key if wraps else ""
        if self._wrapper:
            emit = _discard
        else:
            self._deltas.arguments(f"{', ' if self._keys else '{'}{dumps(key)}: ")
            self._keys.add(key)
        self._value = ParameterValue(emit, self._conversion(key, groups), self._syntax.trim)

    def _conversion(self, key: str, groups: Mapping[str, str | None]) -> Callable[[str], str] | None:
        """Return the function that makes the value JSON; None if it is a string in any case."""
        if self._wrapper:
            return given
        if groups.get("text") is not None:
            return None
        if groups.get("json") is not None:
            return given
        if key not in self._properties:
            return obvious
        types = types_of(self._properties[key], self._schema)
        return None if types == STRING else lambda text: typed(text, types)

    def _gap(self, text: str, at: int) -> int:
        """Read from a key to its value, where both have tags of their own."""
        at = skip_spaces(text, at)
        marker = self._value_markers.at(text, at)
        if marker == UNDECIDED:
            return at
        self._step = self._inside
        if marker is None:
            return at
        self._value_markers.take(marker)
        return at + len(marker)

    def _inside(self, text: str, at: int) -> int:
        assert self._value is not None
        while True:
            hit = self._inside_markers.find(text, at)
            if hit is None:
                end = self._inside_markers.held(text, at)
                self._value.add(text[at:end])
                return end
            self._value.add(text[at : hit.start])
            ended = self._ends(hit.marker, text, hit.end)
            if ended is None:
                return hit.start
            if ended:
                return self._close_value(hit.marker, hit.start, hit.end)
            self._value.add(hit.marker)
            at = hit.end

    def _ends(self, marker: str, text: str, end: int) -> bool | None:
        """Tell whether the value ends at this marker; None if more text is needed to tell."""
        if marker in self._syntax.opens:
            return self._opens_declared(text, end)
        following = self._between_markers if marker in self._syntax.closes else self._outer
        place = skip_spaces(text, end)
        if place - end > _GAP_LIMIT or (self._deltas.final and place == len(text)):
            return True
        found = following.at(text, place)
        if found == UNDECIDED:
            return True if self._deltas.final else None
        return found is not None

    def _opens_declared(self, text: str, at: int) -> bool | None:
        """Tell whether a parameter that opens inside a value ends it: on a line of its own, and if the tool declares it."""
        assert self._value is not None
        if not self._value.at_line_start:
            return False
        hit = self._head_markers.find(text, at)
        if hit is None and len(text) - at <= _HEADER_LIMIT:
            return False if self._deltas.final else None
        if hit is None or hit.start - at > _HEADER_LIMIT:
            return False
        header = self._header.fullmatch(text[at : hit.start].strip())
        return header is not None and header["key"] in self._properties and header["key"] not in self._keys

    def _close_value(self, marker: str, start: int, end: int) -> int:
        assert self._value is not None
        value = self._value.close()
        self._value = None
        self._step = self._between
        if self._wrapper:
            self._unwrap(value)
        if marker in self._syntax.closes:
            self._inside_markers.take(marker)
            return end
        self._deltas.repair("missing_end")
        return start

    def _unwrap(self, value: str) -> None:
        """Give out the members of the object that the one parameter holds."""
        inner = json.loads(value)
        if not isinstance(inner, dict):
            inner = {self._wrapper: inner}
        else:
            self._deltas.repair("wrapped_arguments")
        for key, item in inner.items():
            self._deltas.arguments(f"{', ' if self._keys else '{'}{dumps(key)}: {dumps(item)}")
            self._keys.add(key)


def _discard(piece: str) -> None:
    """Ignore a wrapper's own text: its content is given out when it is complete."""
