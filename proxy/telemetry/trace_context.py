"""W3C Trace Context: the headers by which a trace goes on from the client to the backend, with or without traces of ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_TRACE_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
#: What the specification asks every hop to carry, in characters; ours is not a place to send more through.
_STATE_LIMIT = 512
_PRINTABLE = re.compile(r"[\x20-\x7e]*")


def trace_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """`traceparent`, and `tracestate` if it came with it, as they are to be sent on. Empty without a valid `traceparent`.

    `headers` are a client's, names in any case; values may be anything. Rules: https://www.w3.org/TR/trace-context/
    """
    parent = headers.get("traceparent", "").strip()
    if not _TRACE_PARENT.fullmatch(parent):
        return {}
    state = ",".join(part.strip() for part in _all(headers, "tracestate"))
    if not state or len(state) > _STATE_LIMIT or not _PRINTABLE.fullmatch(state):
        return {"traceparent": parent}
    return {"traceparent": parent, "tracestate": state}


def _all(headers: Mapping[str, str], name: str) -> Iterable[str]:
    """Every value of a header: a list may be spread over several lines."""
    getall = getattr(headers, "getall", None)
    return getall(name, ()) if getall is not None else [headers.get(name, "")]
