"""Requests of agents are put together as sessions, for people to look at."""

from __future__ import annotations

from contextlib import AsyncExitStack

from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.features.sessions.memory import SessionMemory
from responses_gateway.server.features.sessions.pages import SessionPages
from responses_gateway.server.features.sessions.usage import MOST_SESSIONS, QUESTION, SESSION, SessionUsage
from responses_gateway.server.http.routes import HttpRoute
from responses_gateway.state.sessions import SessionTable
from responses_gateway.state.usage import DAY, UsageTable


async def _open(core: Core, stack: AsyncExitStack) -> Opened:
    store = core.responses.store
    table = None if store is None else SessionTable(store.database, core.settings.store_days * DAY)
    sums = None if store is None else UsageTable(store.database, "session_usage", SessionUsage.labels, MOST_SESSIONS)
    usage = SessionUsage(core.metrics, sums)
    stack.push_async_callback(usage.close)
    memory = SessionMemory(core.responses, table, usage)
    stack.push_async_callback(memory.close)
    pages = SessionPages(memory)
    return Opened(
        readers=[memory.read],
        divisions={SESSION: usage.divide},
        session_notes=[memory.note],
        routes=[
            HttpRoute("GET", "/admin/sessions", pages.list_rows, for_operators=True),
            HttpRoute("GET", "/admin/sessions/{id}", pages.show, for_operators=True),
            HttpRoute("GET", "/ui/api/sessions", pages.list_rows, for_visitors=True),
            HttpRoute("GET", "/ui/api/sessions/{id}", pages.show, for_visitors=True),
        ],
        questions={"sessions": pages.sessions, "session": pages.session, QUESTION: usage.rows},
    )


SESSIONS = Feature("sessions", None, _open)
