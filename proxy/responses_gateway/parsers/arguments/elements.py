"""Read parameters that are elements named after them, nested for objects and arrays.

Every tag has a prefix that text never has, so a value can hold any other tag, and a part of one in a value is a tag written
wrongly. A parameter that can only be a string is given out as it arrives; any other when its element is closed.

The call is cut unless its elements nest: one may lack its end, or have it twice, where it is clear what it holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from responses_gateway.parsers.arguments import NamedCallReader, ReadStatus
from responses_gateway.parsers.arguments.values import STRING, ParameterTypes, dumps, escape, obvious, parts_of, typed, types_of
from responses_gateway.parsers.delta_buffer import DeltaBuffer
from responses_gateway.parsers.format import CallFormat, NestedElements
from responses_gateway.parsers.lexer import UNDECIDED, Lexer, skip_spaces

_TAG = re.compile(r"<(/?)([^<>]{1,128})>")
_TAG_LIMIT = 160
_SIGN = 4  # characters of the prefix, at one of its ends, by which it is known though it is written wrongly
_DEPTH_LIMIT = 128
_ENTRY = "item"  # the name of an element of an array


@dataclass
class _Element:
    name: str
    schema: Any
    text: list[str] = field(default_factory=list)
    children: list[tuple[str, str]] = field(default_factory=list)  # name and JSON text
    streamed: bool = False
    blank: bool = True  # nothing visible has come


class ElementsReader(NamedCallReader):
    """Reads the elements of one call."""

    def __init__(
        self,
        syntax: NestedElements,
        call: CallFormat,
        name: str,
        call_id: str,
        deltas: DeltaBuffer,
        markers: Callable[..., Lexer],
        outer: tuple[str, ...],
    ) -> None:
        super().__init__(name, call_id, deltas)
        self._syntax = syntax
        self._closes = call.closes
        self._opens = call.opens
        self._markers = markers(syntax.prefix)
        self._end_markers = markers(*call.closes, *outer)
        self._root: Mapping[str, Any] = deltas.schema(name) or {}
        self._types = ParameterTypes(self._root)
        self._stack: list[_Element] = []
        self._keys: set[str] = set()
        self._stray = False  # text stands between the elements
        self._closed = ""  # the element that has ended last
        self._texts: list[str] = []  # all text of the call
        self._unclear = False  # markup stands in a value, or a part cannot be read

    def read(self, text: str, at: int) -> int:
        while self.status is ReadStatus.READING:
            before = at
            stray = self._stray
            outside = self._stray_text if stray else self._between
            step = self._content if self._stack else outside
            at = step(text, at)
            if at == before and self._stray is stray:
                break
        return at

    def finish(self, cut: bool, rest: str) -> None:
        # The beginning of a tag stands between two elements: only that of the end of the call is no part of an element.
        whole = not self._stack and (not rest or any(marker.startswith(rest) for marker in self._closes))
        if whole and not cut:
            self._deltas.repair("missing_end")
            self._end()
        else:
            self._deltas.cut_call()

    def _between(self, text: str, at: int) -> int:
        at = skip_spaces(text, at)
        marker = self._end_markers.at(text, at)
        if marker is not None and marker in self._closes:
            self._end_markers.take(marker)
            self._end()
            return at + len(marker)
        missing = not self._types.expected <= self._keys
        if marker and missing and not self._begun:
            self.status = ReadStatus.REJECTED  # what the call was to have is missing, or its opening stands there twice
            return at
        if marker and not (missing and marker in self._opens):
            self._unclear = self._unclear or missing
            self._deltas.repair("missing_end")
            self._end()
            return at
        prefix = self._markers.at(text, at)
        if UNDECIDED in (marker, prefix):
            return at
        if prefix is None:
            if not self._begun:
                self.status = ReadStatus.REJECTED
                return at
            self._stray = True
            return self._stray_text(text, at)
        return self._tag(text, at, at + len(prefix))

    def _stray_text(self, text: str, at: int) -> int:
        """Keep text where only elements belong."""
        hit = self._markers.find(text, at)
        end = hit.start if hit else self._markers.held(text, at)
        self._deltas.stray(text[at:end])
        self._texts.append(text[at:end])
        self._closed = ""
        self._stray = hit is None
        return end

    def _content(self, text: str, at: int) -> int:
        hit = self._markers.find(text, at)
        end = hit.start if hit else self._markers.held(text, at)
        self._add(text[at:end])
        if hit is None:
            return end
        if self._end_markers.at(text, end):
            self._unwind(0)
            return end
        return self._tag(text, end, hit.end)

    def _tag(self, text: str, at: int, start: int) -> int:
        """Read the tag that follows the prefix at `at`; return `at` if it has not come yet."""
        tag = _TAG.match(text, start)
        if tag is None and len(text) - start < _TAG_LIMIT and ">" not in text[start:]:
            return at
        self._markers.take(text[at:start])
        if tag is None:
            self._unclear = True
            self._misplaced(text[at:start])
            return start
        self._texts.append(" ")
        if text.startswith(self._opens, at):  # a call opens in this one
            self._unclear = True
            return tag.end()
        name = tag[2].strip()
        names = [element.name for element in self._stack]
        if tag[1] and name in names:
            self._unwind(len(names) - 1 - names[::-1].index(name), named=True)
            self._closed = name
        elif tag[1]:
            self._deltas.repair("stray_end")
            behind = self._stack[-1].children if self._stack else self._begun
            self._unclear = self._unclear or bool(behind and name != self._closed)
        elif self._is_again(name):
            self._deltas.repair("duplicate_start")
        elif self._is_next(name):
            self._unwind(0)
            self._open(name)
        elif len(names) >= _DEPTH_LIMIT or (names and self._stack[-1].streamed):
            self._unclear = True
            self._misplaced(text[at : tag.end()])
        else:
            self._unclear = self._unclear or (name in names and self._schema_of(name) is None)
            self._open(name)
        return tag.end()

    def _is_again(self, name: str) -> bool:
        """Tell whether a tag opens the open element once more: it is blank, and has no member of this name."""
        if not self._stack:
            return False
        element = self._stack[-1]
        return element.name == name and element.blank and not element.children and name not in self._members(element.schema)

    def _is_next(self, name: str) -> bool:
        """Tell whether a tag inside an element is that of a parameter of the tool that has not come yet: the element, which has
        no such member, was left open."""
        new = name in self._types.properties and name not in self._keys
        return new and bool(self._stack) and name not in self._members(self._stack[-1].schema)

    def _misplaced(self, text: str) -> None:
        """Keep a tag that does not belong here: in the open value, or as stray text."""
        if self._stack:
            self._add(text)
        elif self._begun:
            self._deltas.stray(text)
        else:
            self.status = ReadStatus.REJECTED

    def _open(self, name: str) -> None:
        self._begin()
        schema = self._schema_of(name)
        element = _Element(name, schema)
        if not self._stack:
            self._deltas.arguments(f"{', ' if self._keys else '{'}{dumps(name)}: ")
            self._keys.add(name)
            element.streamed = schema is not None and types_of(schema, self._root) == STRING
            if element.streamed:
                self._deltas.arguments('"')
        self._stack.append(element)

    def _schema_of(self, name: str) -> Any:
        parent = self._stack[-1].schema if self._stack else self._root
        for part in parts_of(parent, self._root):
            if name == _ENTRY and "items" in part:
                return part["items"]
        return self._members(parent).get(name)

    def _members(self, schema: Any) -> dict[str, Any]:
        """Return the properties that a schema declares."""
        declared = (part.get("properties") for part in parts_of(schema, self._root))
        return {name: member for members in declared if isinstance(members, Mapping) for name, member in members.items()}

    def _add(self, piece: str) -> None:
        element = self._stack[-1]
        self._texts.append(piece)
        element.blank = element.blank and (not piece or piece.isspace())
        if element.streamed:
            self._deltas.arguments(escape(piece))
        elif piece:
            element.text.append(piece)

    def _unwind(self, depth: int, named: bool = False) -> None:
        """Close elements until `depth` are open. All lack their end tag, except the last one if it was `named`."""
        while len(self._stack) > depth:
            element = self._stack.pop()
            if not (named and len(self._stack) == depth):
                self._deltas.repair("missing_end")
                unread = element.schema is None and bool(self._types.properties)  # its name may be misspelt
                self._unclear = self._unclear or unread or (element.blank and not element.children)
            if element.streamed:
                self._deltas.arguments('"')
            elif self._stack:
                self._stack[-1].children.append((element.name, self._json(element)))
            else:
                self._deltas.arguments(self._json(element))

    def _json(self, element: _Element) -> str:
        text = "".join(element.text)
        types = None if element.schema is None else types_of(element.schema, self._root)
        if not element.children:
            if types is None:
                return obvious(text)
            if not text.strip() and not types & STRING:
                return "[]" if "array" in types else "{}" if "object" in types else typed(text, types)
            return typed(text, types)
        names = [name for name, _ in element.children]
        is_list = set(names) == {_ENTRY} and (types is None or "object" not in types)
        fits = types is None or ("array" if is_list else "object") in types
        if text.strip() or not fits or not (is_list or len(set(names)) == len(names)):
            self._unclear = True
        if is_list:
            return f"[{', '.join(value for _, value in element.children)}]"
        return f"{{{', '.join(f'{dumps(name)}: {value}' for name, value in element.children)}}}"

    def _end(self) -> None:
        self._begin()
        prefix = self._syntax.prefix
        others = "".join(self._texts).replace(prefix, "").lower()
        if self._unclear or prefix[:_SIGN] in others or prefix[-_SIGN:] in others:
            self._deltas.repair("malformed_arguments")
            self._deltas.cut_call()
        else:
            self._deltas.arguments("}" if self._keys else "{}")
        self.status = ReadStatus.DONE
