"""`responses-gateway doctor --config FILE`: what the sources of the pools in a settings file say now."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from responses_gateway.backend.discovery.interface import Target
from responses_gateway.settings import BackendPool

_ONE_ADDRESS = (
    "the name has one address: of a Service that is not headless (clusterIP: None) the gateway sees one backend, whatever is "
    "behind it"
)


class PoolFinding(NamedTuple):
    """What one source says: its members, and what is wrong."""

    pool: str
    source: str
    members: list[Target]
    problem: str
    warning: str


async def look_at_pools(pools: dict[str, BackendPool], seconds: float) -> list[PoolFinding]:
    """Ask the source of each pool once; one that says nothing in so many seconds has a problem."""
    return list(await asyncio.gather(*(_look_at(name, details, seconds) for name, details in pools.items())))


async def _look_at(name: str, details: BackendPool, seconds: float) -> PoolFinding:
    from responses_gateway.server.setup.discovery import source_of

    source = source_of(details, os.environ)
    said: asyncio.Future[tuple[list[Target], str]] = asyncio.get_running_loop().create_future()

    def report(targets: Sequence[Target] | None, problem: str = "") -> None:
        if not said.done():
            said.set_result((list(targets or ()), problem))

    watching = asyncio.create_task(source.watch(report))
    members: list[Target] = []
    problem = f"nothing was said within {seconds:g} seconds"
    with suppress(TimeoutError):
        members, problem = await asyncio.wait_for(said, seconds)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    warning = _ONE_ADDRESS if source.kind == "dns" and len(members) == 1 else ""
    return PoolFinding(name, source.kind, members, problem, warning)
