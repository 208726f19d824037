"""Conversations, as SQL inside an open transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from responses_gateway.state import histories
from responses_gateway.state.interfaces import Sql
from responses_gateway.state.records import Conversation, NewItem


def create(sql: Sql, tenant: str, conversation: Conversation, items: Sequence[NewItem], expires_at: float) -> None:
    """Create a conversation."""
    end = histories.append(sql, tenant, 0, items)
    sql.execute(
        "INSERT INTO conversations (id, tenant, created_at, expires_at, metadata, output_end) VALUES (?, ?, ?, ?, ?, ?)",
        (conversation.id, tenant, conversation.created_at, expires_at, _json(conversation.metadata), end),
    )


def get(sql: Sql, tenant: str, conversation_id: str) -> Conversation | None:
    """Return a conversation of this tenant."""
    statement = "SELECT id, created_at, metadata, output_end FROM conversations WHERE tenant = ? AND id = ?"
    row = sql.execute(statement, (tenant, conversation_id)).fetchone()
    return None if row is None else Conversation(row[0], row[1], msgspec.json.decode(row[2]), row[3])


def update(sql: Sql, tenant: str, conversation_id: str, metadata: dict[str, Any], expires_at: float) -> Conversation | None:
    """Replace the metadata."""
    statement = "UPDATE conversations SET metadata = ?, expires_at = ? WHERE tenant = ? AND id = ?"
    sql.execute(statement, (_json(metadata), expires_at, tenant, conversation_id))
    return get(sql, tenant, conversation_id)


def delete(sql: Sql, tenant: str, conversation_id: str) -> bool:
    """Delete a conversation, but not its responses. Return False if there is none with this id."""
    statement = "DELETE FROM conversations WHERE tenant = ? AND id = ? RETURNING output_end"
    row = sql.execute(statement, (tenant, conversation_id)).fetchone()
    if row is not None:
        histories.prune(sql, row[0])
    return row is not None


def delete_expired(sql: Sql, now: float, limit: int) -> int:
    """Delete at most `limit` conversations that have expired, in that order. Return how many."""
    statement = "SELECT tenant, id FROM conversations WHERE expires_at < ? ORDER BY expires_at LIMIT ?"
    rows = sql.execute(statement, (now, limit)).fetchall()
    for tenant, conversation_id in rows:
        delete(sql, tenant, conversation_id)
    return len(rows)


def add(sql: Sql, tenant: str, conversation_id: str, items: Sequence[NewItem], expires_at: float) -> int | None:
    """Add items at the end. Return the place of the last one, or None if there is no such conversation."""
    found = get(sql, tenant, conversation_id)
    if found is None:
        return None
    end = histories.append(sql, tenant, found.end, items)
    _move(sql, found, end, expires_at)
    return end


def remove(sql: Sql, tenant: str, conversation_id: str, item_id: str, expires_at: float) -> Conversation | None:
    """Remove an item. Return None if there is no such conversation, or no such item in it."""
    found = get(sql, tenant, conversation_id)
    end = histories.without(sql, tenant, found.end, item_id) if found is not None else None
    if found is None or end is None:
        return None
    _move(sql, found, end, expires_at)
    histories.prune(sql, found.end)
    return found


def _move(sql: Sql, conversation: Conversation, end: int, expires_at: float) -> None:
    statement = "UPDATE conversations SET output_end = ?, expires_at = ? WHERE id = ?"
    sql.execute(statement, (end, expires_at, conversation.id))


def _json(value: dict[str, Any]) -> str:
    return msgspec.json.encode(value).decode()
