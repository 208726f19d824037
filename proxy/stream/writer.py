"""Plain values become the text of Responses events: no decisions are made here.

An event is `event: TYPE`, `data: {"type": TYPE, ..., "sequence_number": N}` and a blank line (Open Responses: "event" equals
"type"; every `data` is one JSON object). What repeats from delta to delta of one item is built once, by `delta_head`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, Literal

import msgspec

# The literal that ends every stream (Open Responses, R3).
DONE = "data: [DONE]\n\n"

# An SSE comment: keeps proxies awake, invisible to clients.
COMMENT = ": keep-alive\n\n"

_encode = msgspec.json.Encoder().encode
# Returns a text as a JSON string.
quote = encode_basestring


def json_text(value: Any) -> str:
    """Return plain data as compact JSON."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:  # half a surrogate pair: the encoder of the stream replaces it
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=msgspec.json.decode)


def quoted(text: str) -> bytes:
    """Return a JSON string in UTF-8."""
    try:
        return _encode(text)
    except UnicodeEncodeError:  # half a surrogate pair
        return quote(text).encode("utf-8", "replace")


def delta_head(kind: str, item_id: str, output_index: int, fields: str = "") -> bytes:
    """Return all of a delta event up to the sequence number. `fields` is more JSON members, each with a leading comma."""
    place = f'"item_id":"{item_id}","output_index":{output_index}{fields}'
    return f'event: {kind}\ndata: {{"type":"{kind}",{place},"sequence_number":'.encode("utf-8", "replace")


@dataclass(slots=True, eq=False)
class Span:
    """When an item was opened and closed, as Unix times in seconds; once it is closed, its type and the length of its JSON."""

    opened: float
    closed: float | None = None
    kind: str = ""
    size: int = 0


def _no_clock() -> float:
    return 0.0


class EventWriter:
    """The stream being written: events not yet taken, the next sequence number, the JSON of the items done."""

    __slots__ = (
        "_clock", "_end", "characters", "delta", "deltas", "done", "events", "items", "next_index", "next_number", "spans",
    )  # fmt: skip

    def __init__(self, stream_id: str | None = None, clock: Callable[[], float] = _no_clock) -> None:
        """Begin a stream; `stream_id` becomes the last member of every event. `clock` times the items."""
        self._clock = clock
        self.spans: dict[int, Span] = {}  # of the items that were opened here, by their output_index
        self._end = "}\n\n" if stream_id is None else f',"stream_id":{quote(stream_id)}}}\n\n'
        # One delta event: the head of its item, the sequence number, the piece of text as a JSON string. A template and no
        # method, for it is written more often than all other events together.
        self.delta = b'%b%d,"delta":%b' + self._end.encode("utf-8", "replace").replace(b"%", b"%%")
        self.events: list[bytes] = []
        self.next_number = 0
        self.next_index = 0  # output_index of the next item
        self.done: list[str] = []
        self.items: dict[str, int] = {}  # items done, by type
        self.deltas: dict[str, int] = {}  # delta events written, by event type
        self.characters: dict[str, int] = {}  # length of the text written, by kind

    def event(self, kind: str, number: int, fields: str) -> bytes:
        """Return one event; `fields` are its JSON members. A lone surrogate must not break the stream."""
        text = f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":{number},{fields}{self._end}'
        return text.encode("utf-8", "replace")

    def write(self, kind: str, fields: str) -> None:
        """Append the next event."""
        self.events.append(self.event(kind, self.next_number, fields))
        self.next_number += 1

    def write_text_done(self, kind: str, item_id: str, output_index: int, member: str, text: str, fields: str = "") -> None:
        """Append the `.done` of a text; `member` is the name that its event gives the whole text (`text`, `arguments`, ...)."""
        self.write(kind, f'"item_id":"{item_id}","output_index":{output_index}{fields},"{member}":{quote(text)}')

    def write_part(self, verb: Literal["added", "done"], item_id: str, output_index: int, part: str) -> None:
        """Append `response.content_part.added` or `.done` for an item's only part; `part` is its JSON."""
        fields = f'"item_id":"{item_id}","output_index":{output_index},"content_index":0,"part":{part}'
        self.write(f"response.content_part.{verb}", fields)

    def write_summary_part(self, verb: Literal["added", "done"], item_id: str, output_index: int, text: str) -> None:
        """Append `response.reasoning_summary_part.added` or `.done`."""
        part = f'{{"type":"summary_text","text":{quote(text)}}}'
        fields = f'"item_id":"{item_id}","output_index":{output_index},"summary_index":0,"part":{part}'
        self.write(f"response.reasoning_summary_part.{verb}", fields)

    def add_item(self, item: str) -> int:
        """Append `output_item.added` and return the item's output_index; `item` is its JSON."""
        index = self.next_index
        self.next_index += 1
        self.spans[index] = Span(self._clock())
        self.write("response.output_item.added", f'"output_index":{index},"item":{item}')
        return index

    def finish_item(self, kind: str, index: int, item: str) -> None:
        """Append `output_item.done`: the item now belongs to the output."""
        self.write("response.output_item.done", f'"output_index":{index},"item":{item}')
        self.done.append(item)
        self.items[kind] = self.items.get(kind, 0) + 1
        span = self.spans.get(index)
        if span is not None:
            span.closed = self._clock()
            span.kind = kind
            span.size = len(item)

    def count_characters(self, kind: str, text: str) -> None:
        """Add the length of a closed item's text."""
        self.characters[kind] = self.characters.get(kind, 0) + len(text)

    def count_deltas(self, event: str, deltas: int) -> None:
        """Add the delta events of a closed item."""
        if deltas:
            self.deltas[event] = self.deltas.get(event, 0) + deltas


def sendable(text: str) -> str:
    """Return the text as a client gets it: halves of surrogate pairs cannot be sent."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()
