"""The line of requests that wait for a backend with room: first come, first served, of bounded length, for a bounded time.

A place is handed to the first in line whom it suits. Whoever leaves, leaves the line at once; a place that was handed to him
in the same moment is given back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

#: What is waited for.
_P = TypeVar("_P")


class LineFull(Exception):
    """There is no room in the line either."""


class TooLate(Exception):
    """The wait was longer than allowed."""


class _Waiter(Generic[_P]):
    def __init__(self, group: Hashable, suits: Callable[[_P], bool], place: asyncio.Future[_P]) -> None:
        self.group = group
        self.suits = suits
        self.place = place


class Line(Generic[_P]):
    """One line. Those of one group are counted together: a crowd before one model leaves the room for others."""

    def __init__(self, size: int, seconds: float) -> None:
        """At most `size` of a group wait, each at most so many seconds."""
        self._size = size
        self._seconds = seconds
        self._waiters: dict[_Waiter[_P], None] = {}  # in the order in which they came
        self._groups: Counter[Hashable] = Counter()

    def __len__(self) -> int:
        return len(self._waiters)

    async def wait(self, group: Hashable, suits: Callable[[_P], bool], give_back: Callable[[_P], None]) -> _P:
        """Wait for a place. `suits` tells which one will do; `give_back` gets one that came too late to be used.

        Raises `LineFull` and `TooLate`.
        """
        if self._groups[group] >= self._size:
            raise LineFull
        place: asyncio.Future[_P] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(group, suits, place)
        self._waiters[waiter] = None
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
            raise TooLate
        return place.result()

    def offer(self, place: _P) -> bool:
        """Hand a place to the first in line whom it suits; False if it suits nobody. Nobody acts on it before the caller has
        given up control."""
        for waiter in self._waiters:
            if waiter.suits(place):
                self._leave(waiter)
                waiter.place.set_result(place)
                return True
        return False

    def _leave(self, waiter: _Waiter[_P]) -> None:
        if waiter in self._waiters:
            del self._waiters[waiter]
            self._groups[waiter.group] -= 1
            if not self._groups[waiter.group]:
                del self._groups[waiter.group]
