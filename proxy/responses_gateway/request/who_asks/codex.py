"""Codex: `client_metadata` of the body, the JSON within it that tells of the turn, and headers that repeat both.

The body counts first, because the headers are projections of it that have changed between versions. Over a WebSocket they are
those of the handshake, which say `prewarm` and no turn as long as the connection lives."""

from __future__ import annotations

from typing import Any

import msgspec

from responses_gateway.request.who_asks.asker import Body, Headers, Kind, Statements

_TURN_METADATA = "x-codex-turn-metadata"
# Bytes of the JSON: Codex sends about a thousand, and its users may add 16 entries of 128 bytes.
_LONGEST = 16 * 1024
# Where `client_metadata`, the headers and the JSON have what.
_METADATA = {
    "session": "session_id",
    "thread": "thread_id",
    "parent": "x-codex-parent-thread-id",
    "turn": "turn_id",
    "subagent": "x-openai-subagent",
}
_HEADERS = {
    "session": "session-id",
    "thread": "thread-id",
    "parent": "x-codex-parent-thread-id",
    "subagent": "x-openai-subagent",
}
_TURN = {
    "session": "session_id",
    "thread": "thread_id",
    "parent": "parent_thread_id",
    "forked_from": "forked_from_thread_id",
    "turn": "turn_id",
    "request": "request_kind",
    "origin": "thread_source",
    "subagent": "subagent_kind",
    "path": "agent_name",
}
# Sub-agents that are not just a thread of the same work -> their kind.
_KINDS: dict[str, Kind] = {"review": "review", "compact": "compaction", "memory_consolidation": "auxiliary"}
# Sub-agents for which Codex names no type.
_SPAWNED = frozenset({"thread_spawn", "collab_spawn"})
# The path of every agent with the first version of Codex's sub-agents, so that it names none.
_ROOT = "/root"
# Names requests that write down memories.
_MEMORY = "x-openai-memgen-request"
NAMES = frozenset({*_HEADERS.values(), "session_id", _TURN_METADATA, _MEMORY})


def read_codex(statements: Statements, headers: Headers, body: Body, *, handshake: bool) -> None:
    """Take what Codex says. `handshake`: the headers are those of a WebSocket."""
    metadata = body.get("client_metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    for name, field in _METADATA.items():
        statements.say(name, metadata.get(field), f"client_metadata.{field}")
    _read_turn(statements, metadata.get(_TURN_METADATA), "client_metadata.x-codex-turn-metadata")
    if not handshake:
        _read_turn(statements, headers.get(_TURN_METADATA), f"header {_TURN_METADATA}")
        for name, header in _HEADERS.items():
            statements.say(name, headers.get(header), f"header {header}")
        statements.say("session", headers.get("session_id"), "header session_id")  # of versions up to 0.98, and of pi
        if _MEMORY in headers:
            statements.know("kind", "auxiliary", f"header {_MEMORY}")
    _settle(statements)


def _settle(statements: Statements) -> None:
    """Say of which kind a request is and of which agent, by what was read."""
    values = statements.values
    request, origin, subagent, path = (values.pop(name, None) for name in ("request", "origin", "subagent", "path"))
    sources = {name: statements.source.pop(name, "") for name in ("request", "origin", "subagent", "path")}
    if path not in (None, _ROOT):
        statements.know("agent", path, sources["path"])
    elif subagent is not None and subagent not in _SPAWNED:
        statements.know("agent", subagent, sources["subagent"])
    if request in ("compaction", "prewarm"):
        statements.know("kind", request, sources["request"])
    elif origin == "thread_title":
        statements.know("kind", "title", sources["origin"])
    elif subagent in _KINDS:
        statements.know("kind", _KINDS[subagent], sources["subagent"])
    elif subagent is not None:
        statements.know("kind", "subagent", sources["subagent"])
    elif origin == "subagent":
        statements.know("kind", "subagent", sources["origin"])
    elif "parent" in values:
        statements.know("kind", "subagent", statements.source["parent"])
    elif request == "turn" and origin == "user":
        statements.know("kind", "main", sources["origin"])


def _read_turn(statements: Statements, json: object, source: str) -> None:
    if not isinstance(json, str) or len(json) > _LONGEST:
        return
    try:
        turn = msgspec.json.decode(json, type=dict[str, Any])
    except (ValueError, RecursionError):  # it is no JSON, or no text that could be sent
        return
    for name, field in _TURN.items():
        statements.say(name, turn.get(field), f"{source}.{field}")
