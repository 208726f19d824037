"""The upkeep of a store: what has expired or no longer fits is deleted, a little at a time, and what is left is measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from responses_gateway.state import conversations, hosted_calls, responses, token_trees
from responses_gateway.state.interfaces import Database, Sql, transaction
from responses_gateway.state.records import Ages

# Rows per transaction of the clean-up, and how long it rests after each, in multiples of the time that it took: so that others
# get their turn in between.
_BATCH = 50
_REST = 4.0


@dataclass(eq=False)
class Upkeep:
    """Deletes and measures. Every method raises `StoreUnavailable`. `max_bytes`: how large the data may get; 0: any size."""

    database: Database
    clock: Callable[[], float]
    max_bytes: int

    @transaction
    def lease(self, sql: Sql, name: str, seconds: float) -> bool:
        """Take on some work for all processes. Return False if another did so less than `seconds` ago: unless the clock was set
        back since then, so that its lease would last for longer than any does."""
        now = self.clock()
        statement = (
            "INSERT INTO leases (name, until) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET until = excluded.until "
            "WHERE leases.until < ? OR leases.until > ? RETURNING name"
        )
        return sql.execute(statement, (name, now + seconds, now, now + 2 * seconds)).fetchone() is not None

    async def clean_up(self) -> int:
        """Delete what has expired, and the logs of streams that can no longer be resumed. Return how many responses and
        conversations were deleted."""
        await self._in_batches(responses.delete_logs)
        await self._in_batches(hosted_calls.delete_expired_approvals)
        await self._in_batches(token_trees.delete_expired)
        return await self._in_batches(_delete_expired)

    async def make_room(self) -> int:
        """Delete the oldest responses and conversations until the rest may stay. Return how many were deleted."""
        return await self._in_steps(self._make_some_room) if self.max_bytes else 0

    async def give_space_back(self) -> None:
        """Give space that is no longer needed back to the file system."""
        await self._in_steps(self.database.shrink)

    async def size(self) -> int:
        """Return about how many bytes the stored data take."""
        return await self.database.size()

    @transaction
    def ages(self, sql: Sql) -> Ages:
        """Return how old the oldest response is."""
        return responses.ages(sql, self.clock())

    async def _make_some_room(self) -> int:
        if await self.size() <= self.max_bytes:
            return 0
        return await self.database.run(_delete_oldest)

    async def _in_batches(self, delete: Callable[[Sql, float, int], int]) -> int:
        now = self.clock()
        return await self._in_steps(lambda: self.database.run(lambda sql: delete(sql, now, _BATCH)))

    async def _in_steps(self, step: Callable[[], Awaitable[int]]) -> int:
        """Repeat a step until it has nothing left to do; rest after each. Return the sum of the results."""
        total = 0
        while True:
            begun = time.monotonic()
            if not (done := await step()):
                return total
            total += done
            await asyncio.sleep(_REST * (time.monotonic() - begun))


def _delete_expired(sql: Sql, now: float, limit: int) -> int:
    """Delete at most `limit` responses, and as many conversations, that have expired. Return how many."""
    return len(responses.delete_expired(sql, now, limit)) + conversations.delete_expired(sql, now, limit)


def _delete_oldest(sql: Sql) -> int:
    """Delete the responses, conversations and kept tokens that would expire first, a batch of each. Return how many."""
    deleted = responses.delete_expired(sql, float("inf"), _BATCH)
    until = deleted[-1] if deleted else float("inf")
    return len(deleted) + conversations.delete_expired(sql, until, _BATCH) + token_trees.delete_expired(sql, until, _BATCH)
