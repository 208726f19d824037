"""Requests of agents are put together as sessions, for people to look at."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from responses_gateway.bounded_memory import TenantValues
from responses_gateway.request.who_asks.asker import MOST, MOST_OF_TENANT
from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.features.sessions.memory import SessionMemory
from responses_gateway.server.features.sessions.pages import SessionPages
from responses_gateway.server.features.sessions.usage import MOST_SESSIONS, QUESTION, SESSION, SessionUsage
from responses_gateway.server.generation.preparation.prepare import PreparedRequest
from responses_gateway.server.http.routes import HttpRoute
from responses_gateway.state.sessions import SessionTable
from responses_gateway.state.usage import DAY, UsageTable
from responses_gateway.telemetry.span_attributes import response_attributes
from responses_gateway.telemetry.tracing import Trace

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext


def _tell(threads: TenantValues[SpanContext], prepared: PreparedRequest, trace: Trace) -> None:
    """Tell in the trace of a request which agent asks, and link it to the one before in its thread or, if it is the first one,
    to the last one of its parent, so that a session is a tree. `threads` has the last span of each."""
    asker = prepared.caller.asker
    tenant = prepared.caller.tenant
    if asker.thread is None:
        return
    session = prepared.context.conversation
    agent_id = None
    if asker.is_named:
        session = session or asker.session
        agent_id = asker.thread
    trace.asked(response_attributes(conversation=session, agent_id=agent_id, agent_name=asker.agent))
    relation = "previous"
    before = threads.get(tenant, asker.thread)
    if before is None and asker.parent is not None:
        relation = "parent"
        before = threads.get(tenant, asker.parent)
    if before is not None:
        trace.link(before, relation)
    threads.put(tenant, asker.thread, trace.context)


async def _open(core: Core, stack: AsyncExitStack) -> Opened:
    store = core.responses.store
    table = None if store is None else SessionTable(store.database, core.settings.store_days * DAY)
    sums = None if store is None else UsageTable(store.database, "session_usage", SessionUsage.labels, MOST_SESSIONS)
    usage = SessionUsage(core.metrics, sums)
    stack.push_async_callback(usage.close)
    memory = SessionMemory(core.responses, table, usage)
    stack.push_async_callback(memory.close)
    core.responses.reports.readers.append(memory.read)
    core.responses.reports.divisions[SESSION] = usage.divide
    pages = SessionPages(memory)
    threads: TenantValues[SpanContext] = TenantValues(MOST_OF_TENANT, MOST)
    return Opened(
        session_notes=[memory.note],
        traced=[partial(_tell, threads)],
        routes=[
            HttpRoute("GET", "/admin/sessions", pages.list_rows, for_operators=True),
            HttpRoute("GET", "/admin/sessions/{id}", pages.show, for_operators=True),
            HttpRoute("GET", "/ui/api/sessions", pages.list_rows, for_visitors=True),
            HttpRoute("GET", "/ui/api/sessions/{id}", pages.show, for_visitors=True),
        ],
        questions={"sessions": pages.sessions, "session": pages.session, QUESTION: usage.rows},
    )


SESSIONS = Feature("sessions", None, _open)
