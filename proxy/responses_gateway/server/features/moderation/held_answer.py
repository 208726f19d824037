"""An answer of a backend that is held back until it was judged. Sans I/O.

Bytes go in as they come, cut anywhere, and come out as they were, in whole events: those whose text was judged, and the end of
the answer once all of it is `concluded`. The text is read as the translator reads it, before markup is parsed."""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

from responses_gateway.stream.reading.reader import Reader
from responses_gateway.wire.chat import ForeignEvent, MalformedChunk, decode_chunk
from responses_gateway.wire.deltas import Delta, Finish, Reasoning, Refusal, Text, ToolArguments, ToolCall
from responses_gateway.wire.sse import MOST_BUFFERED, SSEDecoder
from responses_gateway.wire.tools import ToolTable

LONGEST_SENTENCE = 600  # a text without the end of a sentence is judged when it is this long, in characters
# Most characters of a text that are judged before a part of it passes, because one question to the guard has few more.
MOST_JUDGED = 7_000
MOST_HELD = 1024 * 1024  # a call is judged when it is complete, or when so many bytes are held
# Events of one read that pass together, in bytes: fewer than a question to the guard has characters.
_PASS_TOGETHER = 4096
_SENTENCE_END = re.compile(r"[.!?…:][\"'”’)\]*]*\s|[。！？\n]")
_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
_DONE = b"[DONE]"


class _Block(NamedTuple):
    """Bytes of whole events: how long the text is after them, and whether they belong to the end of the answer."""

    data: bytes
    length: int
    ends: bool


class HeldAnswer:
    """Feed it, judge `text` up to `due`, tell it by `judged`, and pass on what it lets you `take`."""

    def __init__(self, tools: ToolTable) -> None:
        """`tools` are those that may be called."""
        self.text = ""
        self.length = 0  # of the text that was judged
        self.size = 0  # bytes that are held
        self.concluded = False  # the whole answer was judged
        self.ended = False  # nothing more is expected of the model
        self._in_call = False
        self._rest = b""  # the beginning of an event
        self._blocks: deque[_Block] = deque()
        self._reader = Reader(tools=tools)
        self._malformed = False

    def feed(self, data: bytes) -> None:
        """Take bytes of the backend's body."""
        data = self._rest + data
        start = 0
        end = 0
        for blank in _BLANK_LINE.finditer(data, 0, len(data) - data.endswith(b"\r")):
            end = blank.end()
            if end - start >= _PASS_TOGETHER:
                self._hold(data[start:end], SSEDecoder().feed(data[start:end]))
                start = end
        if end > start:
            self._hold(data[start:end], SSEDecoder().feed(data[start:end]))
        self._rest = data[end:]
        if len(self._rest) > MOST_BUFFERED:  # the translator refuses that
            self._hold(self._rest, [])
            self._rest = b""

    def end(self) -> None:
        """Take the end of the body."""
        if self._rest:
            decoder = SSEDecoder()
            payloads = decoder.feed(self._rest) + decoder.finish()
            self.ended = True
            self._hold(self._rest, payloads)
            self._rest = b""
        if not self._malformed:
            self._read(self._reader.finish())
        self.ended = True

    @property
    def waits(self) -> bool:
        """Whether text waits for the end of its sentence."""
        return not self.ended and not self._in_call and len(self.text) > self.length

    def due(self, *, now: bool = False) -> int | None:
        """Return how much of the text is to be judged next; None if nothing is. `now`: in the middle of a sentence, too."""
        whole = len(self.text)
        if self.ended:
            return None if self.concluded and whole == self.length else self._next
        if whole == self.length:
            return None
        if self._in_call:
            return whole if self.size > MOST_HELD else None
        if now or whole - self.length >= LONGEST_SENTENCE or _SENTENCE_END.search(self.text, self.length):
            return self._next
        return None

    @property
    def _next(self) -> int:
        whole = len(self.text)
        return whole if self._in_call else min(whole, self.length + MOST_JUDGED)

    def judged(self, length: int) -> None:
        """Let the text pass up to this length. It was found safe."""
        self.length = length
        self.concluded = self.ended and length == len(self.text)

    def take(self) -> bytes:
        """Return the bytes that may be passed on."""
        taken: list[bytes] = []
        while self._blocks and self._passes(self._blocks[0]):
            block = self._blocks.popleft()
            self.size -= len(block.data)
            taken.append(block.data)
        return b"".join(taken)

    def _passes(self, block: _Block) -> bool:
        return self.concluded or (not block.ends and block.length <= self.length)

    def _hold(self, data: bytes, payloads: list[bytes]) -> None:
        for payload in payloads:
            if payload == _DONE:
                self.ended = True
            elif not self._malformed:
                try:
                    self._read(self._reader.read(decode_chunk(payload)))
                except ForeignEvent:
                    continue
                except MalformedChunk:  # the translator stops there, too
                    self._malformed = True
        # What the reader keeps back is text that is to come.
        self._blocks.append(_Block(data, len(self.text) + self._reader.waiting, self.ended))
        self.size += len(data)

    def _read(self, deltas: list[Delta]) -> None:
        texts: list[str] = []
        for delta in deltas:
            if isinstance(delta, Text | Reasoning | Refusal | ToolArguments):
                texts.append(delta.text)
            elif isinstance(delta, ToolCall):
                self._in_call = True
                texts.append(f"\n{delta.name} ")
            elif isinstance(delta, Finish):
                self.ended = True
        if texts:
            self.text += "".join(texts)
            self.concluded = False


class HeldEnd(HeldAnswer):
    """An answer of which the end alone is held back: what is flagged in it is reported, and not kept from anybody."""

    @property
    def waits(self) -> bool:
        """Return False: nothing waits but the end."""
        return False

    def due(self, *, now: bool = False) -> int | None:  # noqa: ARG002  (what is held goes with the end alone)
        """Return the length of the text at its end."""
        return super().due() if self.ended else None

    def _passes(self, block: _Block) -> bool:
        return self.concluded or not block.ends
