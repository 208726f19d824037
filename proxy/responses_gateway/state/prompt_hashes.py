"""What earlier requests sent to their backends, as hashes: with them the prompts of two responses are compared, and those of a
thread that goes on in another process, which has a name of its own here."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from responses_gateway.bounded_memory import TenantValues
from responses_gateway.state.interfaces import Database, Sql, transaction

# For how long a prompt can be compared with, in seconds: no backend keeps it longer in its cache.
LIFETIME = 3600.0
_MOST = 4096  # the most prompts that are kept in memory
_BATCH = 100  # the most expired rows that one request deletes

_INSERT = (
    "INSERT INTO prompt_hashes (response, tenant, data, expires_at) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (response) DO UPDATE SET data = excluded.data, expires_at = excluded.expires_at"
)
_DELETE = "DELETE FROM prompt_hashes WHERE response IN (SELECT response FROM prompt_hashes WHERE expires_at < ? LIMIT {most})"


@dataclass(eq=False)
class PromptHashTable:
    """The table in a database, which all gateways share."""

    database: Database
    clock: Callable[[], float] = time.time

    @transaction
    def exchange(self, sql: Sql, tenant: str, response_id: str, data: bytes, other_id: str | None) -> bytes | None:
        """Keep the hashes of a response, if it has an id. Return those of another one of this tenant; None if there are none
        any more. Delete what has expired, too. Raise `StoreUnavailable`."""
        now = self.clock()
        if response_id:
            sql.execute(_DELETE.format(most=_BATCH), (now,))
            sql.execute(_INSERT, (response_id, tenant, data, now + LIFETIME))
        row = sql.execute(
            "SELECT data FROM prompt_hashes WHERE response = ? AND tenant = ? AND expires_at >= ?", (other_id, tenant, now)
        ).fetchone()
        return None if row is None else bytes(row[0])


class PromptHashMemory:
    """The same for one process without a store."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: TenantValues[tuple[float, bytes]] = TenantValues(_MOST, _MOST)

    async def exchange(self, tenant: str, response_id: str, data: bytes, other_id: str | None) -> bytes | None:
        """See `PromptHashTable`."""
        now = self._clock()
        other = self._kept.get(tenant, other_id or "")
        self._kept.put(tenant, response_id, (now + LIFETIME, data))
        return None if other is None or other[0] < now else other[1]


PromptHashes: TypeAlias = PromptHashTable | PromptHashMemory
