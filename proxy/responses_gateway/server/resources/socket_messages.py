"""Messages over a WebSocket that do not ask for a response. They are answered at once, whatever response is being made."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from responses_gateway.request.fields import missing, wrong_type
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.json_text import with_whole_characters
from responses_gateway.wire.requests import read_object

_REQUEST_TYPE = "response.create"
_STEER_TYPE = "response.steer"
_STEERED = "previous_response_id"
# Found in all requests but those that write the type with escapes; a request usually begins with it.
_REQUEST_SIGN = b'"response.create"'
_OTHER_FIRST = re.compile(rb'\s*\{\s*"type"\s*:\s*"(?!response\.create")')

_LONGEST_STREAM_ID = 256  # names of lanes, in characters
# Of a request in a named lane, unless it writes the name of the field with escapes, which begin like this.
_LANE_SIGNS = (b"stream_id", b"\\u00")

Message = dict[str, Any]


class _Head(msgspec.Struct):
    """What is to be known of a request before it is its turn."""

    stream_id: Any = None
    previous_response_id: Any = None


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


def may_name_lane(data: bytes) -> bool:
    """Tell at little cost whether a request has to be decoded to know its lane."""
    return any(sign in data for sign in _LANE_SIGNS)


def lane_in(data: bytes) -> object:
    """Return what a request says is its lane; None if it cannot be read."""
    return _head(data).stream_id


def continued_in(data: bytes) -> str | None:
    """Return the id of the response that a request continues, which may be wrong in other ways."""
    continued = _head(data).previous_response_id
    return continued if isinstance(continued, str) else None


def _head(data: bytes) -> _Head:
    try:
        return msgspec.json.decode(data, type=_Head)
    except RecursionError:
        return _Head()
    except ValueError:
        whole = with_whole_characters(data)
        return _Head() if whole == data else _head(whole)


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
    """Return the frame of an error, with the header that it has over HTTP. `stream_id` is the client's name of what failed, if
    it has one."""
    frame: Message = {"type": "error", "status": error.status, **error.body()}
    if error.retry_header is not None:
        frame["headers"] = {"retry-after": error.retry_header}
    if isinstance(stream_id, str) and len(stream_id) <= _LONGEST_STREAM_ID:
        frame["stream_id"] = stream_id
    return frame


def event_of(frame: Message) -> bytes:
    """Return a frame in the form in which a WebSocket takes events."""
    return b"event: %b\ndata: %b\n\n" % (frame["type"].encode(), json.dumps(frame).encode())
