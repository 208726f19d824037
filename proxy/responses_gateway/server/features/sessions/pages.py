"""`/admin/sessions` and the data of the window: the sessions of all workers, and those that the store has of others."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from heapq import nlargest
from typing import Any

import msgspec
from aiohttp import web

from responses_gateway.server.access.api_keys import tenant
from responses_gateway.server.features.sessions.agent_requests import AgentRequest, SessionOwner
from responses_gateway.server.features.sessions.memory import RunningRequest, SessionMemory
from responses_gateway.server.features.sessions.parts import SessionPart, merged, outline, row, tree
from responses_gateway.server.http.exchange import json_answer
from responses_gateway.server.http.routes import ASK_ALL
from responses_gateway.state import StoreUnavailable
from responses_gateway.wire.errors import ApiError, invalid_request

_MOST_ROWS = 1_000  # rows of an answer at most, and if nothing else is asked for
# Parts that are read of the store for an answer: several workers may have one of each session.
MOST_PARTS = 2_000
_MOST_SEARCHED = 20_000  # for those with a name, which the store does not know
_part = msgspec.msgpack.Decoder(SessionPart).decode
_request = msgspec.msgpack.Decoder(AgentRequest).decode


class View(msgspec.Struct):
    """What one worker, or the store, shows."""

    parts: list[SessionPart]
    running: list[RunningRequest] = []


class SessionPages:
    """Serves the paths."""

    def __init__(self, memory: SessionMemory) -> None:
        self._memory = memory

    def sessions(self, key: str | None, session: str | None) -> View:
        """Return the sessions of this worker in which something happened last, without their requests: all, or those of a key,
        or with a client's name."""

        def wanted(owner: SessionOwner) -> bool:
            return key in (None, owner.key) and session in (None, owner.session)

        self._memory.report()
        running = [each for each in self._memory.running() if wanted(each.owner)]
        ids = {each.owner.id for each in running}
        parts = (part for part in self._memory.remembered.all() if wanted(part.owner))
        latest = nlargest(_MOST_ROWS + 1, parts, key=lambda part: (part.id in ids, part.last))
        return View([outline(part) for part in latest], running)

    def session(self, session_id: str) -> View:
        """Return a session as this worker knows it."""
        self._memory.report()
        part = self._memory.remembered.get(session_id)
        running = [each for each in self._memory.running() if each.owner.id == session_id]
        return View([] if part is None else [part], running)

    async def list_rows(self, request: web.Request) -> web.Response:
        """Answer `GET ?limit=&key=&session=&since=` with rows, those last where something happened first. Raise `ApiError`."""
        limit = int(_number(request, "limit", _MOST_ROWS, at_least=1))
        since = _number(request, "since", 0.0)
        filters = {name: request.query.get(name) for name in ("key", "session")}
        views = [_view(answer) for answer in await request.app[ASK_ALL]("sessions", *filters.values())]
        stored = await self._stored(**filters)
        now = time.time()
        rows = [row(part, running, now) for part, running in _together(views, stored) if running or part.last >= since]
        for name, wanted in filters.items():
            rows = [each for each in rows if wanted in (None, each[name])]
        rows.sort(key=lambda each: (each["last"], each["id"]), reverse=True)
        return json_answer({"object": "list", "data": rows[:limit], "has_more": len(rows) > limit, "now": now})

    async def show(self, request: web.Request) -> web.Response:
        """Answer `GET` with a session, and the tree of its threads. Raise `ApiError`."""
        session_id = request.match_info["id"]
        views = [_view(answer) for answer in await request.app[ASK_ALL]("session", session_id)]
        parts = _together(views, await self._stored_session(session_id))
        if not parts:
            raise ApiError(404, f"There is no session `{session_id[:100]}`.", code="not_found")
        now = time.time()
        part, running = parts[0]
        session = {"object": "session", **row(part, running, now), "threads": tree(part, running), "now": now}
        return json_answer({**session, "earlier_requests": max(0, part.requests - len(part.kept))})

    async def _stored(self, key: str | None, session: str | None) -> list[SessionPart]:
        """Return what the store has of these; nothing while it is away, because what is remembered is shown."""
        rows: list[bytes] = []
        most = MOST_PARTS if session is None else _MOST_SEARCHED
        if self._memory.store is not None:
            with suppress(StoreUnavailable):
                rows = await self._memory.store.latest(most, None if key is None else tenant(key, ""))
        # Many of them take time.
        return await asyncio.to_thread(lambda: [part for part in map(_part, rows) if session in (None, part.owner.session)])

    async def _stored_session(self, session_id: str) -> list[SessionPart]:
        rows: list[tuple[bytes, list[bytes]]] = []
        if self._memory.store is not None:
            with suppress(StoreUnavailable):
                rows = await self._memory.store.of_session(session_id)
        return [msgspec.structs.replace(_part(data), kept=list(map(_request, requests))) for data, requests in rows]


def _together(views: Sequence[View], stored: Iterable[SessionPart]) -> list[tuple[SessionPart, list[AgentRequest]]]:
    """Return each session once, and what runs of it. What a worker remembers is newer than what it has stored."""
    parts = {part.name: part for part in stored}
    parts.update({part.name: part for view in views for part in view.parts})
    sessions = merged(parts.values())
    running: dict[str, list[AgentRequest]] = {}
    for each in (each for view in views for each in view.running):
        session_id = each.owner.id
        running.setdefault(session_id, []).append(each.request)
        if session_id not in sessions:
            sessions[session_id] = SessionPart("", session_id, each.owner, each.request.started, each.request.started)
    return [(part, running.get(session_id, [])) for session_id, part in sessions.items()]


def _view(answer: Any) -> View:
    """Return the answer of a worker: this one's, or the JSON of another one."""
    return answer if isinstance(answer, View) else msgspec.convert(answer, View)


def _number(request: web.Request, name: str, default: float, at_least: float = 0.0) -> float:
    """Return the number in a parameter. Raise `ApiError` 400."""
    try:
        number = float(request.query.get(name, str(default))[:30])
    except ValueError:
        number = math.nan
    if not at_least <= number < math.inf:
        raise invalid_request(f"'{name}' must be a number from {at_least:g}.", name, "invalid_value")
    return number
