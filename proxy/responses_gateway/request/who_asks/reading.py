"""Who asks, out of the headers and the body of a request: which names count before which.

A router's explicit session comes first, then what the client says in its own way, then names that several clients share, and
last a key of the prompt cache. What one client says is read together: its id means nothing beside another's parent."""

from __future__ import annotations

from itertools import chain

from responses_gateway.request.who_asks import claude, codex
from responses_gateway.request.who_asks.asker import Asker, Body, Headers, Statements, is_id

# The session of a router, which may have the client's ids beside it.
_EXPLICIT = ("x-dynamo-session-id", "x-dynamo-parent-session-id")
# Headers that several clients share, the more particular ones first, each with that of its parent.
_AFFINITY = "x-session-affinity"  # OpenCode, pi
_PLAIN = "x-session-id"  # OpenCode, verifiers, prime-rl, vLLM
_PARENT = "x-parent-session-id"
_SHARED = (
    (_AFFINITY, _PARENT),
    ("x-dynamo-trajectory-id", "x-dynamo-parent-trajectory-id"),
    ("x-smg-routing-key", ""),
    (_PLAIN, _PARENT),
)
_FINAL = ("x-session-final", "x-dynamo-session-final")
# All headers that may tell: most requests have none of them, which is quick to see.
NAMES = frozenset({*codex.NAMES, *claude.NAMES, *_FINAL, *_EXPLICIT, *chain.from_iterable(_SHARED)})
# The roles of a title's messages: what the user asked for, and what a title is.
_ASKING = frozenset({"system", "developer", "user"})


def asker_of(headers: Headers, body: Body, *, handshake: bool = False) -> Asker:
    """Return who asks. `body` is that of a request of any API, or those of its fields that may tell. `handshake`: the
    headers are those of a WebSocket, and the body is a message. Which responses a request continues is not known here."""
    named = _lowered(headers)
    explicit = Statements()  # of a router's own headers
    _read_pair(explicit, named, *_EXPLICIT)
    native = _native(named, body, handshake=handshake)
    if explicit.values:
        native = _within(explicit, native)
    elif "session" not in native:
        native.say("session", body.get("prompt_cache_key"), "prompt_cache_key")
    options = body.get("prompt_cache_options")
    if body.get("generate") is False:
        native.know("kind", "prewarm", "generate")
    elif isinstance(options, dict) and options.get("prewarm") is True:
        native.know("kind", "prewarm", "prompt_cache_options.prewarm")
    elif asks_for_summary(body.get("input")):
        native.know("kind", "compaction", "input")
    for name in _FINAL:
        if named.get(name, "").lower() == "true":
            native.know("final", value=True, source=f"header {name}")
    return native.asker()


def asks_for_summary(items: object) -> bool:
    """Tell whether the input ends with what asks for a summary of it."""
    last = items[-1] if isinstance(items, list) and items else None
    return isinstance(last, dict) and last.get("type") == "compaction_trigger"


def _lowered(headers: Headers) -> Headers:
    """Return the headers that may tell, by their names in lower case; the first one of a name counts."""
    named: dict[str, str] = {}
    for name, value in headers.items():
        if name.lower() in NAMES:
            named.setdefault(name.lower(), value)
    return named


def _within(explicit: Statements, native: Statements) -> Statements:
    """Return what a client says within the session of a router. If that is a child of another one, it is the thread, too, and
    else the client's threads are parts of it."""
    if "session" not in native or "parent" in explicit:
        for name in ("session", "thread", "parent"):
            native.drop(name)
    native.drop("session")
    for name, value in explicit.values.items():
        native.know(name, value, explicit.source[name])
    return native


def _native(headers: Headers, body: Body, *, handshake: bool) -> Statements:
    """Return what the first client says whose way of naming a session this is; nothing if it is nobody's."""
    statements = Statements()
    codex.read_codex(statements, headers, body, handshake=handshake)
    if "session" in statements:
        return statements
    statements = Statements()
    claude.read_claude(statements, headers, body)
    if "session" in statements:
        return statements
    _read_trajectory(statements, body.get("nvext"))
    for name, parent in _SHARED:
        if "session" not in statements:
            _read_pair(statements, headers, name, parent)
    is_opencode = _AFFINITY in headers and headers[_AFFINITY] == headers.get(_PLAIN)
    if is_opencode and "parent" not in statements and _is_title(body):
        statements.know("kind", "title", "tools")
    return statements


def _read_pair(statements: Statements, headers: Headers, name: str, parent: str) -> None:
    """Take the session of a header; with that of its parent, it is a thread of the parent's session."""
    _place(statements, headers.get(name), f"header {name}", headers.get(parent), f"header {parent}")


def _read_trajectory(statements: Statements, extension: object) -> None:
    """Take what `nvext.agent_context` says, in which Dynamo's clients named sessions before they had headers."""
    context = extension.get("agent_context") if isinstance(extension, dict) else None
    if not isinstance(context, dict):
        return
    at = "nvext.agent_context"
    statements.say("session", context.get("session_id"), f"{at}.session_id")
    if "session" in statements:
        statements.say("thread", context.get("trajectory_id"), f"{at}.trajectory_id")
        statements.say("parent", context.get("parent_trajectory_id"), f"{at}.parent_trajectory_id")
    else:
        parent = context.get("parent_trajectory_id")
        _place(statements, context.get("trajectory_id"), f"{at}.trajectory_id", parent, f"{at}.parent_trajectory_id")
    if "parent" in statements:
        statements.know("kind", "subagent", statements.source["parent"])


def _place(statements: Statements, session: object, source: str, parent: object, parent_source: str) -> None:
    if not is_id(session):
        return
    if parent != session:
        statements.say("parent", parent, parent_source)
    if "parent" in statements:
        statements.know("session", parent, parent_source)
        statements.know("kind", "subagent", parent_source)
    statements.know("session", session, source)
    statements.know("thread", session, source)


def _is_title(body: Body) -> bool:
    """Tell whether a request of OpenCode asks for a title: it has no tools, and nothing that a model has said before, which
    what sums up a session has."""
    entries = body.get("messages") or body.get("input")
    asks = isinstance(entries, list) and all(isinstance(entry, dict) and entry.get("role") in _ASKING for entry in entries)
    return asks and not body.get("tools")
