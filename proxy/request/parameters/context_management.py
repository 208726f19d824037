"""`context_management`: from how many tokens on the conversation is to be compacted before it is answered."""

from __future__ import annotations

from proxy.request.fields import shown
from proxy.wire.errors import invalid_request
from proxy.wire.requests import ResponsesRequest


def compact_threshold(request: ResponsesRequest) -> int | None:
    """The least `compact_threshold` of the entries, in tokens; None if there is none. Raises `ApiError` 400."""
    thresholds = []
    for index, entry in enumerate(request.context_management or ()):
        path = f"context_management[{index}]"
        if not isinstance(entry, dict):
            raise invalid_request(f"Invalid type for '{path}': an object is expected.", path, "invalid_type")
        if entry.get("type") != "compaction":
            message = f"Invalid value for '{path}.type': 'compaction' is expected, not {shown(entry.get('type'))}."
            raise invalid_request(message, f"{path}.type", "invalid_value")
        threshold = entry.get("compact_threshold")
        if threshold is None:
            continue
        if not isinstance(threshold, int) or isinstance(threshold, bool) or threshold < 1:
            message = f"Invalid value for '{path}.compact_threshold': a number of tokens is expected."
            raise invalid_request(message, f"{path}.compact_threshold", "invalid_value")
        thresholds.append(threshold)
    return min(thresholds, default=None)
