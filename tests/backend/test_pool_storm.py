"""Everything at once: replicas that fail in every way, clients that leave, limits and a line. In the end the books balance."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.backend.controlled_backends import Replica, pool, text_of
from tests.server.running_gateway import RawClient, Served, post, run, until

FAULTS: list[str | int] = ["answer", "answer", "answer", "drop", "break", 503, 429, 500, 400]


async def leaves(served: Served, after: float) -> None:
    client = await RawClient.connect(served)
    await client.post(model="m")
    await asyncio.sleep(after)
    client.reset()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_place_is_lost_and_no_place_is_given_twice(seed: int) -> None:
    chance = random.Random(seed)

    async def vary(several: list[Replica]) -> None:
        while True:
            chance.choice(several).does = chance.choice(FAULTS)
            await asyncio.sleep(0.005)

    async def test() -> None:
        settings = {"max_concurrency": 2, "queue_size": 5, "breaker_failures": 2, "breaker_time": 0.05, "health_interval": 0.05}
        async with pool("A", "B", "C", **settings) as (served, *several):
            members = served.parts.pool.members.by_name.values()
            varying = asyncio.create_task(vary(several))
            tasks: list[asyncio.Task[object]] = []
            for number in range(150):
                if chance.random() < 0.2:
                    tasks.append(asyncio.create_task(leaves(served, chance.random() * 0.01)))
                else:
                    key = chance.choice(["", "a", "b"])
                    fields = {"prompt_cache_key": key} if key else {}
                    tasks.append(asyncio.create_task(post(served, model="m", stream=number % 3 > 0, **fields)))
                if chance.random() < 0.3:
                    await asyncio.sleep(0.004)
                assert all(0 <= member.in_flight <= 2 for member in members)
            await asyncio.gather(*tasks)
            varying.cancel()
            await asyncio.gather(varying, return_exceptions=True)
            await until(lambda: not any(member.in_flight for member in members))
            assert served.parts.pool.places.queued == 0
            for one in several:
                one.does = "answer"
                assert served.metric("backend_requests_in_flight", backend=one.place) == 0
            clock = asyncio.get_running_loop().time
            await until(lambda: all(member.breaker.allows(clock()) for member in members))
            finals = [text_of((await post(served, model="m")).final) for _ in range(9)]
            assert set(finals) == {"A", "B", "C"}

    run(test())
