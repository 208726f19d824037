"""How busy vLLM servers say they are, in their metrics: what other gateways send to them counts there, too.

However many servers there are, a process asks a bounded number of them in a second: first those to which it sends requests
itself, because what they have decides where the next ones go."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import nlargest
from typing import NamedTuple, Protocol

import aiohttp

from responses_gateway.backend.transport.client import Backend
from responses_gateway.bounded_body import read_at_most
from responses_gateway.ended_tasks import KeptTasks, keep_going
from responses_gateway.wire.errors import ApiError

# One line for each engine of a server (its data-parallel ranks): requests add up, and the part of the cache is an average.
_REQUESTS = re.compile(rb"^vllm:num_requests_(?:running|waiting)(?:\{[^\n]*\})? ([0-9.e+]+)\s*$", re.MULTILINE)
_CACHE = re.compile(rb"^vllm:kv_cache_usage_perc(?:\{[^\n]*\})? ([0-9.e+-]+)\s*$", re.MULTILINE)
# Most servers that are asked in a second, and at a time, because a pool may have a thousand members.
_PER_SECOND = 100
_AT_A_TIME = 16
# Least and most seconds between two looks at who is to be asked, and the longest wait for an answer.
_LOOK = 0.05
_LONGEST_LOOK = 1.0
_TIMEOUT = 2.0
# A server with requests of ours is asked so many times as often as another one, where not all can be.
_OURS_FIRST = 10
_LARGEST = 8 * 1024 * 1024  # bytes that are read of the metrics of a server


class ServerLoad(NamedTuple):
    """How many requests a server has, running and waiting, and which part of its KV cache they take, from 0 to 1."""

    requests: int
    cache: float = 0.0


def load_in(metrics: bytes) -> ServerLoad | None:
    """Return the load that a server's metrics tell; None if they do not."""
    numbers = [float(number) for number in _REQUESTS.findall(metrics)]
    parts = [float(part) for part in _CACHE.findall(metrics)]
    if not numbers:
        return None
    return ServerLoad(round(sum(numbers)), min(1.0, max(0.0, sum(parts) / len(parts))) if parts else 0.0)


async def load_of(backend: Backend, within: float) -> ServerLoad | None:
    """Ask a server for its load; None if it does not tell within so many seconds."""
    try:
        async with asyncio.timeout(within), await backend.request("GET", "metrics", below=backend.root) as answer:
            return load_in(await read_at_most(answer.content, _LARGEST)) if answer.status == 200 else None
    except (TimeoutError, ApiError, aiohttp.ClientError, ValueError, OverflowError):
        return None


class Asked(Protocol):
    """A backend whose load is asked for."""

    backend: Backend
    in_flight: int
    last: int
    reported: ServerLoad

    @property
    def tells_load(self) -> bool:
        """Whether its metrics may tell."""


@dataclass(slots=True)
class _Place:
    """When a backend was asked last, and what its last request was then."""

    last: int
    asked: float = float("-inf")
    asking: bool = False


class LoadReports:
    """Asks the backends every `interval` seconds how busy they are, or as often as is possible. Create it in a running loop.
    `report` gets exceptions that nobody expects."""

    def __init__(self, backends: Callable[[], Iterable[Asked]], interval: float, report: Callable[[Exception], object]) -> None:
        self._backends = backends
        self._interval = interval
        self._places: dict[Asked, _Place] = {}
        self._clock = asyncio.get_running_loop().time
        self._tasks: KeptTasks[None] = KeptTasks()
        self._looking = asyncio.create_task(keep_going(self._look, report))

    def close(self) -> None:
        """Ask no more."""
        self._looking.cancel()
        self._tasks.cancel()

    async def _look(self) -> None:
        allowed = 0.0
        looked = self._clock()
        while True:
            now = self._clock()
            allowed = min(_AT_A_TIME, allowed + (now - looked) * _PER_SECOND)
            looked = now
            due = self._due(now)
            free = min(int(allowed), _AT_A_TIME - len(self._tasks))
            for backend in nlargest(free, due, key=due.__getitem__):
                allowed -= 1
                self._tasks.begin(self._ask(backend, self._places[backend]))
            # Where all can be asked in time, there is no need to look more often than they are.
            await asyncio.sleep(min(_LOOK, self._interval) if len(due) > free else min(self._interval / 2, _LONGEST_LOOK))

    def _due(self, now: float) -> dict[Asked, float]:
        """Return which backends are to be asked, and how urgent that is."""
        places: dict[Asked, _Place] = {}
        due: dict[Asked, float] = {}
        for backend in self._backends():
            if not backend.tells_load:
                continue
            place = places[backend] = self._places.get(backend) or _Place(backend.last)
            age = now - place.asked
            if age >= self._interval and not place.asking:
                ours = backend.in_flight > 0 or backend.last != place.last
                due[backend] = age * _OURS_FIRST if ours else age
        self._places = places
        return due

    async def _ask(self, backend: Asked, place: _Place) -> None:
        place.asked = self._clock()
        place.asking = True
        place.last = backend.last
        before = backend.in_flight
        try:
            load = await load_of(backend.backend, _TIMEOUT)
        finally:
            place.asking = False
        ours = max(before, backend.in_flight)
        backend.reported = ServerLoad(0) if load is None else load._replace(requests=max(0, load.requests - ours))
