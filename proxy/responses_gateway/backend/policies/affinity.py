"""The choice among several backends: the one whose prefix cache knows the request's beginning, unless it is too busy.

Requests with the same key go to the same backend, by rendezvous hashing (Thaler and Ravishankar, 1996): each backend draws a
number from the key and its own name, the highest wins. A backend that comes or goes moves no keys but its own, and all
gateways choose alike without talking to each other. Loads stay bounded (Mirrokni, Thorup and Zadimoghaddam, 2016): a backend
with a quarter more than its share passes the request on to the next in the key's order.

No I/O, no clock, no state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

SPREAD = 1.25  # a backend may have this many times its share of the requests before keys move to the next one
# Beyond this part of its KV cache a server gets no more than its share, because its requests are long.
FULL = 0.8


@dataclass(frozen=True, slots=True)
class Load:
    """A backend to choose: its requests under way, its share of the work, when it was last chosen (any rising number), and
    which part of its KV cache is taken, as far as it tells."""

    name: str
    in_flight: int
    weight: float = 1.0
    last: int = 0
    cache: float = 0.0


def choose(loads: Sequence[Load], key: str = "") -> str:
    """Return the name of the backend for a request: by its key, or the least busy one for an empty key. `loads` are the
    backends that can take a request now, at least one."""
    if len(loads) == 1:
        return loads[0].name
    if not key:
        return least_busy(loads)
    names = not_too_busy(loads)
    return next(name for name in preference(key, ((load.name, load.weight) for load in loads)) if name in names)


def least_busy(loads: Iterable[Load]) -> str:
    """Return the backend with the fewest requests for its weight; among equals, the one with more room in its KV cache, or that
    was chosen longest ago."""
    return min(loads, key=lambda load: ((load.in_flight + 1) / load.weight, round(load.cache, 1), load.last)).name


def preference(key: str, weights: Iterable[tuple[str, float]]) -> list[str]:
    """Return the names in the order in which a key prefers them; a name of weight 2 is first for twice as many keys."""
    scores = [(-math.log(_draw(key, name)) / weight, name) for name, weight in weights]
    return [name for _, name in sorted(scores)]


def capacity(load: Load, total: int, weights: float) -> int:
    """Return how many requests a backend may have if all have `total`, with the new one; `weights`: the sum of all weights."""
    spread = SPREAD if load.cache < FULL else 1.0
    return math.ceil(spread * total * load.weight / weights)


def not_too_busy(loads: Sequence[Load]) -> set[str]:
    """Return the names of the backends that have not much more than their share: at least one, because the sum of what they may
    have is more than the requests."""
    total = sum(load.in_flight for load in loads) + 1
    weights = sum(load.weight for load in loads)
    return {load.name for load in loads if load.in_flight < capacity(load, total, weights)}


def _draw(key: str, name: str) -> float:
    """Return a number between 0 and 1, both excluded, that depends on the two texts alone."""
    digest = blake2b(f"{len(name)}:{name}{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") + 0.5) / 2.0**64
