"""What is kept of hosted calls: their results as the model got them, and used approvals.

Results are stored beside the item of the call, never in it, because only the model reads them again. They are deleted with it.
An approval runs its call once, whichever process gets it and however often a client sends it. Of an approval only a digest of
its id is kept, also for requests of which nothing else is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from responses_gateway.state.interfaces import Database, Sql, transaction

_AT_ONCE = 400  # ids in one statement


@dataclass(eq=False)
class HostedCallTable:
    """Both in a database. Every method raises `StoreUnavailable`. An approval is known to be used for `retention` seconds."""

    database: Database
    clock: Callable[[], float]
    retention: float

    @transaction
    def results(self, sql: Sql, tenant: str, ids: Sequence[str], most_bytes: int) -> dict[str, bytes]:
        """Find the results of hosted calls by the ids of their items, which are in the order of the history. Of more than
        `most_bytes` together only those are returned that `recent` keeps."""
        keys: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for begin in range(0, len(ids), _AT_ONCE):
            some = ids[begin : begin + _AT_ONCE]
            statement = (
                "SELECT n.item_id, i.key, length(i.result) FROM nodes n JOIN items i ON i.key = n.item "
                f"WHERE n.tenant = ? AND n.item_id IN ({', '.join('?' * len(some))}) AND i.result IS NOT NULL"
            )
            for item_id, key, size in sql.execute(statement, (tenant, *some)).fetchall():
                keys[item_id] = key
                sizes[item_id] = size
        kept = recent({item_id: sizes[item_id] for item_id in ids if item_id in sizes}, most_bytes)
        statement = "SELECT result FROM items WHERE key = ?"
        return {item_id: bytes(sql.execute(statement, (keys[item_id],)).fetchone()[0]) for item_id in kept}

    @transaction
    def use_approvals(self, sql: Sql, digests: Sequence[bytes], response_id: str) -> dict[bytes, str]:
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
                sql.execute(statement, (known_by, response_id, self.clock() + self.retention))
        return used


def recent(sizes: Mapping[str, int], most_bytes: int) -> list[str]:
    """Return the ids of what stays within `most_bytes`, given the sizes of all, the oldest first.

    Where the next one is too much, the oldest are dropped until half of the room is free. So the beginning of a conversation
    changes seldom as it grows, and the prefix cache of a backend is of use."""
    kept: list[str] = []
    total = 0
    for item_id, size in sizes.items():
        if size > most_bytes:
            continue
        kept.append(item_id)
        total += size
        if total <= most_bytes:
            continue
        while len(kept) > 1 and total > most_bytes // 2:
            total -= sizes[kept.pop(0)]
    return kept


def approval_digest(tenant: str, request_id: str) -> bytes:
    """Return what an approval is known by; `request_id` is the id of its request."""
    return blake2b(f"{tenant}\0{request_id}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def delete_expired_approvals(sql: Sql, now: float, limit: int) -> int:
    """Delete at most `limit` approvals that have expired. Return how many."""
    expired = "SELECT digest FROM approvals WHERE expires_at < ? ORDER BY expires_at LIMIT ?"
    return sql.execute(f"DELETE FROM approvals WHERE digest IN ({expired})", (now, limit)).rowcount
