"""The Responses API as a client protocol. Its errors and limits are those of OpenAI's other APIs, too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from responses_gateway.conformance.checker import check_stream
from responses_gateway.conformance.levels import Violation
from responses_gateway.server.protocols.interface import BodyForm, ClientProtocol, LimitCount
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.requests import parse_continued, parse_request

_ITEM_EVENTS = frozenset({"response.output_item.added", "response.output_item.done"})


def _error(error: ApiError, _request_id: str | None) -> tuple[int, dict[str, Any]]:
    return error.status, error.body()


def openai_headers(counts: Iterable[LimitCount]) -> dict[str, str]:
    """Return OpenAI's headers `x-ratelimit-…`."""
    headers: dict[str, str] = {}
    for kind, limit, remaining, seconds in counts:
        headers[f"x-ratelimit-limit-{kind}"] = str(limit)
        headers[f"x-ratelimit-remaining-{kind}"] = str(remaining)
        headers[f"x-ratelimit-reset-{kind}"] = duration(seconds)
    return headers


def duration(seconds: float) -> str:
    """Return a duration as in the `x-ratelimit-reset-…` headers: `120ms`, `1s`, `6m0s`, `1h0m0s`; rounded up."""
    milliseconds = -int(-seconds * 1000 // 1)
    if milliseconds < 1000:
        return f"{milliseconds}ms" if milliseconds > 0 else "0s"
    whole = -(-milliseconds // 1000)
    minutes_in_all, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes_in_all, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _check(stream: bytes) -> list[Violation]:
    return check_stream(stream, unfinished_allowed=True)  # because the items of an answer that failed may have no end


def _show(items: dict[int, dict[str, Any]], name: str, event: dict[str, Any]) -> None:
    place = event.get("output_index", -1)
    if name in _ITEM_EVENTS:
        items[place] = event["item"]
    elif name.endswith(".delta") and "summary" not in name and place in items:
        items[place]["so_far"] = items[place].get("so_far", "") + str(event.get("delta", ""))


RESPONSES = ClientProtocol(
    name="responses",
    path="/v1/responses",
    error=_error,
    limit_headers=openai_headers,
    body=BodyForm(parse_request, parse_continued, "input", ("instructions", "tools")),
    check=_check,
    terminals=frozenset({"response.completed", "response.incomplete", "response.failed"}),
    show=_show,
    has_failed_answers=True,
)
