"""Plain values become the text of Responses events and of the response object: no decisions are made here.

An event is `event: TYPE`, `data: {"type": TYPE, ..., "sequence_number": N}` and a blank line (Open Responses: "event" equals
"type"; every `data` is one JSON object). What repeats from delta to delta of one item is built once, by `delta_head`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, Literal, NamedTuple

import msgspec

from responses_gateway.wire.deltas import Usage

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]

# The literal that ends every stream (Open Responses, R3).
DONE = "data: [DONE]\n\n"

# An SSE comment: keeps proxies awake, invisible to clients.
COMMENT = ": keep-alive\n\n"

# Values of the echo that are at least this long, as JSON, are worth storing once.
_LONG = 1024

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


class Outcome(NamedTuple):
    """What the end of a response adds to it: usage as JSON, a Unix time in seconds, (code, message) of the error."""

    usage: str = "null"
    completed_at: int | None = None
    incomplete_reason: str | None = None
    error: tuple[str, str] | None = None


_NO_OUTCOME = Outcome()


class ResponseStream:
    """The response of one stream: `queue`, `start`, `keep_alive` and `end` write the events that show it whole (Open Responses:
    `response.created`, `queued`, `in_progress`), `terminal` makes the last one."""

    __slots__ = ("_first_status", "_outcome", "_terminal_number", "_writer", "object", "status")

    def __init__(self, response: ResponseObject, writer: EventWriter) -> None:
        """The items of the response are those that are done in `writer`."""
        self.object = response
        self.status: Status = "queued"
        self._writer = writer
        self._first_status: Status = "in_progress"
        self._outcome = _NO_OUTCOME
        self._terminal_number = 0

    def queue(self) -> None:
        """Write `response.created` and `response.queued`."""
        self._first_status = "queued"
        self._write("queued", "response.created", "response.queued")

    def start(self) -> None:
        """Write `response.in_progress`, behind `response.created`."""
        self.status = "in_progress"
        first = () if self._first_status == "queued" else ("response.created",)
        self._write("in_progress", *first, "response.in_progress")

    def keep_alive(self) -> None:
        """Write `response.in_progress` with the snapshot so far."""
        self._write("in_progress", "response.in_progress")

    def end(self, status: Status, outcome: Outcome) -> None:
        """Take the end, and the next sequence number for the terminal event."""
        self.status = status
        self._outcome = outcome
        self._terminal_number = self._writer.next_number
        self._writer.next_number += 1

    def terminal(self, *, stored: bool | None = None) -> bytes:
        """Return the terminal event and `[DONE]`. `stored` overrides the `store` of the request."""
        fields = f'"response":{self._json(None, stored)}'
        return self._writer.event(f"response.{self.status}", self._terminal_number, fields) + DONE.encode()

    @property
    def output(self) -> list[str]:
        """The JSON of the items done so far, as it was streamed."""
        return [sendable(item) for item in self._writer.done]

    def json(self, *, stored: bool | None = None, status: Status | None = None) -> str:
        """Return the response as JSON, as it stands. `status` takes the place of its own."""
        return sendable(self._json(status, stored))

    def text_around_output(self, *, status: Status | None = None) -> tuple[str, str]:
        """Return the text of that JSON before and behind the output items."""
        before, behind = self._around(status)
        return sendable(before), sendable(behind)

    def first_text_around_output(self) -> tuple[str, str]:
        """Return the same of the response as the first event has it."""
        before, behind = self.object.around(self._first_status, _NO_OUTCOME)
        return sendable(before), sendable(behind)

    @property
    def long_texts(self) -> Sequence[str]:
        """The long values in the text behind the output items, in order. They repeat the request, and the next ones often have
        the same."""
        return self.object.long_texts

    def _write(self, status: Status, *kinds: str) -> None:
        snapshot = f'"response":{self._json(status)}'
        for kind in kinds:
            self._writer.write(kind, snapshot)

    def _json(self, status: Status | None = None, stored: bool | None = None) -> str:
        before, behind = self._around(status, stored)
        return f"{before}{','.join(self._writer.done)}{behind}"

    def _around(self, status: Status | None, stored: bool | None = None) -> tuple[str, str]:
        outcome = self._outcome._replace(error=None) if status == "cancelled" else self._outcome
        return self.object.around(status or self.status, outcome, stored=stored)


class ResponseObject:
    """The JSON of one response around its output: identity and the echo of its request, built once."""

    __slots__ = ("_echo", "_head", "_model", "_tail", "id", "long_texts")

    def __init__(self, response_id: str, created_at: int, model: str, echo: Mapping[str, Any]) -> None:
        """Build what repeats. `created_at` is a Unix time in seconds; `echo` the fields that repeat the request."""
        self.id = response_id
        self.long_texts: list[str] = []  # the JSON of the long values of the echo, in order
        self._echo = self._with_long_texts(echo)
        self._model = model
        self._head = f'{{"id":"{response_id}","object":"response","created_at":{created_at}'
        self._tail = self._tail_of(self._echo)

    def _with_long_texts(self, echo: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the echo with its long values as JSON already."""
        encoded: dict[str, msgspec.Raw] = {}
        for name, value in echo.items():
            if (text := _long_json(value)) is not None:
                encoded[name] = msgspec.Raw(text)
                self.long_texts.append(text.decode())
        return {**echo, **encoded} if encoded else echo

    def around(self, status: Status, outcome: Outcome, *, stored: bool | None = None) -> tuple[str, str]:
        """Return the text before and behind the output items. `stored` overrides the `store` of the request, if it has one."""
        usage, completed_at, reason, error = outcome
        completed = "null" if completed_at is None else completed_at
        incomplete = "null" if reason is None else f'{{"reason":"{reason}"}}'
        failure = "null" if error is None else f'{{"code":"{error[0]}","message":{quote(error[1])}}}'
        tail = self._tail
        if stored is not None and self._echo.get("store", stored) != stored:
            tail = self._tail_of({**self._echo, "store": stored})
        before = (
            f'{self._head},"status":"{status}","completed_at":{completed},"error":{failure}'
            f',"incomplete_details":{incomplete},"output":['
        )
        return before, f'],"usage":{usage}{tail}'

    def _tail_of(self, echo: Mapping[str, Any]) -> str:
        return f',"model":{quote(self._model)},{json_text(echo)[1:-1]}}}' if echo else f',"model":{quote(self._model)}}}'


def _long_json(value: Any) -> bytes | None:
    """Return the JSON of a long value; None if it is short, or contains half a surrogate pair."""
    if not value or not isinstance(value, str | list | dict) or (isinstance(value, str) and len(value) < _LONG):
        return None
    try:
        text = _encode(value)
    except UnicodeEncodeError:
        return None
    return text if len(text) >= _LONG else None


def usage_json(usage: Usage | None) -> str:
    """Return the usage object, or null if the backend reported no counts."""
    if usage is None or usage.input is None or usage.output is None:
        return "null"
    cached = min(usage.cached or 0, usage.input)
    reasoning = min(usage.reasoning or 0, usage.output)
    return (
        f'{{"input_tokens":{usage.input}'
        f',"input_tokens_details":{{"cached_tokens":{cached},"cache_write_tokens":{usage.cache_write or 0}}}'
        f',"output_tokens":{usage.output},"output_tokens_details":{{"reasoning_tokens":{reasoning}}}'
        f',"total_tokens":{usage.input + usage.output}}}'
    )
