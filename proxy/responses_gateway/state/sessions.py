"""Sessions of agents, in parts: each process that had requests of a session has a part of its own, with its last requests.

A part is written by one process alone, so that none waits for another; whoever shows a session puts its parts together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from responses_gateway.state.interfaces import Database, Sql, transaction

_MOST_OF_TENANT = 4_000  # parts of a tenant that are kept, the last ones: more than a process remembers
# Expired parts that are deleted at a time.
_BATCH = 100
_SAVE = (
    "INSERT INTO session_parts (part, session, tenant, updated_at, expires_at, data) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (part) DO UPDATE SET updated_at = excluded.updated_at, expires_at = excluded.expires_at, data = excluded.data"
)
_ADD = "INSERT INTO session_requests (part, number, data) VALUES (?, ?, ?) ON CONFLICT (part, number) DO NOTHING"

_NAME_FIRST = "UPDATE responses SET session = ? WHERE tenant = ? AND id = ? AND session IS NULL RETURNING id"


class PartRow(NamedTuple):
    """A part: its name, the id of its session, when something happened last, and what is known of it. `requests` are those that
    are new, each with its number; those before number `oldest` are deleted. `first`: the stored response that names it."""

    part: str
    session: str
    tenant: str
    updated_at: float
    data: bytes
    requests: Sequence[tuple[int, bytes]]
    oldest: int
    first: str | None


@dataclass(eq=False)
class SessionTable:
    """The tables in a database. Every method raises `StoreUnavailable`. A session is kept for `retention` seconds after its
    last request."""

    database: Database
    retention: float
    clock: Callable[[], float] = time.time

    @transaction
    def save(self, sql: Sql, rows: Sequence[PartRow]) -> set[str]:
        """Write parts, and delete what has expired or is too much of one tenant. Return the parts whose first response is in no
        other process's session."""
        named = set()
        for row in sorted(rows):  # in one order, so that no two processes wait for each other
            expires_at = row.updated_at + self.retention
            sql.execute(_SAVE, (row.part, row.session, row.tenant, row.updated_at, expires_at, row.data))
            for number, data in row.requests:
                sql.execute(_ADD, (row.part, number, data))
            sql.execute("DELETE FROM session_requests WHERE part = ? AND number < ?", (row.part, row.oldest))
            if row.first is not None and sql.execute(_NAME_FIRST, (row.first, row.tenant, row.first)).fetchone():
                named.add(row.part)
        gone = sql.execute("SELECT part FROM session_parts WHERE expires_at < ? LIMIT ?", (self.clock(), _BATCH)).fetchall()
        for tenant in sorted({row.tenant for row in rows}):
            statement = "SELECT part FROM session_parts WHERE tenant = ? ORDER BY updated_at DESC LIMIT ? OFFSET ?"
            gone += sql.execute(statement, (tenant, _BATCH, _MOST_OF_TENANT)).fetchall()
        for (part,) in gone:
            sql.execute("DELETE FROM session_requests WHERE part = ?", (part,))
            sql.execute("DELETE FROM session_parts WHERE part = ?", (part,))
        return named

    @transaction
    def latest(self, sql: Sql, most: int, tenant: str | None = None) -> list[bytes]:
        """Return what is known of the parts in which something happened last, of all tenants or of one."""
        condition = "" if tenant is None else " AND tenant = ?"
        statement = f"SELECT data FROM session_parts WHERE expires_at >= ?{condition} ORDER BY updated_at DESC LIMIT ?"
        values = (self.clock(), most) if tenant is None else (self.clock(), tenant, most)
        return [bytes(row[0]) for row in sql.execute(statement, values).fetchall()]

    @transaction
    def of_session(self, sql: Sql, session: str) -> list[tuple[bytes, list[bytes]]]:
        """Return the parts of a session: what is known of each, and its requests."""
        rows = sql.execute("SELECT part, data FROM session_parts WHERE session = ?", (session,)).fetchall()
        statement = "SELECT data FROM session_requests WHERE part = ? ORDER BY number"
        return [(bytes(data), [bytes(row[0]) for row in sql.execute(statement, (part,)).fetchall()]) for part, data in rows]
