"""The keys of clients that were made while the gateway runs, in a table: only hashes, never a key.

All gateways of a fleet use the same keys. A row is never changed, and no number of a row is used twice: so how many rows there
are, with the highest and the sum of their numbers, tells whether the keys are still those that were read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from responses_gateway.state.interfaces import Database, Sql, transaction

MOST_KEYS = 5_000  # keys that a store takes at most, because each process has all of them in memory
# Tells whether the keys have changed.
Stamp: TypeAlias = tuple[int, int, int]


class KeyRow(NamedTuple):
    """A key. `details`: its limits, team and models, as JSON; `created_at`: a Unix time in seconds."""

    name: str
    hash: str
    details: str
    created_at: float


@dataclass(eq=False)
class ClientKeyTable:
    """The table in a database. Every method raises `StoreUnavailable`."""

    database: Database
    clock: Callable[[], float] = time.time

    @transaction
    def read(self, sql: Sql, known: Stamp | None) -> tuple[Stamp, list[KeyRow]] | None:
        """Return all keys in the order of their names, with their stamp; None if that is the `known` one."""
        count, highest, total = sql.execute("SELECT COUNT(*), MAX(key), SUM(key) FROM client_keys").fetchone()
        stamp = (int(count), int(highest or 0), int(total or 0))
        if stamp == known:
            return None
        rows = sql.execute("SELECT name, hash, details, created_at FROM client_keys ORDER BY name").fetchall()
        return stamp, [KeyRow(*row) for row in rows]

    @transaction
    def add(self, sql: Sql, name: str, hashed: str, details: str) -> Literal["added", "exists", "full"]:
        """Add a key, unless there is one of that name. Return what came of it."""
        if sql.execute("SELECT 1 FROM client_keys WHERE name = ?", (name,)).fetchone() is not None:
            return "exists"
        if sql.execute("SELECT COUNT(*) FROM client_keys").fetchone()[0] >= MOST_KEYS:
            return "full"
        statement = "INSERT INTO client_keys (name, hash, details, created_at) VALUES (?, ?, ?, ?)"
        sql.execute(statement, (name, hashed, details, self.clock()))
        return "added"

    @transaction
    def remove(self, sql: Sql, name: str) -> bool:
        """Remove a key. Return whether there was one of that name."""
        return sql.execute("DELETE FROM client_keys WHERE name = ?", (name,)).rowcount > 0
