"""Read calls written as Python: `[get_weather(city='Rome'), list_files()]`, or one after the other without brackets."""

from __future__ import annotations

import re
from collections.abc import Callable

from responses_gateway.parsers.arguments import ArgumentsReader, ReadStatus
from responses_gateway.parsers.arguments.literals import LiteralReader
from responses_gateway.parsers.delta_buffer import DeltaBuffer
from responses_gateway.parsers.format import CallFormat
from responses_gateway.parsers.lexer import Lexer, skip_spaces

_NAME = re.compile(r"[A-Za-z_][\w.\-]*")
_NAME_SO_FAR = re.compile(r"[A-Za-z_][\w.\-]{0,127}\s*")
_HEAD = re.compile(r"([A-Za-z_][\w.\-]*)\s*\(\s*(?:\)|[A-Za-z_]\w*\s*=(?!=))")
_HEAD_LIMIT = 256


class PythonCallsReader(ArgumentsReader):
    """Reads all calls of one list. A call begins when its name, the bracket and the first argument's name are there."""

    def __init__(self, call: CallFormat, deltas: DeltaBuffer, stops: Lexer) -> None:
        self._declared_only = call.declared_only
        self._deltas = deltas
        self._stops = stops
        self._list = False
        self._any_call = False
        self._arguments: LiteralReader | None = None
        self._step: Callable[[str, int], int] = self._start

    def read(self, text: str, at: int) -> int:
        while self.status is ReadStatus.READING:
            if self._arguments is None:
                at = skip_spaces(text, at)
            if at == len(text):
                break
            step = self._step
            before = at
            at = step(text, at)
            if at == before and self._step == step:
                break
        return at

    def finish(self, _cut: bool, _rest: str) -> None:
        """Tell of a call whose brackets are open. Between two calls nothing is missing."""
        if self._arguments is not None:
            self._deltas.cut_call()

    def _start(self, text: str, at: int) -> int:
        self._step = self._call
        if text[at] == "[":
            self._list = True
            return at + 1
        return at

    def _call(self, text: str, at: int) -> int:
        head = _HEAD.match(text, at, at + _HEAD_LIMIT)
        undecided = head is None or (text[-1] == "=" and head.end() == len(text))  # because a comparison has two of them
        if undecided and not self._deltas.final and _may_be_head(text, at):
            return at
        if head is None:
            return self._fail(at)
        if self._declared_only and not self._deltas.declared(head[1]):
            return self._fail(at)
        self._deltas.begin_call(head[1])
        self._any_call = True
        self._arguments = LiteralReader(self._deltas.arguments, self._deltas, self._stops, None)
        self._step = self._read_arguments
        return text.index("(", at)

    def _read_arguments(self, text: str, at: int) -> int:
        assert self._arguments is not None
        at = self._arguments.read(text, at)
        if self._arguments.done:
            self._arguments = None
            self._deltas.end_call()
            self._step = self._next
        return at

    def _next(self, text: str, at: int) -> int:
        char = text[at]
        if char in ",;":
            self._step = self._call
            return at + 1
        if self._list and char == "]":
            self.status = ReadStatus.DONE
            return at + 1
        if _NAME.match(text, at) and not self._list:
            self._step = self._call
            return at
        return self._fail(at)

    def _fail(self, at: int) -> int:
        self.status = ReadStatus.DONE if self._any_call else ReadStatus.REJECTED
        return at


def _may_be_head(text: str, at: int) -> bool:
    """Tell whether `text[at:]` can still become the head of a call."""
    rest = text[at : at + _HEAD_LIMIT]
    name = _NAME_SO_FAR.match(rest)
    if name is None or len(rest) == _HEAD_LIMIT:
        return False
    after = rest[name.end() :]
    return not after or re.fullmatch(r"\(\s*(?:[A-Za-z_]\w*\s*=?)?", after) is not None
