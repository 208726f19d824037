"""The approvals of calls that were used, as SQL inside an open transaction.

An approval runs its call once, whichever process gets it and however often a client sends it. Of an approval only a digest of
its id is kept, also for requests of which nothing else is stored."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from responses_gateway.state.interfaces import Sql


def digest(tenant: str, request_id: str) -> bytes:
    """Return what an approval is known by; `request_id` is the id of its request."""
    return blake2b(f"{tenant}\0{request_id}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def use(sql: Sql, digests: Sequence[bytes], response_id: str, expires_at: float) -> dict[bytes, str]:
    """Use up approvals for a response: all of them, or none if some were used by others. Return those, with the ids of the
    responses that used them."""
    used: dict[bytes, str] = {}
    for known_by in digests:
        row = sql.execute("SELECT response FROM approvals WHERE digest = ?", (known_by,)).fetchone()
        if row is not None and row[0] != response_id:  # its own where a transaction is repeated
            used[known_by] = row[0]
    if not used:
        statement = "INSERT INTO approvals (digest, response, expires_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        for known_by in digests:
            sql.execute(statement, (known_by, response_id, expires_at))
    return used


def delete_expired(sql: Sql, now: float, limit: int) -> int:
    """Delete at most `limit` approvals that have expired. Return how many."""
    statement = "SELECT digest FROM approvals WHERE expires_at < ? ORDER BY expires_at LIMIT ?"
    rows = sql.execute(statement, (now, limit)).fetchall()
    for row in rows:
        sql.execute("DELETE FROM approvals WHERE digest = ?", row)
    return len(rows)
