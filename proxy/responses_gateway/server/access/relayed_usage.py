"""The token usage of a relayed answer, and its model, read from its bytes as they pass. No I/O."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import msgspec

from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.usage import read_counts

_NAME = b'"usage"'
# An object with at most one level of objects in it: none of its strings has braces.
_USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')
# The beginning of one, up to the end of what is there.
_CUT = re.compile(rb'"usage"\s*(?::\s*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*(?:\{[^{}]*)?)?)?\Z')
_LONGEST = 4096  # bytes after which an object that has not ended is given up
# A name with its quotes; within a text they would be escaped. Longer names, in bytes, are not read.
_MODEL = re.compile(rb'"model"\s{0,8}:\s{0,8}("(?:[^"\\]|\\.){1,200}")')
_LONGEST_MODEL = 250


class UsageMeter:
    """Finds `usage` in an answer: a JSON object or an event stream, cut anywhere. The largest counts are the last ones.

    A stream without any is counted by its events, most of which are a token. `model` is empty as long as none was named."""

    def __init__(self, *, is_stream: bool) -> None:
        self._is_stream = is_stream
        self._rest = b""
        self._prompt = 0
        self._output = 0
        self._total = 0
        self._cached = 0
        self._reasoning = 0
        self._events = 0
        self.model = ""
        self._tail = b""  # in which a model may begin

    @property
    def usage(self) -> Usage:
        """What is known to be used so far, as far as it is told apart."""
        output = self._output or max(0, self.tokens - (self._prompt or self._total))
        return Usage(self.tokens - output, output, self._cached, reasoning=self._reasoning)

    @property
    def tokens(self) -> int:
        """The tokens that are known to be used so far."""
        return max(self._total, self._prompt + self._output) or self._events

    def feed(self, data: bytes) -> None:
        """Read the next bytes of the body."""
        if not self.model:
            self._look_for_model(data)
        if self._is_stream:
            self._events += data.count(b"\n\n") or data.count(b"\r\n\r\n")
        data = self._rest + data
        end = 0
        while (at := data.find(_NAME, end)) >= 0:
            end = at + len(_NAME)
            if data[at - 1 : at] == b"\\":
                continue  # within a text
            match = _USAGE.match(data, at, at + _LONGEST)
            if match is not None:
                self._take(match[1])
                end = match.end()
            elif len(data) - at < _LONGEST and _CUT.match(data, at):
                self._rest = data[at:]
                return
        self._rest = data[max(end, len(data) - len(_NAME)) :]

    def _look_for_model(self, data: bytes) -> None:
        data = self._tail + data
        named = _MODEL.search(data)
        self._tail = data[-_LONGEST_MODEL:] if named is None else b""
        if named is not None:
            with suppress(msgspec.DecodeError):
                self.model = msgspec.json.decode(named[1], type=str)

    def _take(self, json: bytes) -> None:
        try:
            usage = read_counts(msgspec.json.decode(json, type=dict[str, Any]))
        except msgspec.DecodeError:
            return
        self._prompt = max(self._prompt, usage.prompt_tokens or 0)
        self._output = max(self._output, usage.completion_tokens or 0)
        self._total = max(self._total, usage.total_tokens or 0)
        if usage.prompt_tokens_details is not None:
            self._cached = max(self._cached, usage.prompt_tokens_details.cached_tokens or 0)
        if usage.completion_tokens_details is not None:
            self._reasoning = max(self._reasoning, usage.completion_tokens_details.reasoning_tokens or 0)
