"""What earlier requests sent to their backends, as hashes: with them the prompts of two responses are compared."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from responses_gateway.state.interfaces import Database, Sql

# For how long a prompt can be compared with, in seconds: no backend keeps it longer in its cache.
LIFETIME = 3600.0
# The most prompts that are kept in memory.
_MOST = 4096
# The most expired rows that one request deletes.
_BATCH = 100

_INSERT = "INSERT INTO prompt_hashes (response, tenant, data, expires_at) VALUES (?, ?, ?, ?) ON CONFLICT (response) DO NOTHING"
_DELETE = "DELETE FROM prompt_hashes WHERE response IN (SELECT response FROM prompt_hashes WHERE expires_at < ? LIMIT {most})"


class PromptHashes(Protocol):
    """Keeps the hashes of prompts for a while."""

    async def exchange(self, tenant: str, response_id: str, data: bytes, other_id: str | None) -> bytes | None:
        """Keep the hashes of a response, and return those of another one of this tenant; None if there are none any more.
        Raise `StoreUnavailable`."""


class PromptHashTable:
    """The table in a database, which all gateways share."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns the Unix time in seconds."""
        self._database = database
        self._clock = clock

    async def exchange(self, tenant: str, response_id: str, data: bytes, other_id: str | None) -> bytes | None:
        """See `PromptHashes`. One transaction, which also deletes what has expired."""
        now = self._clock()

        def work(sql: Sql) -> bytes | None:
            sql.execute(_DELETE.format(most=_BATCH), (now,))
            sql.execute(_INSERT, (response_id, tenant, data, now + LIFETIME))
            found = sql.execute(
                "SELECT data FROM prompt_hashes WHERE response = ? AND tenant = ? AND expires_at >= ?", (other_id, tenant, now)
            ).fetchone()
            return None if found is None else bytes(found[0])

        return await self._database.run(work)


class PromptHashMemory:
    """The same for one process without a store."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], tuple[float, bytes]] = OrderedDict()

    async def exchange(self, tenant: str, response_id: str, data: bytes, other_id: str | None) -> bytes | None:
        """See `PromptHashes`."""
        now = self._clock()
        found = self._kept.get((tenant, other_id or ""))
        self._kept[tenant, response_id] = (now + LIFETIME, data)
        if len(self._kept) > _MOST:
            self._kept.popitem(last=False)
        return None if found is None or found[0] < now else found[1]
