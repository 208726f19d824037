"""Server-sent events: decode them incrementally, without I/O; the literals that are written between them."""

from __future__ import annotations

import json
import re

_BLANK_LINES = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)+")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_ERROR_EVENT = re.compile(rb"event: ?error\s*\Z")
# Bytes as numbers, because `in` with bytes makes and catches an error each time.
_CR = 13
_LF = 10
# Most bytes of one event that is not complete.
MOST_BUFFERED = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
# The literal that ends every stream (Open Responses, R3).
DONE = "data: [DONE]\n\n"
# A comment: keeps proxies awake, invisible to clients.
COMMENT = ": keep-alive\n\n"
# How a body of server-sent events begins, and how one of JSON does.
_STREAM = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")
_OBJECT = re.compile(rb"\s*[{\[]")
_BARE = re.compile(rb"\s*\[?\s*\{")


def is_stream(body: bytes) -> bool:
    """Tell whether a body is server-sent events, of a server that did not say so."""
    return _STREAM.match(body) is not None


def is_object(body: bytes) -> bool:
    """Tell whether a body is an object of JSON, or a list, as far as its beginning tells."""
    return _OBJECT.match(body) is not None


def as_stream(body: bytes) -> bytes:
    """Return the events that a body consists of, which may be one JSON object."""
    if is_stream(body):
        return body
    return b"data: " + body.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\ndata: [DONE]\n\n"


def on_one_line(events: bytes) -> bytes:
    """Return events with escapes for those characters at which `str.splitlines` ends a line, and clients that use it."""
    return events.replace(b"\xe2\x80\xa8", rb"\u2028").replace(b"\xe2\x80\xa9", rb"\u2029").replace(b"\xc2\x85", rb"\u0085")


class SSETooLong(ValueError):
    """One event is longer than the decoder may buffer."""


class SSEDecoder:
    """Takes bytes split anywhere and returns the `data:` payloads of complete events. Comments and the fields `event:`, `id:`,
    `retry:` are skipped (chat servers put everything into `data:`, but for the name of an error: such an event, whose data may
    be a comment, becomes `{"error": …}`, and so does one that is a line `error:`); several `data:` lines of one event are
    joined with a newline, as the SSE specification requires. JSON without `data:` is a payload: no field begins like that, and
    some servers answer so, with an error or with the whole completion, though they say that they stream."""

    __slots__ = ("_limit", "buffer")

    def __init__(self, limit: int = MOST_BUFFERED) -> None:
        self.buffer = b""  # the beginning of an incomplete event
        self._limit = limit

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payloads of all events completed by `data`, in order. Raises `SSETooLong`."""
        if self.buffer:
            data = self.buffer + data
        elif data.find(b"\n") == len(data) - 2 and data[-1] == _LF and data[:6] == b"data: " and _CR not in data:
            return [data[6:-2]]  # the usual case: one read is one event
        if _CR not in data:
            events, _, rest = data.rpartition(b"\n\n")
            self.buffer = b""
            if rest:
                self._keep(rest)
            payloads = events.split(b"\n\ndata: ")
            if events[:6] == b"data: " and events.count(b"\n") == 2 * len(payloads) - 2:  # each is one line of data
                payloads[0] = payloads[0][6:]
                return payloads
            whole = [event for event in events.split(b"\n\n") if b"data" in event or b"error" in event or b"{" in event]
            return [payload for event in whole if (payload := _payload(event)) is not None]
        payloads = []
        start = 0
        # A "\r" at the very end may be half of "\r\n": keep it for the next read.
        end = len(data) - data.endswith(b"\r")
        for blank in _BLANK_LINES.finditer(data, 0, end):
            payload = _payload(data[start : blank.start()])
            if payload is not None:
                payloads.append(payload)
            start = blank.end()
        self._keep(data[start:])
        return payloads

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """Split the buffer and `data` into whole events and the rest, for a stream whose lines end with a line feed. The buffer
        is not changed: the caller assigns the rest to it, or calls `feed` instead."""
        data = self.buffer + data
        end = data.rfind(b"\n\n") + 2
        return (data[:end], data[end:]) if end > 1 else (b"", data)

    def finish(self) -> list[bytes]:
        """Return the payload of a last event without a blank line (some servers omit it)."""
        payload = _payload(self.buffer)
        self.buffer = b""
        return [] if payload is None else [payload]

    def _keep(self, rest: bytes) -> None:
        if len(rest) > self._limit:
            raise SSETooLong(f"an event of more than {self._limit} bytes")
        self.buffer = rest


def _payload(event: bytes) -> bytes | None:
    if event[:6] == b"data: " and _LF not in event and _CR not in event:
        return event[6:]
    lines = _LINE_END.split(event.removeprefix(_BOM))
    is_error = any(map(_ERROR_EVENT.match, lines))
    data = [line for line in lines if line.startswith(b"data:") or line == b"data"]
    if data:
        payload = b"\n".join(line[6:] if line[5:6] == b" " else line[5:] for line in data)
        return _error(payload) if is_error else payload
    errors = [line.partition(b":")[2] for line in lines if line.startswith(b"error:") or (is_error and line[:1] == b":")]
    bare = b"\n".join(lines).strip() if _BARE.match(event) else None
    return _error(b"\n".join(errors)) if errors else bare


def _error(payload: bytes) -> bytes:
    """Return the payload of an event that only its name tells to be an error, as one that tells it itself."""
    try:
        json.loads(payload)
    except (ValueError, RecursionError):
        payload = json.dumps(payload.decode("utf-8", "replace").strip()).encode()
    return b'{"error":%b}' % payload
