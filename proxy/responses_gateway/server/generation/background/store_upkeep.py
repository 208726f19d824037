"""The upkeep of the store: deletes what has expired or no longer fits, a little at a time, and measures what is left."""

from __future__ import annotations

import asyncio

from responses_gateway.state import Store, StoreUnavailable
from responses_gateway.telemetry.metrics import Metrics

# Seconds between two rounds.
_INTERVAL = 30.0


class StoreUpkeep:
    """One process at a time cleans up for all of them; each measures for itself."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._task = asyncio.create_task(self._keep_up())

    async def close(self) -> None:
        """Stop; what is left to do is done by the next process."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_up(self) -> None:
        while True:
            try:
                if await self._store.lease("clean-up", _INTERVAL / 2):
                    await self._clean_up()
                await self._measure()
                self._show(up=True)
            except StoreUnavailable:  # `Background` logs outages
                self._show(up=False)
            await asyncio.sleep(_INTERVAL)

    def _show(self, *, up: bool) -> None:
        self._metrics.child(self._metrics.store_up, "store").set(int(up))

    async def _clean_up(self) -> None:
        deleted = self._metrics.store_deleted
        self._metrics.count(deleted, "expired", amount=await self._store.clean_up())
        self._metrics.count(deleted, "no_room", amount=await self._store.make_room())
        await self._store.give_space_back()

    async def _measure(self) -> None:
        ages = await self._store.ages()
        self._metrics.store_bytes.set(await self._store.size())
        self._metrics.store_oldest.set(ages.oldest)
        self._metrics.store_expired.set(ages.expired)
