"""The response object of the Responses API, and the events that show it whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from responses_gateway.stream.writer.interface import AnswerStream, Outcome, Status, StreamStart
from responses_gateway.stream.writer.responses import ResponsesWriter
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosted import ImageUsage
from responses_gateway.wire.json_text import json_text, quote, quoted, sendable
from responses_gateway.wire.sse import DONE

# Values of the echo that are at least this long, as JSON, are worth storing once.
_LONG = 1024
_MAY_BE_LONG = frozenset({str, list, dict})
_DONE = DONE.encode()
# What hosted tools have used, as members of the response.
_TOOL_USAGE = '"tool_usage":{"image_gen":%s,"web_search":{"num_requests":%d}}'
# The codes that `response.error.code` may have for clients (a closed list in the SDKs, and what Codex acts on).
_STREAM_CODES = frozenset({"context_length_exceeded", "rate_limit_exceeded", "invalid_prompt", "insufficient_quota"})


# Returns what the end adds to a response besides: its members, given what the backends have counted.
AtEnd: TypeAlias = Callable[[Usage | None], Mapping[str, Any]]


class _State(msgspec.Struct, frozen=True, gc=False):
    """How a response stands: its status, and what the end adds to it, as JSON."""

    status: Status
    completed_at: str = "null"
    error: str = "null"
    incomplete: str = "null"
    usage: str = "null"  # and, behind the end, `tool_usage`, and what `AtEnd` adds


_QUEUED = _State("queued")
_IN_PROGRESS = _State("in_progress")


def new_response_stream(
    start: StreamStart,
    echo: Mapping[str, Any],
    *,
    stream_id: str | None = None,
    reasoning_event: str = "response.reasoning_text",
    mirrors_reasoning: bool = False,
    at_end: Sequence[AtEnd] = (),
) -> ResponseStream:
    """Return the stream of one response. `echo` has the fields that repeat the request; for others see `ResponsesWriter`."""
    writer = ResponsesWriter(stream_id, start.clock, reasoning_event=reasoning_event, mirrors_reasoning=mirrors_reasoning)
    response = ResponseObject(start.response_id, int(start.created), start.model, echo)
    return ResponseStream(response, writer, at_end)


class ResponseStream(AnswerStream):
    """The response of one stream: `queue`, `start`, `keep_alive` and `end` write the events that show it whole (Open Responses:
    `response.created`, `queued`, `in_progress`), `terminal` makes the last one."""

    __slots__ = ("_at_end", "_extension", "_first_state", "_state", "_terminal_number", "_writer", "object")

    def __init__(self, response: ResponseObject, writer: ResponsesWriter, at_end: Sequence[AtEnd] = ()) -> None:
        """The items of the response are those that are done in `writer`."""
        super().__init__(writer)
        self._at_end = at_end
        self._extension = ""  # of the last item, as JSON
        self.object = response
        self._writer = writer
        self._first_state = _IN_PROGRESS
        self._state = _QUEUED
        self._terminal_number = 0

    def queue(self) -> None:
        """Write `response.created` and `response.queued`."""
        self._first_state = _QUEUED
        self._writer.show(self._json(), b"response.created", b"response.queued")

    def start(self) -> None:
        """Write `response.in_progress`, behind `response.created`."""
        self._state = _IN_PROGRESS
        begun = (b"response.created",) if self._first_state is _IN_PROGRESS else ()
        self._writer.show(self._json(), *begun, b"response.in_progress")

    def keep_alive(self) -> None:
        """Write `response.in_progress` with the snapshot so far."""
        self._writer.show(self._json("in_progress"), b"response.in_progress")

    def end(self, outcome: Outcome) -> None:
        """Take the end, and the next sequence number for the terminal event."""
        self._state = _ended(outcome, self._writer.items.get("web_search_call", 0))
        for at_end in self._at_end:
            fields = json_text(at_end(outcome.usage))[1:-1]
            if fields:
                self._state = msgspec.structs.replace(self._state, usage=f"{self._state.usage},{fields}")
        self._terminal_number = self._writer.next_number
        self._writer.next_number += 1

    def extend_last_item(self, members: Mapping[str, Any]) -> None:
        """Add members to the last item, in its event and in the response."""
        events = self._writer.events
        item = self._writer.done[-1].encode("utf-8", "replace")
        before, found, behind = events[-1].rpartition(item) if events else (b"", b"", b"")
        if found:
            self._extension = f",{json_text(members)[1:-1]}"
            events[-1] = before + item[:-1] + self._extension.encode() + item[-1:] + behind

    def terminal(self, *, stored: bool | None = None) -> bytes:
        """Return the terminal event and `[DONE]`. `stored` overrides the `store` of the request."""
        kind = f"response.{self._state.status}".encode()
        return self._writer.snapshot(kind, self._terminal_number, self._json(None, stored)) + _DONE

    def json(self, *, stored: bool | None = None, status: Status | None = None) -> str:
        """Return the response as JSON, as it stands. `status` takes the place of its own."""
        return self._json(status, stored).decode()

    def text_around_output(self, *, status: Status | None = None) -> tuple[str, bytes]:
        """Return that JSON before and behind the output items."""
        before, behind, echo = self.object.around(self._state, status)
        return sendable(before), behind.encode("utf-8", "replace") + echo

    def first_text_around_output(self) -> tuple[str, bytes]:
        """Return the same of the response as the first event has it."""
        before, behind, echo = self.object.around(self._first_state)
        return sendable(before), behind.encode("utf-8", "replace") + echo

    @property
    def long_texts(self) -> Sequence[bytes]:
        """The long values in the text behind the output items, in order. They repeat the request, and so do the next ones."""
        return self.object.long_texts

    def _json(self, status: Status | None = None, stored: bool | None = None) -> bytes:
        before, behind, echo = self.object.around(self._state, status, stored=stored)
        output = ",".join(self._writer.done)
        if self._extension:
            output = f"{output[:-1]}{self._extension}{output[-1:]}"
        return f"{before}{output}{behind}".encode("utf-8", "replace") + echo


def _ended(outcome: Outcome, searches: int) -> _State:
    """Return how a response stands at its end that has so many calls of web search."""
    completed = "null" if outcome.completed_at is None else str(outcome.completed_at)
    incomplete = "null" if outcome.incomplete_reason is None else f'{{"reason":"{outcome.incomplete_reason}"}}'
    failure = "null" if outcome.error is None else _error_json(outcome.error)
    images = _NO_IMAGES if outcome.images is None else _images_json(outcome.images)
    usage = f"{usage_json(outcome.usage)},{_TOOL_USAGE % (images, searches)}"
    return _State(outcome.status, completed, failure, incomplete, usage)


def _images_json(used: ImageUsage) -> str:
    read = used.input_text + used.input_image
    written = used.output_text + used.output_image
    details = '{"image_tokens":%d,"text_tokens":%d}'
    return (
        f'{{"input_tokens":{read},"input_tokens_details":{details % (used.input_image, used.input_text)},'
        f'"output_tokens":{written},"output_tokens_details":{details % (used.output_image, used.output_text)},'
        f'"total_tokens":{read + written}}}'
    )


_NO_IMAGES = _images_json(ImageUsage())


def _error_json(error: ApiError) -> str:
    code = error.code if error.code in _STREAM_CODES else "server_error"
    return f'{{"code":"{code}","message":{quote(error.message)}}}'


class ResponseObject:
    """The JSON of one response around its output: identity and the echo of its request, built once."""

    __slots__ = ("_echo", "_head", "_model", "_tail", "id")

    def __init__(self, response_id: str, created_at: int, model: str, echo: Mapping[str, Any]) -> None:
        """Build what repeats. `created_at` is a Unix time in seconds; `echo` the fields that repeat the request."""
        self.id = response_id
        self._echo = echo
        self._model = model
        self._head = f'{{"id":"{response_id}","object":"response","created_at":{created_at}'
        self._tail = self._tail_of(echo)

    @property
    def long_texts(self) -> Sequence[bytes]:
        """The JSON of the long values of the echo, in order."""
        if len(self._tail) < _LONG:
            return ()
        texts = [quoted(value) for value in self._echo.values() if type(value) in _MAY_BE_LONG]
        return [text for text in texts if len(text) >= _LONG]

    def around(self, state: _State, status: Status | None = None, *, stored: bool | None = None) -> tuple[str, str, bytes]:
        """Return the text before and behind the output items, and what follows: the echo, in UTF-8, which may be long. `status`
        takes the place of that of the `state`; `stored` overrides the `store` of the request, if it has one."""
        tail = self._tail
        if stored is not None and self._echo.get("store", stored) != stored:
            tail = self._tail_of({**self._echo, "store": stored})
        error = "null" if status == "cancelled" else state.error
        before = (
            f'{self._head},"status":"{status or state.status}","completed_at":{state.completed_at},"error":{error}'
            f',"incomplete_details":{state.incomplete},"output":['
        )
        return before, f'],"usage":{state.usage},"model":{quote(self._model)}', tail

    def _tail_of(self, echo: Mapping[str, Any]) -> bytes:
        return b",%b" % quoted(echo)[1:] if echo else b"}"


def usage_json(usage: Usage | None) -> str:
    """Return the usage object, or null if the backend reported no counts."""
    if usage is None or usage.input is None or usage.output is None:
        return "null"
    cached = min(usage.cached, usage.input) if usage.cached else 0
    reasoning = min(usage.reasoning, usage.output) if usage.reasoning else 0
    return (
        f'{{"input_tokens":{usage.input}'
        f',"input_tokens_details":{{"cached_tokens":{cached},"cache_write_tokens":{usage.cache_write or 0}}}'
        f',"output_tokens":{usage.output},"output_tokens_details":{{"reasoning_tokens":{reasoning}}}'
        f',"total_tokens":{usage.input + usage.output}}}'
    )
