"""A queue of requests that wait for a free backend: first come, first served, of bounded length, for a bounded time.

A place at a backend goes to the first in the queue that can use it. A request that is cancelled leaves the queue at once; a
place that it got in the same moment is given back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

# What requests wait for.
_P = TypeVar("_P")


class QueueFull(Exception):
    """Too many requests wait already."""


class QueueTimeout(Exception):
    """The wait took longer than allowed."""


class _Waiter(Generic[_P]):
    def __init__(self, group: Hashable, suits: Callable[[_P], bool], place: asyncio.Future[_P]) -> None:
        self.group = group
        self.suits = suits
        self.place = place


class WaitQueue(Generic[_P]):
    """One queue. Its length is limited per group, so that many requests for one model leave room for others.

    `waiters` are those who wait, in the order in which they came."""

    def __init__(self, size: int, seconds: float) -> None:
        """Let at most `size` requests of a group wait, each at most so many seconds."""
        self._size = size
        self._seconds = seconds
        self.waiters: dict[_Waiter[_P], None] = {}
        self._groups: Counter[Hashable] = Counter()

    async def wait(self, group: Hashable, suits: Callable[[_P], bool], give_back: Callable[[_P], None]) -> _P:
        """Wait for a place and return it. `suits` tells whether a place can be used; `give_back` takes one that came too late.
        Raises `QueueFull` and `QueueTimeout`."""
        if self._groups[group] >= self._size:
            raise QueueFull
        place: asyncio.Future[_P] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(group, suits, place)
        self.waiters[waiter] = None
        self._groups[group] += 1
        try:
            await asyncio.wait((place,), timeout=self._seconds)
        except asyncio.CancelledError:
            if place.done():
                give_back(place.result())
            raise
        finally:
            self._leave(waiter)
        if not place.done():
            raise QueueTimeout
        return place.result()

    def offer(self, place: _P) -> bool:
        """Give a place to the first that can use it; return False if none can. The one that gets it does not run before the
        caller has returned to the event loop."""
        for waiter in self.waiters:
            if waiter.suits(place):
                self._leave(waiter)
                waiter.place.set_result(place)
                return True
        return False

    def _leave(self, waiter: _Waiter[_P]) -> None:
        if waiter in self.waiters:
            del self.waiters[waiter]
            self._groups[waiter.group] -= 1
            if not self._groups[waiter.group]:
                del self._groups[waiter.group]
