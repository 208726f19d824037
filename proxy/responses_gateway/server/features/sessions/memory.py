"""What this process knows of sessions: taken from the requests that end, looked up for those that run, and stored."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import msgspec

from responses_gateway.bounded_memory import TenantValues
from responses_gateway.ended_tasks import end_tasks, keep_going
from responses_gateway.request.who_asks import with_session
from responses_gateway.server.features.sessions.agent_requests import (
    AgentRequest,
    SessionOwner,
    agent_request,
    call_in,
    client_calls,
    owner_of,
    stored_request,
)
from responses_gateway.server.features.sessions.parts import SessionPart, begin, take
from responses_gateway.server.features.sessions.usage import SessionUsage
from responses_gateway.server.generation.preparation.context import PreviousResponse
from responses_gateway.server.generation.preparation.prepare import PreparedRequest
from responses_gateway.server.generation.request_log.facts import RequestFacts
from responses_gateway.server.generation.responses import Creation, Responses
from responses_gateway.state import Stored, StoreUnavailable
from responses_gateway.state.sessions import PartRow, SessionTable
from responses_gateway.state.usage import DAY
from responses_gateway.stream.translator import Translator

# Bytes of all sessions together that this process remembers, those used last; and sessions of one tenant.
MOST = 64 * 1024 * 1024
MOST_OF_TENANT = 2_000
_INTERVAL = 1.0  # seconds between two writes, because a busy process is not to write for each request
_PORTION = 1_000  # requests that are written at a time, because nobody else can write meanwhile


class RunningRequest(msgspec.Struct, frozen=True):
    """A request that has not ended, and whose it is."""

    owner: SessionOwner
    request: AgentRequest


class RememberedSessions:
    """Remembers sessions by tenant, in bounded memory."""

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


class SessionMemory:
    """Takes requests. `store` is the table of all processes, if there is one; `usage` counts what they use."""

    def __init__(self, responses: Responses, store: SessionTable | None, usage: SessionUsage) -> None:
        self.remembered = RememberedSessions()
        self.store = store
        self._usage = usage
        self._responses = responses
        self._changed: dict[str, SessionPart] = {}  # by name: what is to be written
        self._firsts: dict[str, Callable[[int], None]] = {}  # by name: adds its first response, as others may
        self._change = asyncio.Event()
        self._writing = asyncio.Lock()
        report = responses.metrics.report
        self._task = None if store is None else asyncio.create_task(keep_going(self._keep_up, report))

    def read(self, ended: Sequence[RequestFacts]) -> None:
        """Take requests that have ended."""
        for facts in ended:
            session = facts.asker.session
            if session is None:
                continue
            request = agent_request(facts)
            if facts.relayed is not None or (facts.answer is not None and facts.answer.chunks):  # a backend has answered
                self._usage.add_request(facts.account, session, request, int((facts.ended or 0) // DAY))
            self._take(owner_of(facts), request)

    def note(self, prepared: PreparedRequest, translator: Translator, facts: RequestFacts) -> Mapping[str, Any]:
        """Note what only the end of an answer tells. The log says nothing of it."""
        facts.client_calls = client_calls(prepared.context, translator)
        first = prepared.context.first
        known = first.facts if isinstance(first, PreviousResponse) else first
        if known is not None and facts.asker.source.get("session") == "previous_response_id":
            self._take_first(known, facts)
        return {}

    def _take_first(self, first: Stored | RequestFacts, facts: RequestFacts) -> None:
        """Take the response that a request continues and that names its chain, which was in no session before."""
        self.report()  # that one, too, as it was: in no session
        owner = owner_of(facts)
        is_stored = isinstance(first, Stored)
        part = self.remembered.get(owner.id)
        if part is not None and part.first is not None:
            return
        history = self._responses.reports.history
        for each in () if history is None else history.since(0):
            if each.answer is not None and each.answer.response_id == owner.session and each.tenant == owner.tenant:
                first = each  # of which more is known than of what is stored
        if isinstance(first, Stored):
            taken = stored_request(first)
        else:
            taken = agent_request(first)
            first.asker = with_session(first.asker, owner.session, "previous_response_id")
        last_call = call_in(facts.asker.thread or owner.session, facts.client_calls.answered)
        part = self.remembered.add(owner, msgspec.structs.replace(taken, last_call=last_call), begin)
        day = int((taken.ended or taken.started) // DAY)
        add = partial(self._usage.add_request, facts.account, owner.session, taken, day)
        add(1)
        if is_stored:
            self._firsts[part.name] = add

    def _take(self, owner: SessionOwner, request: AgentRequest) -> None:
        part = self.remembered.add(owner, request)
        if self.store is not None:
            self._changed[part.name] = part
            self._change.set()

    def running(self) -> Iterator[RunningRequest]:
        """Yield the requests of sessions that run here."""
        running = self._responses.reports.relayed()
        for activity in self._responses.in_flight.activities:
            if isinstance(activity, Creation) and activity.log.facts.asker.session is not None:
                running.append(activity.snapshot())
        for facts in running:
            if facts.asker.session is not None:
                yield RunningRequest(owner_of(facts), agent_request(facts, running=True))

    def report(self) -> None:
        """Have the requests taken that have just ended."""
        self._responses.metrics.flush()

    async def close(self) -> None:
        """Write what is left."""
        if self._task is not None:
            async with self._writing:  # else nobody would know what was written
                await end_tasks(self._task)
            self.report()
            await self.write()

    async def write(self) -> None:
        """Write what has changed. What cannot be written stays, as long as it is remembered."""
        while self.store is not None and self._changed:
            states = {part.name: (part.requests, part.first) for part in self._portion()}
            parts = [self._changed[name] for name in states]
            try:
                named = await self.store.save([_row(part) for part in parts])
            except StoreUnavailable:  # `Background` logs outages
                known = self.remembered.get
                self._changed = {name: part for name, part in self._changed.items() if known(part.id) is part}
                self._firsts = {name: add for name, add in self._firsts.items() if name in self._changed}
                return
            for part in parts:
                add = self._firsts.pop(part.name, None)
                if add is not None and part.name not in named:
                    add(-1)
                part.written, first = states[part.name]
                if (part.requests, part.first) == (part.written, first):
                    del self._changed[part.name]

    def _portion(self) -> Iterator[SessionPart]:
        """Yield what is to be written first."""
        requests = 0
        for part in self._changed.values():
            if requests >= _PORTION:
                return
            requests += part.requests - part.written
            yield part

    async def _keep_up(self) -> None:
        while True:
            if self._changed:
                self._change.set()
            await self._change.wait()
            self._change.clear()
            async with self._writing:
                await self.write()
            await asyncio.sleep(_INTERVAL)


def _row(part: SessionPart) -> PartRow:
    oldest = part.requests - len(part.kept) + 1
    numbered = enumerate(part.kept, oldest)
    return PartRow(
        part.name,
        part.id,
        part.owner.tenant,
        part.last,
        msgspec.msgpack.encode(msgspec.structs.replace(part, kept=[])),
        [(number, msgspec.msgpack.encode(request)) for number, request in numbered if number > part.written],
        oldest,
        None if part.first is None else part.first.response_id,
    )
