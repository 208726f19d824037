"""Claude Code: headers, `metadata.user_id` of the body, and the hint headers that `CLAUDE_CODE_GATEWAY_HINT_HEADERS` adds."""

from __future__ import annotations

from typing import Any

import msgspec

from responses_gateway.request.who_asks.asker import Body, Headers, Kind, Statements

_SESSION = "x-claude-code-session-id"
_AGENT = "x-claude-code-agent-id"
_PARENT = "x-claude-code-parent-agent-id"
_TYPE = "x-claude-code-agent-type"
_PROMPT = "x-claude-code-prompt-id"
_CLASS = "x-claude-code-request-class"
_DURATIONS = "x-claude-code-prev-tool-durations"
_KINDS: dict[str, Kind] = {
    "main": "main",
    "subagent": "subagent",
    "compaction": "compaction",
    "auxiliary": "auxiliary",
    "side_reply": "auxiliary",
}
# Characters of `metadata.user_id`, and of the header of durations with its entries: what Claude Code sends at most.
_LONGEST = 4096
_MOST_DURATIONS = 32
# Digits of a duration in milliseconds: eleven days.
_MOST_DIGITS = 9
NAMES = frozenset({_SESSION, _AGENT, _PARENT, _TYPE, _PROMPT, _CLASS, _DURATIONS})


def read_claude(statements: Statements, headers: Headers, body: Body) -> None:
    """Take what Claude Code says, if it has named its session."""
    statements.say("session", headers.get(_SESSION), f"header {_SESSION}")
    statements.say("session", _session_of(body.get("metadata")), "metadata.user_id")
    if "session" not in statements:
        return
    statements.say("thread", headers.get(_AGENT), f"header {_AGENT}")
    if "thread" in statements:
        statements.say("parent", headers.get(_PARENT), f"header {_PARENT}")
        statements.know("parent", statements.values["session"], statements.source["session"])  # of an agent of the first level
    statements.say("turn", headers.get(_PROMPT), f"header {_PROMPT}")
    statements.say("agent", headers.get(_TYPE), f"header {_TYPE}")
    _read_kind(statements, headers.get(_CLASS), body)
    statements.know("thread", statements.values["session"], statements.source["session"])  # also within a router's session
    seconds = _tool_seconds(headers.get(_DURATIONS))
    if seconds is not None:
        statements.know("tool_seconds", seconds, f"header {_DURATIONS}")


def _read_kind(statements: Statements, request_class: str | None, body: Body) -> None:
    kind = _KINDS.get(request_class or "")
    if kind in (None, "auxiliary") and _asks_for_title(body):
        statements.know("kind", "title", "output_config.format")
    elif kind is not None:
        statements.know("kind", kind, f"header {_CLASS}")
    elif "thread" in statements:
        statements.know("kind", "subagent", statements.source["thread"])
    elif body.get("stop_sequences") and not body.get("tools"):
        statements.know("kind", "auxiliary", "stop_sequences")  # a classifier, which no hint was sent with


def _asks_for_title(body: Body) -> bool:
    """Tell whether a request has no tools, and an object with a title as the only answer."""
    config = body.get("output_config")
    form = config.get("format") if isinstance(config, dict) else None
    schema = form.get("schema") if isinstance(form, dict) else None
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return body.get("tools") == [] and isinstance(properties, dict) and list(properties) == ["title"]


def _session_of(metadata: object) -> object:
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user, str) or len(user) > _LONGEST or not user.startswith("{"):
        return None
    try:
        return msgspec.json.decode(user, type=dict[str, Any]).get("session_id")
    except (ValueError, RecursionError):
        return None


def _tool_seconds(durations: str | None) -> float | None:
    """Return the sum of durations as in `Bash=120;Read=4`, in milliseconds there; None if none can be read."""
    if durations is None or len(durations) > _LONGEST:
        return None
    texts = [entry.rpartition("=")[2].strip() for entry in durations.split(";", _MOST_DURATIONS)[:_MOST_DURATIONS]]
    numbers = [int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS]
    return sum(numbers) / 1000 if numbers else None
