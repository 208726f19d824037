"""Read calls whose name is in the JSON, `{"name": N, "arguments": {...}}`, alone or in an array; and plain JSON arguments.

The arguments are given out as they arrive once the name is known. An object that has no name is no call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from responses_gateway.parsers.arguments import ArgumentsReader, NamedCallReader, ReadStatus
from responses_gateway.parsers.arguments.json_value import ArgumentsValue, JsonSpan
from responses_gateway.parsers.delta_buffer import DeltaBuffer
from responses_gateway.parsers.format import CallFormat, JsonEnvelope
from responses_gateway.parsers.lexer import UNDECIDED, Lexer, skip_spaces
from responses_gateway.wire.json_text import plain_json

# The keys under which a call may have its id.
_IDS = ("id", "tool_call_id")


class JsonArgumentsReader(NamedCallReader):
    """Reads the arguments of a call whose name is known from its header."""

    def __init__(self, name: str, call_id: str, deltas: DeltaBuffer, stops: Lexer) -> None:
        super().__init__(name, call_id, deltas)
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
            self._begin()
            self._value = ArgumentsValue(self._deltas.arguments, self._deltas, self._stops)
        at = self._value.read(text, at)
        if self._value.done:
            self.status = ReadStatus.DONE
        return at

    def begin_cut(self) -> bool:
        """Begin the call if its tool is declared."""
        declared = self._deltas.declared(self._name)
        if declared:
            self._begin()
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
        self._extra: set[str] = set()  # keys that are none of a call
        self._key = ""
        self._kept: list[str] | None = None  # the arguments, as they came first
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
        elif self._begun and self._step in (self._read_key, self._colon, self._begin_value, self._read_other):
            self._deltas.cut_call()  # another argument may have begun

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
        return self._end_object(text, at + 1) if char == "}" else self._fail(text, at)

    def _read_key(self, text: str, at: int) -> int:
        at = self._read_span(text, at)
        if self._span is None:
            self._key = str(plain_json("".join(self._pieces)))
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
        if key in syntax.arguments:
            return self._begin_arguments(text, at)
        if key == "function" and text[at] == "{":
            self._depth += 1
            self._step = self._key_or_end
            return at + 1
        if syntax.strict and not self._begun and key not in (*syntax.names, *_IDS, "type", "function"):
            return self._fail(text, at)
        return self._begin_span(at, self._read_other)

    def _begin_arguments(self, text: str, at: int) -> int:
        if self._kept is None and self._name is not None and not self._begin():
            return self._fail(text, at)
        self._pieces = []
        if self._kept is None:
            self._kept = self._pieces
        self._value = ArgumentsValue(self._pieces.append, self._deltas, self._stops)
        self._step = self._read_arguments
        return at

    def _doubt(self, text: str, at: int) -> int:
        """Cut the call: its name or its arguments came twice, and differ, or some of these stand beside the others."""
        if not self._begun:
            return self._fail(text, at)
        self._deltas.repair("malformed_arguments")
        self._deltas.cut_call()
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
        known = len(self._pieces)
        at = self._value.read(text, at)
        if self._begun and self._kept is self._pieces:
            self._deltas.arguments("".join(self._pieces[known:]))
        if self._value.done:
            self._value = None
            self._step = self._next
            if self._kept is not self._pieces and plain_json("".join(self._kept or [])) != plain_json("".join(self._pieces)):
                return self._doubt(text, at)
        return at

    def _read_other(self, text: str, at: int) -> int:
        at = self._read_span(text, at)
        if self._span is not None:
            return at
        value = plain_json("".join(self._pieces))
        self._step = self._next
        if self._key in self._syntax.names and self._name is None:
            if not isinstance(value, str):
                return self._fail(text, at)
            self._name = value
            return self._late_begin(text, at)
        if self._key in _IDS and not self._begun:
            self._call_id = str(value) if isinstance(value, str | int) else ""
        elif self._key in self._syntax.names:
            return at if value == self._name else self._doubt(text, at)
        elif self._key not in (*_IDS, "type"):
            self._deltas.repair("extra_key")
            self._extra.add(self._key)
        return at

    def _late_begin(self, text: str, at: int) -> int:
        """Give out the arguments that came before the name, now that it has come."""
        if self._kept is None:
            return at
        if not self._begin():
            return self._fail(text, at)
        self._deltas.repair("name_after_arguments")
        self._deltas.arguments("".join(self._kept))
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
            unread = self._extra and _parameters(self._deltas, self._name)
            if self._name is None or self._syntax.strict or unread or not self._begin():
                return self._give_up(text, at, None)
            self._deltas.arguments("{}")
        elif not self._extra.isdisjoint(_parameters(self._deltas, self._name)):
            self._doubt(text, at)
        self._deltas.end_call()
        self._step = self._element
        if not self._array:
            self.status = ReadStatus.DONE
        return at

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
            elif self._depth and text[at : at + 1] in ("{", "[", '"', ":"):
                self._deltas.cut_call()  # another argument may follow
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


def _parameters(deltas: DeltaBuffer, name: str | None) -> Collection[str]:
    """Return the parameters of a tool, which a model may write beside the arguments, or in their place."""
    properties = (deltas.schema(name or "") or {}).get("properties")
    return properties if isinstance(properties, Mapping) else ()
