"""The sessions that this process remembers, in bounded memory: the ones used last, of each tenant and of all.

A tenant that begins many sessions pushes out its own. What all hold together is bounded, too: then the tenant that holds most
gives up its oldest ones, so that none can push out the sessions of the others."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from heapq import heapify, heappop, heapreplace
from itertools import count

from responses_gateway.server.features.sessions.parts import SessionPart, take
from responses_gateway.server.generation.request_log.agent_requests import AgentRequest, SessionOwner

# What a session weighs without its requests, each of which weighs 1: about 400 bytes.
_EMPTY = 5
# What the sessions of one tenant may weigh: a thousand of fifty requests; and those of all: 50 MB.
_OF_TENANT = 60_000
_OF_ALL = 120_000
_MOST_OF_TENANT = 2_000
# So much more is given up at once, because finding the heaviest tenant takes time.
_SPARE = 1_000


class _Tenant:
    def __init__(self) -> None:
        self.sessions: OrderedDict[str, SessionPart] = OrderedDict()  # by id, the one used last at the end
        self.weight = 0


class RememberedSessions:
    """Remembers sessions by tenant."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._ids: dict[str, str] = {}  # of sessions -> their tenants
        self._weight = 0
        process = secrets.token_hex(8)
        self._names = (f"{process}-{number}" for number in count())

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._ids

    def get(self, session_id: str) -> SessionPart | None:
        """Return a session by its id."""
        tenant = self._ids.get(session_id)
        return None if tenant is None else self._tenants[tenant].sessions[session_id]

    def all(self) -> list[SessionPart]:
        """Return all sessions."""
        return [part for tenant in self._tenants.values() for part in tenant.sessions.values()]

    def add(self, owner: SessionOwner, request: AgentRequest) -> SessionPart:
        """Take a request that has ended. Return its session."""
        session_id = owner.id
        tenant = self._tenants.get(owner.tenant)
        if tenant is None:
            tenant = self._tenants[owner.tenant] = _Tenant()
        part = tenant.sessions.get(session_id)
        if part is None:
            part = SessionPart(next(self._names), session_id, owner, request.started, request.started)
            tenant.sessions[session_id] = part
            self._ids[session_id] = owner.tenant
            self._weigh(tenant, _EMPTY)
        else:
            tenant.sessions.move_to_end(session_id)
        before = len(part.kept)
        take(part, request)
        self._weigh(tenant, len(part.kept) - before)
        while len(tenant.sessions) > _MOST_OF_TENANT or (tenant.weight > _OF_TENANT and len(tenant.sessions) > 1):
            self._forget_oldest(owner.tenant, tenant)
        if self._weight > _OF_ALL:
            self._make_room()
        return part

    def _make_room(self) -> None:
        heap = [self._rank(name) for name in self._tenants]
        heapify(heap)
        while self._weight > _OF_ALL - _SPARE:
            name = heap[0][2]
            self._forget_oldest(name, self._tenants[name])
            if name in self._tenants:
                heapreplace(heap, self._rank(name))
            else:
                heappop(heap)

    def _rank(self, name: str) -> tuple[int, float, str]:
        """Rank tenants: the heaviest is the least; of equal ones, that whose oldest session was used longest ago."""
        tenant = self._tenants[name]
        return -tenant.weight, next(iter(tenant.sessions.values())).last, name

    def _forget_oldest(self, name: str, tenant: _Tenant) -> None:
        session_id, part = tenant.sessions.popitem(last=False)
        del self._ids[session_id]
        self._weigh(tenant, -_EMPTY - len(part.kept))
        if not tenant.sessions:
            del self._tenants[name]

    def _weigh(self, tenant: _Tenant, weight: int) -> None:
        tenant.weight += weight
        self._weight += weight
