"""How busy the backends of a model are, for requests that can wait: what is known here, and what vLLM's metrics say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from responses_gateway.backend.member import Member
from responses_gateway.backend.policies.health import check_health
from responses_gateway.backend.policies.server_load import load_of as server_load_of
from responses_gateway.backend.pool import Pool

_SHARE = 2  # of the places of a backend, one in so many may be used by requests that can wait
# For how long a backend is asked, in seconds, and how many are: of the others, what is known has to do.
_WITHIN = 1.0
_ASKED = 16


class ModelLoad(NamedTuple):
    """`used` is how many requests the usable backends have, and `idle` with how many they still count as idle; `free` how many
    more they take now, None for any number. 0 of `idle`: there is no usable backend."""

    used: int
    idle: int
    free: int | None


async def load_of(pool: Pool, model: str, idle_requests: int) -> ModelLoad:
    """Return how busy the backends are that serve a model. One with so many requests counts as idle, or with half of those that
    it takes at a time, if that is less. vLLM servers are asked."""
    members = pool.members
    now = members.clock()
    serving = [member for member in pool.models.candidates(model) if not member.drains]
    if members.only is not None:  # nobody checks its health
        usable = [member for member in serving if member.healthy or not (await check_health(member.backend, _WITHIN)).problem]
    else:
        usable = [member for member in serving if member.state(now) == "ready"]
    telling = sorted((member for member in usable if member.tells_load), key=lambda member: member.in_flight)[:_ASKED]
    loads = await asyncio.gather(*(server_load_of(member.backend, _WITHIN) for member in telling))
    reported = {member: load.requests for member, load in zip(telling, loads, strict=True) if load is not None}
    used = sum(max(member.in_flight + member.reported.requests, reported.get(member, 0)) for member in usable)
    return ModelLoad(used, sum(_idle(member, idle_requests) for member in usable), _free(pool, usable))


def _idle(member: Member, idle_requests: int) -> int:
    return idle_requests if member.limit is None else min(idle_requests, max(1, member.limit // _SHARE))


def _free(pool: Pool, usable: Iterable[Member]) -> int | None:
    """Return how many requests would not have to wait: none, where others wait already."""
    if pool.places.queued:
        return 0
    limits = [(member.limit, member.in_flight) for member in usable]
    if any(limit is None for limit, _ in limits):
        return None
    return sum(max(0, limit - in_flight) for limit, in_flight in limits if limit is not None)
