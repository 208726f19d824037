"""A queue for places that several tenants share: each has its part of them, and they are served in turn."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

_R = TypeVar("_R")


class FairQueue:
    """A number of places. A tenant has at most its share of them, so that one is left for others; of those that wait, the
    tenant with the fewest places is next."""

    def __init__(
        self, places: int, share: int, timeout: float | None = None, late: Callable[[], Exception] = TimeoutError
    ) -> None:
        """`timeout`: seconds after which nobody waits any longer; None: all wait. `late` makes the error that ends it."""
        self._free = places
        self._share = share
        self._timeout = timeout
        self._late = late
        self._taken: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def take(self, tenant: str) -> AsyncIterator[None]:
        """Hold a place of a tenant while the block runs. Raise the error of `late` if none gets free in time."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        self._give()
        try:
            async with asyncio.timeout(self._timeout):
                await turn
        except BaseException as error:
            self._leave(tenant, turn)
            if isinstance(error, TimeoutError):
                raise self._late() from None
            raise
        try:
            yield
        finally:
            self._release(tenant)

    async def in_thread(self, tenant: str, work: Callable[..., _R], *arguments: object) -> _R:
        """Do a tenant's work in a thread. It has its place until it ends, also if nobody waits for it any longer: else clients
        that leave at once could have any number of threads."""
        async with self.take(tenant):
            running = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                await asyncio.wait([running])
                running.exception()  # nobody wants to know
                raise
            finally:
                del running  # the frames of its error would keep it, and with it the work's arguments

    def _give(self) -> None:
        """Give the free places to those that wait."""
        while self._free:
            waiting = [tenant for tenant in self._waiting if self._taken[tenant] < self._share]
            if not waiting:
                return
            tenant = min(waiting, key=lambda each: self._taken[each])
            turn = self._next(tenant)
            if not turn.done():  # cancelled, and about to leave
                self._free -= 1
                self._taken[tenant] += 1
                turn.set_result(None)

    def _next(self, tenant: str) -> asyncio.Future[None]:
        turns = self._waiting[tenant]
        turn = turns.popleft()
        if turns:
            self._waiting.move_to_end(tenant)
        else:
            del self._waiting[tenant]
        return turn

    def _leave(self, tenant: str, turn: asyncio.Future[None]) -> None:
        """Stop waiting; a place that was given in the same moment is given to another."""
        if turn.done() and not turn.cancelled():
            self._release(tenant)
            return
        turns = self._waiting.get(tenant)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[tenant]

    def _release(self, tenant: str) -> None:
        self._free += 1
        self._taken[tenant] -= 1
        if not self._taken[tenant]:
            del self._taken[tenant]
        self._give()
