"""The tables, and how those of an older version become those of today."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.state.database import Sql

#: Statements that lead from one version to the next. Never change an entry that was released: add one.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # What was said, once: `digest` is that of the item's JSON in canonical form.
        # No key is ever used twice: a request under way may still hold one that was deleted.
        "CREATE TABLE items (key INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, digest BLOB NOT NULL, "
        "body TEXT NOT NULL)",
        "CREATE UNIQUE INDEX items_digest ON items (tenant, digest)",
        # Histories, as a tree: each node is an item said after those of its parents (0: the beginning).
        "CREATE TABLE nodes (key INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, parent INTEGER NOT NULL, "
        "item INTEGER NOT NULL, item_id TEXT NOT NULL)",
        "CREATE UNIQUE INDEX nodes_parent ON nodes (parent, item)",
        "CREATE INDEX nodes_item ON nodes (item)",
        "CREATE INDEX nodes_item_id ON nodes (tenant, item_id)",
        "CREATE TABLE responses (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, created_at REAL NOT NULL, "
        "expires_at REAL NOT NULL, status TEXT NOT NULL, head TEXT NOT NULL, tail TEXT NOT NULL, "
        "input_end INTEGER NOT NULL, output_end INTEGER NOT NULL, conversation TEXT, background INTEGER NOT NULL, "
        "worker TEXT, alive_until REAL, cancelled INTEGER NOT NULL DEFAULT 0)",
        "CREATE INDEX responses_expiry ON responses (expires_at)",
        "CREATE INDEX responses_input ON responses (input_end)",
        "CREATE INDEX responses_output ON responses (output_end)",
        "CREATE INDEX responses_running ON responses (alive_until) WHERE alive_until IS NOT NULL",
        "CREATE TABLE conversations (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, created_at REAL NOT NULL, "
        "expires_at REAL NOT NULL, metadata TEXT NOT NULL, output_end INTEGER NOT NULL)",
        "CREATE INDEX conversations_expiry ON conversations (expires_at)",
        "CREATE INDEX conversations_output ON conversations (output_end)",
        # The stream of a response that runs in the background, in pieces.
        "CREATE TABLE events (response TEXT NOT NULL, first INTEGER NOT NULL, next INTEGER NOT NULL, data BLOB NOT NULL, "
        "PRIMARY KEY (response, first))",
        "CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL)",
    ),
)


class TooNew(Exception):
    """The store was written by a later version of the gateway."""


def migrate(sql: Sql) -> None:
    """Bring the schema up to date, in the open transaction. Raises `TooNew`."""
    sql.execute("CREATE TABLE IF NOT EXISTS version (number INTEGER NOT NULL)")
    row = sql.execute("SELECT number FROM version").fetchone()
    found = row[0] if row is not None else 0
    if found > len(MIGRATIONS):
        raise TooNew(f"the store has schema {found}, this gateway knows {len(MIGRATIONS)}: it was used by a later version")
    for statements in MIGRATIONS[found:]:
        for statement in statements:
            sql.execute(statement)
    if row is None:
        sql.execute("INSERT INTO version (number) VALUES (?)", (len(MIGRATIONS),))
    elif found < len(MIGRATIONS):
        sql.execute("UPDATE version SET number = ?", (len(MIGRATIONS),))
