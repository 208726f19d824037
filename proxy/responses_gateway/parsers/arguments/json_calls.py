"""Read calls whose name is in the JSON, `{"name": N, "arguments": {...}}`, alone or in an array; and plain JSON arguments.

The arguments are given out as they arrive once the name is known. An object that has no name is no call."""

from __future__ import annotations

import json
from collections.abc import Callable

from responses_gateway.parsers.arguments import ArgumentsReader, ReadStatus
from responses_gateway.parsers.arguments.json_value import ArgumentsValue, JsonSpan
from responses_gateway.parsers.delta_buffer import DeltaBuffer
from responses_gateway.parsers.format import CallFormat, JsonEnvelope
from responses_gateway.parsers.lexer import UNDECIDED, Lexer, skip_spaces


class JsonArgumentsReader(ArgumentsReader):
    """Reads the arguments of a call whose name is known from its header."""

    def __init__(self, name: str, call_id: str, deltas: DeltaBuffer, stops: Lexer) -> None:
        self._name = name
        self._call_id = call_id
        self._deltas = deltas
        self._stops = stops
        self._value: ArgumentsValue | None = None

    def read(self, text: str, at: int) -> int:
        if self._value is None:
            at = skip_spaces(text, at)
            marker = self._stops.at(text, at)
            if marker == UNDECIDED and not (self._deltas.final and at == len(text)):
                return at
            if marker is None and text[at] not in '{"n':
                self.status = ReadStatus.REJECTED
                return at
            self._deltas.begin_call(self._name, self._call_id)
            self._value = ArgumentsValue(self._deltas.arguments, self._deltas, self._stops)
        at = self._value.read(text, at)
        if self._value.done:
            self.status = ReadStatus.DONE
        return at

    def begin_cut(self) -> bool:
        """Begin the call if its tool is declared."""
        declared = self._deltas.declared(self._name)
        if declared:
            self._deltas.begin_call(self._name, self._call_id)
        return declared


class JsonEnvelopeReader(ArgumentsReader):
    """Reads name and arguments in one object, or several such objects in an array."""

    def __init__(self, syntax: JsonEnvelope, call: CallFormat, deltas: DeltaBuffer, stops: Lexer) -> None:
        self._syntax = syntax
        self._declared_only = call.declared_only
        self._deltas = deltas
        self._stops = stops
        self._array = False
        self._any_call = False  # a call has been given out
        self._step: Callable[[str, int], int] = self._start
        self._begin_object()

    def _begin_object(self) -> None:
        self._depth = 0
        self._name: str | None = None
        self._call_id = ""
        self._begun = False
        self._extra = False  # a key that is none of a call came before any arguments
        self._key = ""
        self._kept: list[str] | None = None  # arguments that wait for the name
        self._span: JsonSpan | None = None
        self._pieces: list[str] = []
        self._value: ArgumentsValue | None = None
        self._withheld: list[str] = []  # text of this object, until some of it has been given out

    def read(self, text: str, at: int) -> int:
        self._mark = at
        while self.status is ReadStatus.READING:
            if self._span is None and self._value is None:
                at = skip_spaces(text, at)
            if at >= len(text):
                break
            step = self._step
            before = at
            at = step(text, at)
            if at == before and self._step == step:  # it waits for more text
                break
        if self._any_call and not self._begun:
            self._withheld.append(text[self._mark : at])
        return at

    def begin_cut(self) -> bool:
        """Begin the call if its name has come, and is that of a declared tool."""
        return self._name is not None and self._deltas.declared(self._name) and self._begin()

    def finish(self, cut: bool, _rest: str) -> None:
        """Give out an object as text if none of it was given out; one that is not complete stays so."""
        if self._any_call and not self._begun and not (cut and self.begin_cut()):
            self._deltas.stray("".join(self._withheld))

    def _start(self, text: str, at: int) -> int:
        if text[at] == "[" and not self._array:
            self._array = True
            self._step = self._element
            return at + 1
        return self._element(text, at)

    def _element(self, text: str, at: int) -> int:
        char = text[at]
        if char == "{":
            self._begin_object()
            self._depth = 1
            self._mark = at
            self._step = self._key_or_end
            return at + 1
        if char == "," and self._array:
            return at + 1
        if char == "]" and self._array and self._any_call:
            self.status = ReadStatus.DONE
            return at + 1
        return self._fail(text, at)

    def _key_or_end(self, text: str, at: int) -> int:
        char = text[at]
        if char == '"':
            return self._begin_span(at, self._read_key)
        if char == ",":
            return at + 1
        if char == "}":
            return self._end_object(text, at + 1)
        return self._fail(text, at)

    def _read_key(self, text: str, at: int) -> int:
        at = self._read_span(text, at)
        if self._span is None:
            self._key = str(_loads(self._pieces))
            self._step = self._colon
        return at

    def _colon(self, text: str, at: int) -> int:
        if text[at] != ":":
            return self._fail(text, at)
        self._step = self._begin_value
        return at + 1

    def _begin_value(self, text: str, at: int) -> int:
        syntax = self._syntax
        key = self._key
        if syntax.name_is_key and self._name is None:
            self._name = key
            return self._begin_arguments(text, at)
        if key in syntax.arguments and not self._begun and self._kept is None:
            return self._begin_arguments(text, at)
        if key == "function" and text[at] == "{":
            self._depth += 1
            self._step = self._key_or_end
            return at + 1
        if syntax.strict and key not in (*syntax.names, *syntax.ids, "type", "function"):
            return self._fail(text, at)
        return self._begin_span(at, self._read_other)

    def _begin_arguments(self, text: str, at: int) -> int:
        if self._name is None:
            self._kept = []
            emit = self._kept.append
        else:
            if not self._begin():
                return self._fail(text, at)
            emit = self._deltas.arguments
        self._value = ArgumentsValue(emit, self._deltas, self._stops)
        self._step = self._read_arguments
        return at

    def _begin(self) -> bool:
        name = self._name or ""
        if not name or (self._declared_only and not self._deltas.declared(name)):
            return False
        self._deltas.begin_call(name, self._call_id)
        self._begun = self._any_call = True
        return True

    def _read_arguments(self, text: str, at: int) -> int:
        assert self._value is not None
        at = self._value.read(text, at)
        if self._value.done:
            self._value = None
            self._step = self._next
        return at

    def _read_other(self, text: str, at: int) -> int:
        at = self._read_span(text, at)
        if self._span is not None:
            return at
        value = _loads(self._pieces)
        self._step = self._next
        if self._key in self._syntax.names and self._name is None:
            if not isinstance(value, str):
                return self._fail(text, at)
            self._name = value
            return self._late_begin(text, at)
        if self._key in self._syntax.ids and not self._begun:
            self._call_id = str(value) if isinstance(value, str | int) else ""
        elif self._key not in (*self._syntax.ids, "type"):
            self._deltas.repair("extra_key")
            self._extra = self._extra or not self._begun
        return at

    def _late_begin(self, text: str, at: int) -> int:
        """Give out the arguments that came before the name, now that it has come."""
        if self._kept is None:
            return at
        if not self._begin():
            return self._fail(text, at)
        self._deltas.repair("name_after_arguments")
        for piece in self._kept:
            self._deltas.arguments(piece)
        return at

    def _next(self, text: str, at: int) -> int:
        if text[at] in ",}":
            self._step = self._key_or_end
            return at
        return self._fail(text, at)

    def _end_object(self, text: str, at: int) -> int:
        self._depth -= 1
        self._step = self._next
        if self._depth:
            return at
        if not self._begun:
            if self._name is None or self._syntax.strict or self._is_unread(self._name) or not self._begin():
                return self._give_up(text, at, None)
            self._deltas.arguments("{}")
        self._deltas.end_call()
        self._step = self._element
        if not self._array:
            self.status = ReadStatus.DONE
        return at

    def _is_unread(self, name: str) -> bool:
        """Tell whether an object without arguments has some all the same, as keys of its own, of a tool that takes some."""
        return self._extra and bool((self._deltas.schema(name) or {}).get("properties"))

    def _fail(self, text: str, at: int) -> int:
        """End the calls here, where no call can be read. An object of which nothing was given out is text."""
        marker = self._stops.at(text, at)
        if marker == UNDECIDED:
            self._step = self._fail  # whatever comes: else it would depend on how the text is cut
            return at
        return self._give_up(text, at, marker)

    def _give_up(self, text: str, at: int, marker: str | None) -> int:
        if self._any_call:
            if not self._begun:
                self._deltas.stray("".join(self._withheld) + text[self._mark : at])
                self._mark = at
            self._deltas.repair("unclosed_json" if marker else "malformed_arguments")
        self.status = ReadStatus.DONE if self._any_call else ReadStatus.REJECTED
        return at

    def _begin_span(self, at: int, step: Callable[[str, int], int]) -> int:
        self._span = JsonSpan(self._stops, self._deltas.repair)
        self._pieces = []
        self._step = step
        return at

    def _read_span(self, text: str, at: int) -> int:
        assert self._span is not None
        at = self._span.read(text, at, self._pieces)
        if self._span.done:
            self._span = None
        return at


def _loads(pieces: list[str]) -> object:
    try:
        return json.loads("".join(pieces))
    except ValueError:
        return None
