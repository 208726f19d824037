"""What the script in Redis answers to a `LimitRequest`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from responses_gateway.state.fleet_counters import CountersUnavailable, LimitRequest
from tests.server.running_gateway import run
from tests.state.database_servers import RedisServer
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from responses_gateway.state.redis_counters import RedisCounters

REQUEST = LimitRequest("key 'alice'", 100, 1000, 3, 100.0, 1000.0, stale=False, tokens=0, running=1)


@asynccontextmanager
async def counters(server: RedisServer) -> AsyncIterator[RedisCounters]:
    from responses_gateway.state.redis_counters import RedisCounters  # noqa: PLC0415  (its driver is an extra)

    connected = RedisCounters(server.url)
    try:
        yield connected
    finally:
        await connected.close()


def test_a_client_that_is_not_known_has_what_is_believed(redis_server: RedisServer) -> None:
    async def test() -> None:
        async with counters(redis_server) as shared:
            verdict = await shared.take("a:1", replace(REQUEST, requests_left=10.0, tokens_left=-500.0))
            assert (verdict.refused, verdict.requests_left, verdict.tokens_left) == ("tokens", 10.0, -500.0)

    run(test())


def test_what_is_known_counts_unless_it_is_stale(redis_server: RedisServer) -> None:
    async def test() -> None:
        async with counters(redis_server) as shared:
            assert (await shared.take("a:1", REQUEST)).requests_left == 99
            assert (await shared.take("a:1", replace(REQUEST, requests_left=5.0))).requests_left == pytest.approx(98, abs=1)
            stale = await shared.take("a:1", replace(REQUEST, requests_left=5.0, stale=True))
            assert stale.requests_left == pytest.approx(4)
            more = await shared.take("a:1", replace(REQUEST, requests_left=100.0, stale=True))
            assert more.requests_left == pytest.approx(3, abs=1)

    run(test())


def test_what_was_used_is_taken_off_and_refills(redis_server: RedisServer) -> None:
    async def test() -> None:
        async with counters(redis_server) as shared:
            await shared.report("a:1", [replace(REQUEST, tokens=700), replace(REQUEST, client="key 'bob'", tokens=1)])
            verdict = await shared.take("b:1", replace(REQUEST, tokens=200))
            assert verdict.tokens_left == pytest.approx(100, abs=50)
            later = await shared.take("b:1", REQUEST)
            assert verdict.tokens_left < later.tokens_left < 1000  # 1000 per minute, and it took a moment

    run(test())


def test_what_runs_counts_for_as_long_as_its_process_takes_part(redis_server: RedisServer) -> None:
    async def test() -> None:
        async with counters(redis_server) as shared:
            assert await shared.join("a:1", 100) == 1
            assert await shared.join("a:2", 100) == 1
            assert await shared.join("b:1", 100) == 2
            assert (await shared.take("a:1", replace(REQUEST, running=1))).refused == ""
            assert (await shared.take("a:2", replace(REQUEST, running=1))).refused == ""
            assert (await shared.take("b:1", replace(REQUEST, running=1))).refused == ""
            refused = await shared.take("b:1", replace(REQUEST, running=2))
            assert (refused.refused, refused.gateways) == ("concurrency", 2)
            await shared.leave("a:1")
            assert (await shared.take("b:1", replace(REQUEST, running=2))).refused == ""
            assert (await shared.take("a:2", replace(REQUEST, running=2))).refused == "concurrency"
            await shared.report("b:1", [replace(REQUEST, running=0)])
            assert (await shared.take("a:2", replace(REQUEST, running=2))).refused == ""
            await shared.leave("b:1")
            assert await shared.join("a:2", 100) == 1

    run(test())


def test_everything_expires(redis_server: RedisServer) -> None:
    async def test() -> None:
        from redis.asyncio import Redis  # noqa: PLC0415  (an extra)

        async with counters(redis_server) as shared, Redis.from_url(redis_server.url) as redis:
            await shared.join("a:1", 100)
            await shared.take("a:1", REQUEST)
            keys = await redis.keys("*")
            assert len(keys) == 4
            for key in keys:
                assert 0 < await redis.ttl(key) <= 3600, key

    run(test())


def test_a_server_that_is_away_or_hangs_is_reported_as_such(redis_server: RedisServer) -> None:
    async def test() -> None:
        async with counters(redis_server) as shared:
            await shared.take("a:1", REQUEST)
            redis_server.kill()
            for asking in (
                shared.take("a:1", REQUEST),
                shared.report("a:1", [REQUEST]),
                shared.join("a:1", 1),
                shared.leave("a:1"),
            ):
                with pytest.raises(CountersUnavailable):
                    await asking
            redis_server.start()
            first, second = await asyncio.gather(shared.take("a:1", REQUEST), shared.take("a:1", REQUEST))
            assert {round(first.requests_left), round(second.requests_left)} == {98, 99}

    run(test())


def test_a_loop_of_commands_ends_wherever_it_is_cancelled(redis_server: RedisServer) -> None:
    """The driver drops what comes right behind the sending: a gateway that was stopped then did not end."""
    from responses_gateway.state.redis import RedisLog  # noqa: PLC0415  (its driver is an extra)

    async def test() -> None:
        log = RedisLog(redis_server.url)
        async with counters(redis_server) as shared:

            async def go_on(command: Callable[[], Awaitable[object]]) -> None:
                while True:
                    await command()

            for command in (
                lambda: shared.report("a:1", [REQUEST]),
                lambda: shared.take("a:1", REQUEST),
                lambda: log.delete("r"),
            ):
                await command()
                for steps in range(40):
                    task = asyncio.create_task(go_on(command))
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    task.cancel()
                    done, _ = await asyncio.wait([task], timeout=PATIENCE)
                    assert done, steps
        await log.close()

    run(test())
