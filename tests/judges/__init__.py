"""Independent judges of a Responses stream, for tests: the laws, the Open Responses document, the official SDK's models.

`judge_stream(data)` asks all three about every event. None of them shares code with what writes the streams.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from responses_gateway.conformance.checker import check_stream, frames
from responses_gateway.conformance.messages import check_message_stream
from tests.judges.openapi import openapi_errors, without_free_values
from tests.judges.sdk import sdk_errors

__all__ = ["judge_message", "judge_stream", "openapi_errors", "sdk_errors"]


def judge_stream(data: bytes, *, unfinished_allowed: bool = False) -> list[str]:
    """Return all complaints about the body of a stream, each with the index and the type of its event; none for a good one."""
    events = [_decode(frame.data) for frame in frames(data) if frame.data != "[DONE]"]
    complaints = [
        (broken.event, f"{broken.rule}: {broken.detail}")
        for broken in check_stream(data, unfinished_allowed=unfinished_allowed)
    ]
    for index, event in enumerate(events):
        if _is_accepted(json.dumps(without_free_values(event))):
            continue
        complaints += [(index, f"OpenAPI: {error}") for error in openapi_errors(event)]
        complaints += [(index, f"SDK: {error}") for error in sdk_errors(event)]
    complaints.sort(key=lambda complaint: complaint[0])
    return [f"event {index} {_type(events, index)}: {text}" for index, text in complaints]


@lru_cache(maxsize=50_000)
def _is_accepted(event: str) -> bool:
    """Tell whether the document and the SDK accept an event (JSON) in which all texts and numbers are alike that are free in
    the document. Of the tests' hundreds of thousands of events few differ in more. Where the SDK restricts such a text, it
    accepts none that stands for all: then the event itself is judged."""
    return not openapi_errors(json.loads(event)) and not sdk_errors(json.loads(event))


def judge_message(data: bytes) -> list[str]:
    """Return all complaints about the body of a stream of the Messages API."""
    return [f"event {broken.event}: {broken.rule}: {broken.detail}" for broken in check_message_stream(data)]


def _decode(text: str) -> dict[str, Any]:
    try:
        event = json.loads(text)
    except ValueError:
        return {}  # the laws report it
    return event if isinstance(event, dict) else {}


def _type(events: list[dict[str, Any]], index: int) -> str:
    return str(events[index].get("type")) if index < len(events) else "(end)"
