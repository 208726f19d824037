"""Messages over a WebSocket that do not ask for a response. They are answered at once, whatever response is being made."""

from __future__ import annotations

import json
import re
from typing import Any

from responses_gateway.request.fields import missing, wrong_type
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.requests import read_object

_REQUEST_TYPE = "response.create"
_STEER_TYPE = "response.steer"
_STEERED = "previous_response_id"
# Found in all requests but those that write the type with escapes; a request usually begins with it.
_REQUEST_SIGN = b'"response.create"'
_OTHER_FIRST = re.compile(rb'\s*\{\s*"type"\s*:\s*"(?!response\.create")')

# Of the ids that clients give to their streams, in characters.
_LONGEST_STREAM_ID = 128

Message = dict[str, Any]


def may_be_other(data: bytes) -> bool:
    """Tell at little cost whether a message has to be decoded to know that it asks for a response."""
    return _OTHER_FIRST.match(data) is not None or _REQUEST_SIGN not in data


def other_message(data: bytes) -> Message | ApiError | None:
    """Return a message that does not ask for a response; None for one that does; the error of one that cannot be read."""
    try:
        message = read_object(data)
    except ApiError as error:
        return error.copy()
    return message if message.get("type") != _REQUEST_TYPE else None


def unknown_message(message: Message) -> bytes:
    """Return the event that answers a message that is not understood."""
    if message.get("type") != _STEER_TYPE:
        error = invalid_request('A message is {"type": "response.create", …}.', "type", "invalid_value")
    elif message.get(_STEERED) is None:
        error = missing(_STEERED)
    else:
        error = wrong_type(_STEERED, "a string")
    return event_of(error_frame(error, message.get("stream_id")))


def is_steer(message: Message) -> bool:
    """Tell whether a message steers a response."""
    return message.get("type") == _STEER_TYPE and isinstance(message.get(_STEERED), str)


def error_frame(error: ApiError, stream_id: object = None) -> Message:
    """Return the frame of an error. `stream_id` is the client's name of what failed, if it has one."""
    frame: Message = {"type": "error", "status": error.status, **error.body()}
    if isinstance(stream_id, str) and len(stream_id) <= _LONGEST_STREAM_ID:
        frame["stream_id"] = stream_id
    return frame


def event_of(frame: Message) -> bytes:
    """Return a frame in the form in which a WebSocket takes events."""
    return b"event: %b\ndata: %b\n\n" % (frame["type"].encode(), json.dumps(frame).encode())
