"""The Messages API as a client protocol. Its bodies are read as Responses requests, of which nothing is stored; all that
follows is the same for both."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from responses_gateway.backend.members import Members
from responses_gateway.conformance.messages import check_message_stream
from responses_gateway.request import Loss
from responses_gateway.request.messages import ReadTurns, in_messages_words, read_known_messages, read_messages
from responses_gateway.server.protocols.interface import (
    Allows,
    BodyForm,
    BodyReader,
    ClientProtocol,
    LimitCount,
    Reading,
    ReadingScope,
)
from responses_gateway.stream.writer.messages import MessageOptions
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.messages import MessagesRequest, error_body, error_of, parse_continued_messages, parse_messages

_RENAMED = Loss("parameter", "model", "adapted", "nobody serves a model of this name: the default model")
# The names of Anthropic's models begin with one of these.
_NAMES = re.compile("claude|anthropic", re.IGNORECASE)
# The blocks of an answer -> the items that the window shows them as.
_BLOCKS = {"text": "message", "thinking": "reasoning", "tool_use": "function_call"}


def _error(error: ApiError, request_id: str | None) -> tuple[int, dict[str, Any]]:
    return error_of(error)[0], error_body(error, request_id)


def _limit_headers(counts: Iterable[LimitCount]) -> dict[str, str]:
    """Return Anthropic's headers `anthropic-ratelimit-…`, whose times are RFC 3339."""
    headers: dict[str, str] = {}
    for kind, limit, remaining, seconds in counts:
        reset = datetime.now(UTC) + timedelta(seconds=math.ceil(seconds))
        headers[f"anthropic-ratelimit-{kind}-limit"] = str(limit)
        headers[f"anthropic-ratelimit-{kind}-remaining"] = str(remaining)
        headers[f"anthropic-ratelimit-{kind}-reset"] = f"{reset:%Y-%m-%dT%H:%M:%SZ}"
    return headers


def _served_model(members: Members, name: str, default: str | None, allows: Allows | None) -> str:
    """Return the model that a request asks for: for a name of Anthropic's that no backend is known to serve, the default, or
    else the first one that is served and allowed. Claude Code asks for several of them, whatever its user has chosen."""
    if _NAMES.match(name) is None:
        return name
    catalogues = [member.catalogue for member in members.by_name.values()]
    if any(catalogue.serves(name) for catalogue in catalogues):
        return name
    if default is not None and (allows is None or allows(default)):
        return default
    names = (known for catalogue in catalogues for known in catalogue.names())
    return next((known for known in names if allows is None or allows(known)), name)


def _read(body: MessagesRequest, scope: ReadingScope, known: ReadTurns | None) -> Reading | None:
    if known is None:
        reading = read_messages(body, scope.model, scope.policy, scope.hosted, scope.served_as)
    else:
        resumed = read_known_messages(body, known, scope.model, scope.policy, scope.hosted, scope.served_as)
        if resumed is None:
            return None
        reading = resumed
    return Reading(
        request=reading.request,
        model=body.model,
        form=MessageOptions(
            thinking=reading.thinking,
            stop_sequences=frozenset(body.stop_sequences or ()),
            max_tokens=body.max_tokens,
            context_window=scope.context_window,
            request_id=scope.request_id,
            safeguards=reading.safeguards,
        ),
        losses=reading.losses if scope.model == body.model else [_RENAMED, *reading.losses],
        words=partial(in_messages_words, says_effort=reading.says_effort),
        error=reading.places.error,
        policy=reading.policy,
        affinity=f"user:{reading.user}" if reading.user else "",
        context_window=scope.context_window,
        told={
            "metadata": body.metadata,
            "messages": body.messages,
            "tools": body.tools,
            "stop_sequences": body.stop_sequences,
            "output_config": body.output_config,
            "generate": reading.request.generate,
        },
        turns=reading.turns,
        resumed=known is not None,
    )


def _show(items: dict[int, dict[str, Any]], name: str, event: dict[str, Any]) -> None:
    if name == "content_block_start":
        block = event["content_block"]
        rest = {member: value for member, value in block.items() if member not in ("text", "thinking", "signature")}
        items[event["index"]] = {**rest, "type": _BLOCKS.get(block["type"], block["type"])}
    elif name == "content_block_delta" and event["index"] in items:
        item = items[event["index"]]
        delta = event["delta"]
        text = next((str(delta[member]) for member in ("text", "thinking", "partial_json") if member in delta), "")
        item["so_far"] = item.get("so_far", "") + text


READER = BodyReader(_read, _served_model, MessageOptions, "X-Api-Key")
MESSAGES = ClientProtocol(
    name="messages",
    path="/v1/messages",
    version_header="anthropic-version",
    id_header="request-id",
    error=_error,
    limit_headers=_limit_headers,
    body=BodyForm(parse_messages, parse_continued_messages, "messages", ("system", "tools")),
    check=check_message_stream,
    terminals=frozenset({"message_stop", "error"}),
    show=_show,
    reader=READER,
)
