"""The sessions that this process remembers, in bounded memory: the ones used last, of each tenant and of all."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from itertools import count

from responses_gateway.server.features.sessions.agent_requests import AgentRequest, SessionOwner
from responses_gateway.server.features.sessions.parts import SessionPart, take
from responses_gateway.tenant_shares import TenantValues

# Bytes of all sessions together.
MOST = 64 * 1024 * 1024
# Sessions of one tenant.
MOST_OF_TENANT = 2_000


class RememberedSessions:
    """Remembers sessions by tenant."""

    def __init__(self) -> None:
        self._parts: TenantValues[SessionPart] = TenantValues(MOST_OF_TENANT, MOST, self._forget)
        self._tenants: dict[str, str] = {}  # of the ids of sessions
        process = secrets.token_hex(8)
        self._names = (f"{process}-{number}" for number in count())

    def get(self, session_id: str) -> SessionPart | None:
        """Return a session by its id."""
        tenant = self._tenants.get(session_id)
        return None if tenant is None else self._parts.get(tenant, session_id)

    def all(self) -> list[SessionPart]:
        """Return all sessions."""
        return [part for _, _, part in self._parts]

    def add(
        self, owner: SessionOwner, request: AgentRequest, how: Callable[[SessionPart, AgentRequest], None] = take
    ) -> SessionPart:
        """Take a request that has ended. Return its session."""
        part = self.get(owner.id)
        if part is None:
            part = SessionPart(next(self._names), owner.id, owner, request.started, request.started)
            self._tenants[owner.id] = owner.tenant
        how(part, request)
        self._parts.put(owner.tenant, owner.id, part, part.size)
        return part

    def _forget(self, part: SessionPart) -> None:
        del self._tenants[part.id]
