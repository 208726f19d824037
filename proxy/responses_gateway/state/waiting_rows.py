"""The rows of responses that wait for their completion window, as SQL inside an open transaction.

A row is there as long as its response waits: whoever begins, cancels or deletes the response deletes the row in the same
transaction, so that one of them wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from responses_gateway.state.interfaces import Sql

# For how long the chain of a continuation id is known, in seconds.
CHAIN_KEPT = 86_400.0
# Candidates of one model that are read at once.
_MOST = 1000
_SECONDS = 60


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


def held(sql: Sql, tenant: str) -> Held:
    """Return what a tenant has waiting."""
    row = sql.execute("SELECT COUNT(*), COALESCE(SUM(size), 0) FROM waiting WHERE tenant = ?", (tenant,)).fetchone()
    return Held(int(row[0]), int(row[1]))


def add(sql: Sql, response_id: str, new: NewWaiting) -> None:
    """Write the row of a response."""
    follow_up = new.continuation is not None and _continues(sql, new, new.continuation)
    sql.execute(
        "INSERT INTO waiting (response, tenant, model, completion_window, follow_up, accepted_at, deadline, minute, size, "
        "request) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            response_id,
            new.tenant,
            new.model,
            new.window,
            int(follow_up),
            new.accepted_at,
            new.deadline,
            int(new.deadline // _SECONDS),
            len(new.request),
            new.request,
        ),
    )


def _continues(sql: Sql, new: NewWaiting, continuation: str) -> bool:
    """Tell whether a response of the same chain came before; note that this one did."""
    sql.execute("DELETE FROM continuations WHERE expires_at < ?", (new.accepted_at,))
    chain = (new.tenant, continuation, new.window, new.model)
    found = sql.execute(
        "SELECT 1 FROM continuations WHERE tenant = ? AND continuation = ? AND completion_window = ? AND model = ?", chain
    ).fetchone()
    sql.execute(
        "INSERT INTO continuations (tenant, continuation, completion_window, model, expires_at) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (tenant, continuation, completion_window, model) DO UPDATE SET expires_at = excluded.expires_at",
        (*chain, new.accepted_at + CHAIN_KEPT),
    )
    return found is not None


def delete(sql: Sql, response_id: str) -> bool:
    """Delete the row of a response. Return False if it has none: it does not wait."""
    return sql.execute("DELETE FROM waiting WHERE response = ?", (response_id,)).rowcount > 0


def due(sql: Sql) -> list[Due]:
    """Return all that waits, counted."""
    rows = sql.execute(
        "SELECT model, completion_window, minute, COUNT(*), MIN(accepted_at) FROM waiting "
        "GROUP BY model, completion_window, minute ORDER BY minute"
    ).fetchall()
    return [Due(row[0], row[1], (row[2] + 1) * float(_SECONDS), int(row[3]), row[4]) for row in rows]


def candidates(sql: Sql, model: str, now: float, each: int) -> list[Waiting]:
    """Return those of a model that may begin next: the first `each` of every tenant, and those with the first deadlines."""
    rows = sql.execute(
        "SELECT response, tenant, completion_window, follow_up, accepted_at, deadline FROM waiting WHERE response IN ("
        "SELECT response FROM (SELECT response, ROW_NUMBER() OVER (PARTITION BY tenant ORDER BY follow_up DESC, deadline, "
        "response) AS turn FROM waiting WHERE model = ? AND leased_until < ?) AS ranked WHERE turn <= ? LIMIT ?) "
        "OR response IN (SELECT response FROM waiting WHERE model = ? AND leased_until < ? "
        "ORDER BY deadline, response LIMIT ?)",
        (model, now, each, _MOST, model, now, each),
    ).fetchall()
    return [Waiting(row[0], row[1], row[2], bool(row[3]), row[4], row[5]) for row in rows]


def lease(sql: Sql, response_id: str, now: float, until: float) -> bytes | None:
    """Have others leave a response alone for a while. Return what its start needs; None if somebody else has it, or it waits no
    longer."""
    statement = "UPDATE waiting SET leased_until = ? WHERE response = ? AND leased_until < ? RETURNING request"
    row: Sequence[bytes] | None = sql.execute(statement, (until, response_id, now)).fetchone()
    return None if row is None else bytes(row[0])


def lease_again(sql: Sql, response_id: str, until: float) -> None:
    """Change until when others leave a response alone."""
    sql.execute("UPDATE waiting SET leased_until = ? WHERE response = ?", (until, response_id))
