"""Responses that wait for their completion window: shown and cancelled like any other, but run by nobody until one process
begins them.

A row is there as long as its response waits: whoever begins, cancels or deletes the response deletes the row in the same
transaction, so that one of them wins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from responses_gateway.state import events, responses
from responses_gateway.state.interfaces import Database, Sql, add_row, transaction
from responses_gateway.state.records import EventRow, ResponseRecord, Running
from responses_gateway.state.running import EndAbandoned, cancel, end_abandoned

CHAIN_KEPT = 86_400.0  # for how long the chain of a continuation id is known, in seconds
# Candidates of one model that are read at once.
_MOST = 1000
_SECONDS = 60
# The worker of a response that nobody runs yet.
_NOBODY = Running("", None)

_DUE = (
    "SELECT model, completion_window, minute, COUNT(*), MIN(accepted_at) FROM waiting "
    "GROUP BY model, completion_window, minute ORDER BY minute"
)
_CANDIDATES = (
    "SELECT response, tenant, completion_window, follow_up, accepted_at, deadline FROM waiting WHERE response IN ("
    "SELECT response FROM (SELECT response, ROW_NUMBER() OVER (PARTITION BY tenant ORDER BY follow_up DESC, deadline, "
    "response) AS turn FROM waiting WHERE model = ? AND leased_until < ?) AS ranked WHERE turn <= ? LIMIT ?) "
    "OR response IN (SELECT response FROM waiting WHERE model = ? AND leased_until < ? "
    "ORDER BY deadline, response LIMIT ?)"
)


class NewWaiting(NamedTuple):
    """A response that is to wait. Times are Unix times in seconds; `request` is what its start needs."""

    tenant: str
    model: str
    window: str
    continuation: str | None
    accepted_at: float
    deadline: float
    request: bytes


class Waiting(NamedTuple):
    """A response that waits, as far as its rank depends on it."""

    response_id: str
    tenant: str
    window: str
    follow_up: bool
    accepted_at: float
    deadline: float


class Due(NamedTuple):
    """How many responses of a model and window wait whose deadlines are in the same minute, which ends at `deadline`, and when
    the first of them was accepted."""

    model: str
    window: str
    deadline: float
    number: int
    accepted_at: float


class Held(NamedTuple):
    """How many responses of a tenant wait, and how many bytes their requests have."""

    number: int
    size: int


@dataclass(eq=False)
class WaitingTable:
    """The table in a database. Every method raises `StoreUnavailable`. A response is kept for
    `retention` seconds after its deadline. `RunningTable` begins what waits."""

    database: Database
    clock: Callable[[], float]
    retention: float

    @transaction
    def held(self, sql: Sql, tenant: str) -> Held:
        """Return what a tenant has waiting."""
        return _held(sql, tenant)

    @transaction
    def add(self, sql: Sql, record: ResponseRecord, first: EventRow, new: NewWaiting, most: Held) -> Held | None:
        """Write a response that waits, with its first events. Return what its tenant has waiting if that is `most` already, or
        would be more bytes: then nothing was written."""
        held = _held(sql, new.tenant)
        if held.number >= most.number or held.size + len(new.request) > most.size:
            return held
        responses.insert(sql, record, new.deadline + self.retention, _NOBODY)
        events.append(sql, record.id, first, record.repeated, _NOBODY.worker)
        row = {
            "response": record.id,
            "tenant": new.tenant,
            "model": new.model,
            "completion_window": new.window,
            "follow_up": int(new.continuation is not None and _continues(sql, new, new.continuation)),
            "accepted_at": new.accepted_at,
            "deadline": new.deadline,
            "minute": int(new.deadline // _SECONDS),
            "size": len(new.request),
            "request": new.request,
        }
        add_row(sql, "waiting", row)
        return None

    @transaction
    def due(self, sql: Sql) -> list[Due]:
        """Return all that waits, counted, the first deadlines first."""
        rows = sql.execute(_DUE).fetchall()
        return [Due(row[0], row[1], (row[2] + 1) * float(_SECONDS), int(row[3]), row[4]) for row in rows]

    @transaction
    def candidates(self, sql: Sql, model: str, each: int) -> list[Waiting]:
        """Return those of a model that may begin next: the first `each` of every tenant, and those with the first deadlines."""
        now = self.clock()
        rows = sql.execute(_CANDIDATES, (model, now, each, _MOST, model, now, each)).fetchall()
        return [Waiting(row[0], row[1], row[2], bool(row[3]), row[4], row[5]) for row in rows]

    @transaction
    def lease(self, sql: Sql, response_id: str, seconds: float) -> bytes | None:
        """Have others leave a response alone for so long. Return what its start needs; None if somebody else has it, or it
        waits no longer."""
        now = self.clock()
        statement = "UPDATE waiting SET leased_until = ? WHERE response = ? AND leased_until < ? RETURNING request"
        row = sql.execute(statement, (now + seconds, response_id, now)).fetchone()
        return None if row is None else bytes(row[0])

    @transaction
    def try_later(self, sql: Sql, response_id: str, seconds: float) -> None:
        """Have a response that could not begin wait for at least so long."""
        sql.execute("UPDATE waiting SET leased_until = ? WHERE response = ?", (self.clock() + seconds, response_id))

    @transaction
    def fail(self, sql: Sql, response_id: str, end: EndAbandoned) -> bool:
        """End a response that cannot begin as `end` says. Return False if it waits no longer."""
        return _end(sql, response_id, self.clock(), end)

    @transaction
    def cancel(self, sql: Sql, tenant: str, response_id: str, end: EndAbandoned) -> bool:
        """End a response because its client asked for that. Return False if it waits no longer, or is another tenant's."""
        return cancel(sql, tenant, response_id) and _end(sql, response_id, self.clock(), end)


# ---- inside an open transaction ----------------------------------------------------------------------------------------


def _held(sql: Sql, tenant: str) -> Held:
    row = sql.execute("SELECT COUNT(*), COALESCE(SUM(size), 0) FROM waiting WHERE tenant = ?", (tenant,)).fetchone()
    return Held(int(row[0]), int(row[1]))


def _continues(sql: Sql, new: NewWaiting, continuation: str) -> bool:
    """Tell whether a response of the same chain came before; note that this one did."""
    sql.execute("DELETE FROM continuations WHERE expires_at < ?", (new.accepted_at,))
    chain = (new.tenant, continuation, new.window, new.model)
    known = sql.execute(
        "SELECT 1 FROM continuations WHERE tenant = ? AND continuation = ? AND completion_window = ? AND model = ?", chain
    ).fetchone()
    sql.execute(
        "INSERT INTO continuations (tenant, continuation, completion_window, model, expires_at) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (tenant, continuation, completion_window, model) DO UPDATE SET expires_at = excluded.expires_at",
        (*chain, new.accepted_at + CHAIN_KEPT),
    )
    return known is not None


def _end(sql: Sql, response_id: str, now: float, end: EndAbandoned) -> bool:
    if not responses.wait_no_longer(sql, response_id):
        return False
    sql.execute("UPDATE responses SET alive_until = 0 WHERE id = ? AND alive_until IS NULL", (response_id,))
    return end_abandoned(sql, response_id, now, (), end) is not None
