"""Sends the turns of a thread to the backend that had the last one, tells servers of sessions, and when these end.

A child's first turn goes where its parent's last one was. A thread ends with the request that says so, or when nothing was
heard of it for a while; SGLang, which keeps what belongs to a session, is told of that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

import msgspec

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.transport.client import Backend
from responses_gateway.bounded_memory import TenantValues
from responses_gateway.ended_tasks import KeptTasks, keep_going
from responses_gateway.request.who_asks.asker import MOST, MOST_OF_TENANT
from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.features.session_hints.hints import affinity_of, all_hints, relayed, unique_id
from responses_gateway.server.generation.preparation.prepare import PreparedRequest
from responses_gateway.server.generation.request_log.facts import RequestFacts
from responses_gateway.settings import Settings
from responses_gateway.stream.translator import Translator
from responses_gateway.telemetry import logs
from responses_gateway.wire.errors import ApiError

# Seconds after which a thread counts as ended, because no server keeps its blocks for so long under load.
EXPIRY = 1800.0
# Seconds between two looks at the threads, and the longest that a server may take to end one.
INTERVAL = 60.0
_PATIENCE = 10.0
# Threads that servers are asked to end at a time; those that have to wait for too long are left to the server.
AT_ONCE = 8


class _Place(NamedTuple):
    """Where the last turn of a thread was, and when; `session` is that to which it belongs, `id` its own at servers."""

    backend: str
    at: float
    session: str
    id: str


class Threads:
    """Remembers where the threads of sessions were."""

    def __init__(self, pool: Pool, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._clock = clock
        self._places: TenantValues[_Place] = TenantValues(MOST_OF_TENANT, MOST, self._end)  # by the name of the thread
        self._closing: KeptTasks[None] = KeptTasks()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def with_route(self, prepared: PreparedRequest, _settings: Settings) -> PreparedRequest:
        """Have a request of a session go where its thread was, with what servers may know of it."""
        asker = prepared.caller.asker
        tenant = prepared.caller.tenant
        route = msgspec.structs.replace(prepared.call.route, hints=partial(all_hints, tenant, asker))
        if asker.is_named:  # else the hash that all gateways compute says where it goes
            names = (asker.thread, asker.parent, asker.session)  # its own, that which began it, the root of its session
            places = (self._places.get(tenant, name) for name in names if name is not None)
            near = next((place.backend for place in places if place is not None), "")
            weak = not route.affinity or route.affinity.startswith("chain:")
            affinity = affinity_of(tenant, asker) if weak else route.affinity
            route = msgspec.structs.replace(route, affinity=affinity, near=near)
        return msgspec.structs.replace(prepared, call=msgspec.structs.replace(prepared.call, route=route))

    def note(self, prepared: PreparedRequest, _translator: Translator, facts: RequestFacts) -> Mapping[str, Any]:
        """Remember where a turn was."""
        asker = prepared.caller.asker
        if asker.session is None or facts.backend is None:
            return {}
        tenant = prepared.caller.tenant
        thread = asker.thread or asker.session
        new = _Place(facts.backend, self._clock(), asker.session, unique_id(tenant, thread))
        kept = new
        before = self._places.get(tenant, thread)
        if before is not None and asker.kind in ("title", "auxiliary"):  # they begin otherwise, so that no turn has to follow
            kept = before._replace(at=new.at)
        if before is not None and before.backend != new.backend:
            self._end(before if kept is new else new)  # what it has there is used no more
        self._places.put(tenant, thread, kept)
        if asker.final:
            for name, place in self._places.of(tenant).items():
                if name == thread or (asker.parent is None and place.session == asker.session):
                    self._end(self._places.pop(tenant, name))
        return {}

    def expire(self) -> None:
        """End the threads of which nothing was heard for a while."""
        before = self._clock() - EXPIRY
        for tenant, name, place in self._places:
            if place.at <= before:
                self._end(self._places.pop(tenant, name))

    def _end(self, place: _Place) -> None:
        member = self._pool.members.by_name.get(place.backend)
        if member is not None and member.spec.session_hints == "sglang":
            self._closing.begin(self._close(member.backend, place))

    async def _close(self, backend: Backend, place: _Place) -> None:
        """Tell a server that a thread has ended. That it does not know it, or cannot be reached, does no harm."""
        body = msgspec.json.encode({"session_id": place.id})
        headers = [("Content-Type", "application/json")]
        try:
            async with asyncio.timeout(_PATIENCE), self._turns:
                answer = await backend.request("POST", "close_session", below=backend.root, body=body, headers=headers)
                answer.release()
        except (ApiError, TimeoutError) as error:
            logs.logger().debug("session not closed", extra=logs.fields(backend=place.backend, error=type(error).__name__))

    async def look(self) -> None:
        """End threads that have expired, again and again."""
        while True:
            await asyncio.sleep(INTERVAL)
            self.expire()

    async def close(self, looking: asyncio.Task[None]) -> None:
        """Look no more, and wait until servers were told of what has ended."""
        looking.cancel()
        await asyncio.gather(looking, *self._closing, return_exceptions=True)


async def _open(core: Core, stack: AsyncExitStack) -> Opened:
    threads = Threads(core.responses.pool, asyncio.get_running_loop().time)
    stack.push_async_callback(threads.close, asyncio.create_task(keep_going(threads.look, core.metrics.report)))
    return Opened(session_steps=[threads.with_route], session_notes=[threads.note], relayed_routes=[relayed])


SESSION_HINTS = Feature("session_hints", None, _open)
