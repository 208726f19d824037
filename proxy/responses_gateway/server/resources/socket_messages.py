"""Messages over a WebSocket that do not ask for a response. They are answered at once, whatever response is being made."""

from __future__ import annotations

import json
import re
from collections.abc import Container
from typing import Any

from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.requests import read_object

_REQUEST_TYPE = "response.create"
# Found in all requests but those that write the type with escapes; a request usually begins with it.
_REQUEST_SIGN = b'"response.create"'
_OTHER_FIRST = re.compile(rb'\s*\{\s*"type"\s*:\s*"(?!response\.create")')

# Of the ids that clients give to their streams, in characters.
_LONGEST_STREAM_ID = 128

Message = dict[str, Any]


def may_be_other(data: bytes) -> bool:
    """Tell at little cost whether a message has to be decoded to know that it asks for a response."""
    return _OTHER_FIRST.match(data) is not None or _REQUEST_SIGN not in data


def other_message(data: bytes) -> Message | None:
    """Return a message that does not ask for a response; None for one that does, or that cannot be read."""
    try:
        message = read_object(data)
    except ApiError:
        return None
    return message if message.get("type") != _REQUEST_TYPE else None


def answer(message: Message, known_responses: Container[str]) -> bytes:
    """Return the event that answers such a message. `known_responses` are the ids of those that this connection has made."""
    if message.get("type") == "response.steer" and isinstance(message.get("previous_response_id"), str):
        return _steer_failed(message, known_responses)
    error = invalid_request('A message is {"type": "response.create", …}.', "type", "invalid_value")
    return _event(error_frame(error, message.get("stream_id")))


def error_frame(error: ApiError, stream_id: object = None) -> Message:
    """Return the frame of an error. `stream_id` is the client's name of what failed, if it has one."""
    frame: Message = {"type": "error", "status": error.status, **error.body()}
    if isinstance(stream_id, str) and len(stream_id) <= _LONGEST_STREAM_ID:
        frame["stream_id"] = stream_id
    return frame


def _steer_failed(message: Message, known_responses: Container[str]) -> bytes:
    response_id = message["previous_response_id"]
    given = message.get("input")
    valid = isinstance(given, str | list)
    steer = {"previous_response_id": response_id, "input": given if valid else ""}
    code = "steering_not_supported"
    text = "A response cannot be steered on this gateway. Cancel it, or send the input when it has ended."
    if response_id not in known_responses:
        code = "response_not_found"
        text = f"Response with id '{response_id[:100]}' not found on this connection."
    elif not valid or not given:
        code = "invalid_input"
        text = "Invalid value for 'input': a text or a list of user messages is expected."
    error = {"type": "invalid_request_error", "code": code, "message": text}
    return _event({"type": "response.steer.failed", "sequence_number": 0, "steer": steer, "error": error})


def _event(frame: Message) -> bytes:
    """Return a frame in the form in which a WebSocket takes events."""
    return b"event: %b\ndata: %b\n\n" % (frame["type"].encode(), json.dumps(frame).encode())
