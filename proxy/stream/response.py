"""The response object: what repeats in every snapshot is built once, the rest is put in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from proxy.stream.writer import json_text, quote
from proxy.wire.deltas import Usage

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class ResponseObject:
    """One response: identity and the echo of its request, to be completed by what has come of it so far."""

    __slots__ = ("_head", "_tail", "id")

    def __init__(self, response_id: str, created_at: int, model: str, echo: Mapping[str, Any]) -> None:
        """`created_at` is a Unix time in seconds; `echo` the fields that repeat the request."""
        self.id = response_id
        self._head = f'{{"id":"{response_id}","object":"response","created_at":{created_at}'
        self._tail = f',"model":{quote(model)},{json_text(echo)[1:-1]}}}' if echo else f',"model":{quote(model)}}}'

    def json(
        self,
        status: Status,
        output: list[str],
        *,
        usage: str = "null",
        completed_at: int | None = None,
        incomplete_reason: str | None = None,
        error: tuple[str, str] | None = None,
    ) -> str:
        """A snapshot as JSON. `output` is the JSON of the items done, `error` is (code, message)."""
        completed = "null" if completed_at is None else completed_at
        incomplete = "null" if incomplete_reason is None else f'{{"reason":"{incomplete_reason}"}}'
        failure = "null" if error is None else f'{{"code":"{error[0]}","message":{quote(error[1])}}}'
        return (
            f'{self._head},"status":"{status}","completed_at":{completed},"error":{failure}'
            f',"incomplete_details":{incomplete},"output":[{",".join(output)}],"usage":{usage}{self._tail}'
        )


def usage_json(usage: Usage | None) -> str:
    """The usage object; null when the backend reported no counts."""
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
