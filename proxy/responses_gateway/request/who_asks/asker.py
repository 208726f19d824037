"""Who asks, as a value, and what of a client's words may stand in it.

Clients choose these ids: each is bounded in length, means something only beside its tenant, and is never the label of a
metric. What a client does not say is absent; nothing is guessed."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

import msgspec

from responses_gateway.bounded_memory import TenantValues

Kind: TypeAlias = Literal["main", "subagent", "compaction", "title", "prewarm", "review", "auxiliary"]
# Kinds that are no turns of an agent: they do not continue its work.
BESIDE_THE_WORK: frozenset[Kind | None] = frozenset({"compaction", "title", "prewarm", "auxiliary"})
# Sources of a session that are no name of it: the response before is told, and a cache may be shared.
_NO_NAMES = frozenset({"previous_response_id", "prompt_cache_key"})
Headers: TypeAlias = Mapping[str, str]
Body: TypeAlias = Mapping[str, Any]
# Characters of an id: twice the longest that a client is known to send, and short enough for a line of the log.
LONGEST_ID = 256
# The threads that are remembered, those used last: of one tenant, who pushes out its own, and of all.
MOST_OF_TENANT = 2_000
MOST = 10_000
_ID = 12  # bytes of our id of a session: nobody finds another session with the same one


class Asker(msgspec.Struct, frozen=True, omit_defaults=True):
    """The agent that sends a request, as far as it says.

    `session` names the whole tree of an agent's work, `thread` the one conversation in it that asks, `parent` the thread that
    began this one, `forked_from` the thread whose history it was begun with. `turn` is the client's id of what its user asked
    for, `agent` the type or path of a sub-agent. `final`: with this request the session ends, or a sub-agent's thread.
    `tool_seconds`: how long the tools of the last answer took, where the client says so. `source` tells where each was read."""

    session: str | None = None
    thread: str | None = None
    parent: str | None = None
    forked_from: str | None = None
    turn: str | None = None
    kind: Kind | None = None
    agent: str | None = None
    final: bool = False
    tool_seconds: float | None = None
    source: Mapping[str, str] = {}

    @property
    def is_named(self) -> bool:
        """Whether the client names the session."""
        return self.source.get("session") not in _NO_NAMES


NOBODY = Asker()


class Statements:
    """Collects what a request says. The first statement about a value counts."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.source: dict[str, str] = {}

    def say(self, name: str, value: object, source: str) -> None:
        """Take the value of a name, unless it has one already, or this is none that a client may choose."""
        if name not in self.values and is_id(value):
            self.values[name] = value
            self.source[name] = source

    def know(self, name: str, value: object, source: str) -> None:
        """Do so for a value of ours, which is not checked."""
        self.values.setdefault(name, value)
        self.source.setdefault(name, source)

    def drop(self, name: str) -> None:
        """Forget a value."""
        self.values.pop(name, None)
        self.source.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def asker(self) -> Asker:
        """Return what was said. A session that names no threads is one thread."""
        if not self.values:
            return NOBODY
        if "session" in self.values:
            self.know("thread", self.values["session"], self.source["session"])
        return Asker(**self.values, source=self.source)


def is_id(value: object) -> bool:
    """Tell whether something may be an id: a text of at most 256 characters, each of which can be shown in a line."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_ID and value.isprintable()


def session_id(tenant: str, session: str) -> str:
    """Return the opaque id of a tenant's session."""
    return "sess_" + blake2b(f"{tenant}\0{session}".encode("utf-8", "surrogateescape"), digest_size=_ID).hexdigest()


def with_session(asker: Asker, session: str, source: str) -> Asker:
    """Return an asker as a member of a session that others have told of: the one it continues, or that of its parent."""
    named = {"session": session} if asker.thread is not None else {"session": session, "thread": session}
    return msgspec.structs.replace(asker, **named, source={**asker.source, **dict.fromkeys(named, source)})


def with_kind(asker: Asker, kind: Kind) -> Asker:
    """Return an asker of another kind, which the gateway knows better: it makes the request itself."""
    return msgspec.structs.replace(asker, kind=kind, source={**asker.source, "kind": "gateway"})


class SessionRoots:
    """Remembers the sessions of sub-agents' threads, so that what these begin is in the same session, however deep. After a
    restart, and at another process, a thread that was not seen there is a session for those that it begins."""

    def __init__(self) -> None:
        self._sessions: TenantValues[str] = TenantValues(MOST_OF_TENANT, MOST)  # by thread

    def placed(self, tenant: str, asker: Asker) -> Asker:
        """Return an asker that has a parent, in the session of this parent if it is known, and remember its thread."""
        parent = asker.parent
        by_parent = asker.source.get("session") == asker.source.get("parent")  # the client named no session
        session = None if parent is None or not by_parent else self._sessions.get(tenant, parent)
        if parent is not None and session is not None:
            self._sessions.put(tenant, parent, session)
            asker = with_session(asker, session, asker.source["session"])
        if asker.session is not None and asker.thread is not None:
            self._sessions.put(tenant, asker.thread, asker.session)
        return asker
