"""How much one request may bring: a body within its limit can still hold millions of items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.request.input.items import Entry
from proxy.wire.errors import ApiError, invalid_request
from proxy.wire.requests import ResponsesRequest

#: Items that bring tools along.
TOOL_LISTS = frozenset({"additional_tools", "tool_search_output"})


def check_items(request: ResponsesRequest, history: Sequence[object], limit: int) -> None:
    """Input and history together have at most so many items. Raises `ApiError` 400."""
    own = len(request.input) if isinstance(request.input, list) else 1
    if own + len(history) > limit:
        raise _too_long("input", own + len(history), limit, "items, the history included" if history else "items")


def check_tools(request: ResponsesRequest, items: Sequence[Entry], limit: int) -> None:
    """All tools together, those in namespaces and in items included, are at most so many. Raises `ApiError` 400."""
    count = _tools_in(request.tools)
    for entry in items:
        if entry.kind in TOOL_LISTS:
            count += _tools_in(entry.item.get("tools"))
    if count > limit:
        raise _too_long("tools", count, limit, "tools")


def _tools_in(tools: Any) -> int:
    """What is no list is complained about where it is read."""
    return sum(1 + _tools_in(_members(tool)) for tool in tools) if isinstance(tools, list) else 0


def _members(tool: Any) -> Any:
    """The tools of a namespace; namespaces are not nested."""
    members = tool.get("tools") if isinstance(tool, Mapping) and tool.get("type") == "namespace" else None
    return [None] * len(members) if isinstance(members, list) else None


def _too_long(param: str, found: int, limit: int, what: str) -> ApiError:
    message = f"Invalid '{param}': array too long. Expected at most {limit} {what}, but got {found} instead."
    return invalid_request(message, param, "array_above_max_length")
