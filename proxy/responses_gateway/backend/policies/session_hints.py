"""What a server may know of the session of a request: fields and headers, as each kind of server takes them.

The order of requests is the same everywhere: a summary is not to wait behind a queue, and the work itself not behind a title;
each kind of server counts in its own direction. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from responses_gateway.wire.added_fields import HINT, AddedFields

ServerHints: TypeAlias = Literal["vllm", "sglang", "dynamo"]
# How urgent a request is, by its kind. The work itself, and what tells no kind, is as urgent as requests without any hint.
_URGENCY = {"compaction": 1, "subagent": -1, "review": -1, "title": -2, "auxiliary": -2}
# Servers that serve the lower number first.
_LOWER_FIRST = frozenset({"vllm"})


class SessionHints(NamedTuple):
    """The session of a request: who asks (ids that are unique among tenants; no thread where its end would not be noticed), the
    kind of the request, and whether the session ends with it."""

    session: str
    thread: str
    parent: str | None
    kind: str | None
    final: bool = False


class _Hinted(msgspec.Struct):
    priority: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    session_id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    nvext: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_read_hinted = msgspec.json.Decoder(_Hinted).decode


def unique_id(tenant: str, client_id: str) -> str:
    """Return the id of a thread as servers know it, who do not know tenants: those of clients without keys are as they came."""
    if not tenant:
        return client_id
    return blake2b(f"{len(tenant)}:{tenant}{client_id}".encode("utf-8", "replace"), digest_size=16).hexdigest()


def hinted_body(server: ServerHints, body: bytes, hints: SessionHints, added: AddedFields) -> tuple[bytes, AddedFields]:
    """Return a chat request with the fields for a kind of server, and these beside those that were `added` before. What it has
    already comes from the client or from the settings, and stays."""
    had = _read_hinted(body)
    fields = {name: value for name, value in _fields(server, hints).items() if getattr(had, name) is msgspec.UNSET}
    if not fields:
        return body, added
    return msgspec.json.encode(fields)[:-1] + b"," + body.lstrip()[1:], {**added, **dict.fromkeys(fields, HINT)}


def hint_headers(server: ServerHints, hints: SessionHints) -> dict[str, str]:
    """Return the headers for a kind of server, and for routers before it."""
    if server == "sglang":
        return _sendable({"X-SMG-Routing-Key": hints.session})
    if server == "vllm":
        return _sendable({"X-Session-ID": hints.thread})
    headers = {"X-Dynamo-Session-ID": hints.thread}
    if hints.parent is not None:
        headers["X-Dynamo-Parent-Session-ID"] = hints.parent
    if hints.final:
        headers["X-Dynamo-Session-Final"] = "true"
    return _sendable(headers)


def _fields(server: ServerHints, hints: SessionHints) -> dict[str, Any]:
    urgency = _URGENCY.get(hints.kind or "main", 0)
    priority = -urgency if server in _LOWER_FIRST else urgency
    if server == "dynamo":
        return {"nvext": {"agent_hints": {"priority": priority}}}
    if server == "vllm":
        return {"priority": priority}
    return {"priority": priority, "session_id": hints.thread} if hints.thread else {"priority": priority}


def _sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers whose values can be sent: ids of clients may have any characters that can be shown."""
    return {name: value for name, value in headers.items() if value.isascii()}
