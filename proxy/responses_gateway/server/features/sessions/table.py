"""The sessions that this process remembers, in bounded memory: the ones used last, of each tenant and of all.

A tenant that begins many sessions pushes out its own. What all hold together is bounded, too: then the tenant that holds most
gives up its oldest ones, so that none can push out the sessions of the others."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from itertools import count

from responses_gateway.server.features.sessions.agent_requests import AgentRequest, SessionOwner
from responses_gateway.server.features.sessions.parts import SessionPart, begin, take
from responses_gateway.tenant_shares import TenantShares

# What a session weighs without its requests, each of which weighs 1: about 400 bytes.
_EMPTY = 5
# What the sessions of one tenant may weigh: a thousand of fifty requests; and those of all: 50 MB.
_OF_TENANT = 60_000
_OF_ALL = 120_000
_MOST_OF_TENANT = 2_000


class RememberedSessions:
    """Remembers sessions by tenant."""

    def __init__(self) -> None:
        self._tenants: dict[str, OrderedDict[str, SessionPart]] = {}  # by id, the one used last at the end
        self._ids: dict[str, str] = {}  # of sessions -> their tenants
        self._weights = TenantShares()
        process = secrets.token_hex(8)
        self._names = (f"{process}-{number}" for number in count())

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._ids

    def get(self, session_id: str) -> SessionPart | None:
        """Return a session by its id."""
        tenant = self._ids.get(session_id)
        return None if tenant is None else self._tenants[tenant][session_id]

    def all(self) -> list[SessionPart]:
        """Return all sessions."""
        return [part for sessions in self._tenants.values() for part in sessions.values()]

    def add(self, owner: SessionOwner, request: AgentRequest) -> SessionPart:
        """Take a request that has ended. Return its session."""
        return self._changed(owner, request, take)

    def begin(self, owner: SessionOwner, first: AgentRequest) -> None:
        """Take the first request of a chain."""
        self._changed(owner, first, begin)

    def _changed(
        self, owner: SessionOwner, request: AgentRequest, change: Callable[[SessionPart, AgentRequest], None]
    ) -> SessionPart:
        session_id = owner.id
        tenant = owner.tenant
        sessions = self._tenants.setdefault(tenant, OrderedDict())
        part = sessions.get(session_id)
        if part is None:
            part = SessionPart(next(self._names), session_id, owner, request.started, request.started)
            sessions[session_id] = part
            self._ids[session_id] = tenant
            self._weights.add(tenant, _EMPTY)
        else:
            sessions.move_to_end(session_id)
        before = len(part.kept)
        change(part, request)
        self._weights.add(tenant, len(part.kept) - before)
        while len(sessions) > _MOST_OF_TENANT or (self._weights.of(tenant) > _OF_TENANT and len(sessions) > 1):
            self._forget_oldest(tenant)
        while self._weights.total > _OF_ALL:
            self._forget_oldest(self._weights.largest())
        return part

    def _forget_oldest(self, tenant: str) -> None:
        sessions = self._tenants[tenant]
        session_id, part = sessions.popitem(last=False)
        del self._ids[session_id]
        self._weights.add(tenant, -_EMPTY - len(part.kept))
        if not sessions:
            del self._tenants[tenant]
