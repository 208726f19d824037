"""The response object of the Responses API, and the events that show it whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from responses_gateway.stream.writer.responses import ResponsesWriter
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.json_text import encode, json_text, quote, sendable
from responses_gateway.wire.sse import DONE

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]

# Values of the echo that are at least this long, as JSON, are worth storing once.
_LONG = 1024
_MAY_BE_LONG = frozenset({str, list, dict})


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

    def __init__(self, response: ResponseObject, writer: ResponsesWriter) -> None:
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
            if value and type(value) in _MAY_BE_LONG and (text := _long_json(value)) is not None:
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
    if isinstance(value, str) and len(value) < _LONG:
        return None
    try:
        text = encode(value)
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
