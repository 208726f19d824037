"""What is deleted first, and how old that is, as SQL inside an open transaction. Running responses are never deleted."""

from __future__ import annotations

from proxy.state import conversations, responses
from proxy.state.interfaces import Sql
from proxy.state.records import Ages


def delete_expired(sql: Sql, now: float, limit: int) -> int:
    """Delete at most `limit` responses, and as many conversations, that have expired. Return how many."""
    return len(responses.delete_expired(sql, now, limit)) + conversations.delete_expired(sql, now, limit)


def delete_oldest(sql: Sql, limit: int) -> int:
    """Delete the responses and conversations that would expire first, at most `limit` of each. Return how many."""
    deleted = responses.delete_expired(sql, float("inf"), limit)
    until = deleted[-1] if deleted else float("inf")
    return len(deleted) + conversations.delete_expired(sql, until, limit)


def ages(sql: Sql, now: float) -> Ages:
    """Return the age of the oldest response, and for how long one has been expired."""
    statement = "SELECT created_at, expires_at FROM responses WHERE alive_until IS NULL ORDER BY expires_at LIMIT 1"
    row = sql.execute(statement).fetchone()
    return Ages(max(0.0, now - row[0]), max(0.0, now - row[1])) if row is not None else Ages(0.0, 0.0)
