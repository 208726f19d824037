"""Conversations: histories with a name, to which responses add."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from responses_gateway.state import histories
from responses_gateway.state.interfaces import Database, Sql, add_row, transaction
from responses_gateway.state.records import Conversation, NewItem, Place, new_id

# The places before the inputs of the responses that failed with the last item of a conversation as the end of their input.
_FAILED_BEFORE = (
    "SELECT input_begin FROM responses WHERE input_end = ? AND conversation = ? AND status IN ('failed', 'cancelled')"
)


@dataclass(eq=False)
class ConversationTable:
    """The table in a database. Every method raises `StoreUnavailable`. A conversation is kept for
    `retention` seconds after its last change."""

    database: Database
    clock: Callable[[], float]
    retention: float

    @transaction
    def create(self, sql: Sql, tenant: str, metadata: dict[str, Any], items: Sequence[NewItem]) -> Conversation:
        """Create a conversation."""
        conversation = Conversation(new_id("conv"), self.clock(), metadata, histories.append(sql, tenant, 0, items))
        row = {
            "id": conversation.id,
            "tenant": tenant,
            "created_at": conversation.created_at,
            "expires_at": self._expires_at(),
            "metadata": _json(metadata),
            "output_end": conversation.end,
        }
        add_row(sql, "conversations", row)
        return conversation

    @transaction
    def get(self, sql: Sql, tenant: str, conversation_id: str) -> Conversation | None:
        """Return a conversation; None if there is none with this id."""
        return get(sql, tenant, conversation_id)

    @transaction
    def continued(self, sql: Sql, tenant: str, conversation_id: str, items: Sequence[dict[str, Any]]) -> Conversation | None:
        """Return a conversation as a request with these items continues it: without what the last request left there, if that
        failed and its client asks the same again."""
        conversation = get(sql, tenant, conversation_id)
        if conversation is None:
            return None
        end = conversation.end
        rows = sql.execute(_FAILED_BEFORE, (end, conversation_id)).fetchall()
        begin = next((row[0] for row in rows if histories.known_end(sql, tenant, row[0], items) == end), end)
        return replace(conversation, end=begin)

    @transaction
    def update(self, sql: Sql, tenant: str, conversation_id: str, metadata: dict[str, Any]) -> Conversation | None:
        """Replace the metadata of a conversation. Return None if there is none with this id."""
        statement = "UPDATE conversations SET metadata = ?, expires_at = ? WHERE tenant = ? AND id = ?"
        sql.execute(statement, (_json(metadata), self._expires_at(), tenant, conversation_id))
        return get(sql, tenant, conversation_id)

    @transaction
    def delete(self, sql: Sql, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation, but not its responses. Return False if there is none with this id."""
        return _delete(sql, tenant, conversation_id)

    @transaction
    def add_items(self, sql: Sql, tenant: str, conversation_id: str, items: Sequence[NewItem]) -> Place | None:
        """Add items at the end. Return the place of the last one; None if there is no such conversation."""
        conversation = get(sql, tenant, conversation_id)
        if conversation is None:
            return None
        end = histories.append(sql, tenant, conversation.end, items)
        move(sql, conversation_id, end, self._expires_at())
        return end

    @transaction
    def remove_item(self, sql: Sql, tenant: str, conversation_id: str, item_id: str) -> Conversation | None:
        """Remove an item. Return None if there is no such conversation, or no such item in it."""
        conversation = get(sql, tenant, conversation_id)
        end = histories.without(sql, tenant, conversation.end, item_id) if conversation is not None else None
        if conversation is None or end is None:
            return None
        move(sql, conversation_id, end, self._expires_at())
        histories.prune(sql, conversation.end)
        return conversation

    def _expires_at(self) -> float:
        return self.clock() + self.retention


# ---- inside an open transaction ----------------------------------------------------------------------------------------


def move(sql: Sql, conversation_id: str, end: Place, expires_at: float) -> None:
    """Have a conversation end at another place."""
    statement = "UPDATE conversations SET output_end = ?, expires_at = ? WHERE id = ?"
    sql.execute(statement, (end, expires_at, conversation_id))


def delete_expired(sql: Sql, now: float, limit: int) -> int:
    """Delete at most `limit` conversations that have expired, in that order. Return how many."""
    statement = "SELECT tenant, id FROM conversations WHERE expires_at < ? ORDER BY expires_at LIMIT ?"
    rows = sql.execute(statement, (now, limit)).fetchall()
    for tenant, conversation_id in rows:
        _delete(sql, tenant, conversation_id)
    return len(rows)


def get(sql: Sql, tenant: str, conversation_id: str) -> Conversation | None:
    """Return a conversation of this tenant."""
    statement = "SELECT id, created_at, metadata, output_end FROM conversations WHERE tenant = ? AND id = ?"
    row = sql.execute(statement, (tenant, conversation_id)).fetchone()
    return None if row is None else Conversation(row[0], row[1], msgspec.json.decode(row[2]), row[3])


def _delete(sql: Sql, tenant: str, conversation_id: str) -> bool:
    statement = "DELETE FROM conversations WHERE tenant = ? AND id = ? RETURNING output_end"
    row = sql.execute(statement, (tenant, conversation_id)).fetchone()
    if row is not None:
        histories.prune(sql, row[0])
    return row is not None


def _json(value: dict[str, Any]) -> str:
    return msgspec.json.encode(value).decode()
