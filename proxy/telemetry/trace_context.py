"""W3C Trace Context: the headers that continue a client's trace at the backend, whether the gateway traces or not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_TRACE_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
# What the specification asks every hop to forward, in characters. No more is accepted.
_STATE_LIMIT = 512
_PRINTABLE = re.compile(r"[\x20-\x7e]*")


def trace_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the `traceparent` and `tracestate` to forward; nothing without a valid `traceparent`. `headers` are a client's,
    with names in any case and arbitrary values. Rules: https://www.w3.org/TR/trace-context/"""
    parent = headers.get("traceparent", "").strip()
    if not _TRACE_PARENT.fullmatch(parent):
        return {}
    state = ",".join(part.strip() for part in _values(headers, "tracestate"))
    if not state or len(state) > _STATE_LIMIT or not _PRINTABLE.fullmatch(state):
        return {"traceparent": parent}
    return {"traceparent": parent, "tracestate": state}


def _values(headers: Mapping[str, str], name: str) -> Iterable[str]:
    """Return all values of a header: a list may be spread over several lines."""
    getall = getattr(headers, "getall", None)
    return getall(name, ()) if getall is not None else [headers.get(name, "")]
