"""Limits that several gateways share through a real Redis, and what is left of them without it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from responses_gateway.server.access import fleet
from responses_gateway.server.process.reloading import Reloading
from responses_gateway.settings import Settings
from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import create_app, serving
from responses_gateway.state.fleet_counters import LimitRequest, Verdict
from tests.server.gateway_process import Program, fresh_connections, program
from tests.server.running_gateway import QUESTION, Answer, Served, gateway, post, run, until
from tests.state.database_servers import RedisServer, redis_running
from tests.waiting import PATIENCE

KEY = "rp_alice-0123456789"
HEADERS = {"Authorization": f"Bearer {KEY}"}
ENDLESS = "scenario: long tokens: 5000 tps: 100"


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    with redis_running() as server:
        yield server


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let gateways hear of each other often, and wait for a Redis that a busy machine makes slow."""
    redis_counters = pytest.importorskip("responses_gateway.state.redis_counters", reason="the Redis driver is not installed")
    monkeypatch.setattr(fleet, "RENEWAL", 0.1)
    monkeypatch.setattr(redis_counters, "TIMEOUT", PATIENCE)


@asynccontextmanager
async def replicas(redis: RedisServer, number: int = 2, **limits: int) -> AsyncIterator[list[Served]]:
    """Serve several gateways that share nothing but Redis and a backend."""
    keys = {"alice": {"hash": hash_of(KEY), **limits}}
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(serving(create_app()))
        settings = {"events": redis.url, "api_keys": keys, "adapt": False}
        served = [await stack.enter_async_context(gateway(backend, **settings)) for _ in range(number)]
        if redis.running:
            for one in served:
                await counts_with(one, number)
        yield served
        for one in served:
            await one.parts.pool.close()  # its idle connections would count as tasks that another one left


async def counts_with(served: Served, gateways: int) -> None:
    """Wait until a gateway knows how many count together."""
    await until(lambda: served.metric("limits_gateways") == gateways, f"{gateways} gateways")


async def asking(served: Served, text: str = "hi", **fields: Any) -> Answer:
    return await post(served, input=text, headers=HEADERS, **fields)


async def admitted(served: list[Served], number: int) -> Counter[int]:
    """Send so many requests to each in turn, and return how often there was which status."""
    return Counter([(await asking(served[index % len(served)])).status for index in range(number)])


async def eventually(served: Served, status: int) -> Answer:
    """Ask until the answer has this status: what ended elsewhere is reported a little later."""
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await asking(served)
            if answer.status == status:
                return answer
            await asyncio.sleep(0.01)


def refilled(limit: int, began: float) -> float:
    """Return the most that a limit has refilled since a moment, whatever the machine's speed."""
    return (time.monotonic() - began) * limit / 60 + 1


@pytest.mark.slow
def test_requests_of_all_gateways_count_together(redis_server: RedisServer) -> None:
    async def test() -> None:
        async with replicas(redis_server, requests_per_minute=6) as served:
            began = time.monotonic()
            for left in range(5, -1, -1):
                answer = await asking(served[left % 2])
                assert answer.status == 200
                assert answer.headers["x-ratelimit-limit-requests"] == "6"
                assert left <= int(answer.headers["x-ratelimit-remaining-requests"]) <= left + refilled(6, began)
            for one in served:
                refused = await eventually(one, 429)
                assert refused.json["error"]["type"] == "requests"
                assert 1 <= int(refused.headers["retry-after"]) <= 10
                assert one.metric("access_refusals_total", reason="requests") == 1

    run(test())


def test_limits_that_are_set_while_the_gateways_run_count_together(redis_server: RedisServer) -> None:
    async def test() -> None:
        async with replicas(redis_server) as served:
            assert (await asking(served[0])).status == 200
            for one in served:
                keys = {"alice": {"hash": hash_of(KEY), "requests_per_minute": 2}}
                settings = Settings(backend=["http://127.0.0.1:1"], events=redis_server.url, api_keys=keys)
                Reloading(one.parts).apply(settings)
            began = time.monotonic()
            assert (await admitted(served, 8))[200] <= 2 + refilled(2, began)

    run(test())


def test_many_at_once_are_not_let_in_twice(redis_server: RedisServer) -> None:
    async def test() -> None:
        async with replicas(redis_server, requests_per_minute=10) as served:
            began = time.monotonic()
            answers = await asyncio.gather(*(asking(served[index % 2]) for index in range(40)))
            statuses = Counter(answer.status for answer in answers)
            assert statuses.keys() == {200, 429}
            assert 10 <= statuses[200] <= 10 + refilled(10, began)

    run(test())


@pytest.mark.slow
def test_tokens_of_all_gateways_count_together(redis_server: RedisServer) -> None:
    async def test() -> None:
        # So many that the questions alone, asked until the report has come, do not use them up.
        async with replicas(redis_server, tokens_per_minute=10_000) as served:
            one, other = served
            assert (await asking(one, "tokens: 15500 tps: 1000000")).status == 200
            refused = await eventually(other, 429)
            assert refused.json["error"]["type"] == "tokens"
            assert refused.headers["x-ratelimit-remaining-tokens"] == "0"
            assert int(refused.headers["retry-after"]) >= 30

    run(test())


def test_what_runs_at_the_same_time_counts_together(redis_server: RedisServer) -> None:
    async def test() -> None:
        async with replicas(redis_server, concurrent_requests=2) as served, aiohttp.ClientSession() as session:
            one, other = served
            body = {"model": "m", "input": ENDLESS, "stream": True}
            async with AsyncExitStack() as stack:
                for each in served:
                    url = each.url + "/v1/responses"
                    running = await stack.enter_async_context(session.post(url, json=body, headers=HEADERS))
                    assert running.status == 200
                    await running.content.readany()
                for each in served:
                    refused = await asking(each)
                    assert (refused.status, refused.json["error"]["type"]) == (429, "requests")
                    assert "at the same time: Limit 2" in refused.json["error"]["message"]
                running.close()
            await eventually(one, 200)
            await eventually(other, 200)

    run(test())


def test_a_refusal_that_comes_late_leaves_nothing_that_runs(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its question tells how many requests run here, and overtakes the report that they have ended."""
    from responses_gateway.state.redis_counters import RedisCounters  # noqa: PLC0415  (its driver is an extra)

    ended = asyncio.Event()
    take = RedisCounters.take

    async def late(self: Any, member: str, request: LimitRequest) -> Verdict:
        if request.running > 1:
            await ended.wait()
        return await take(self, member, request)

    monkeypatch.setattr(RedisCounters, "take", late)
    monkeypatch.setattr(fleet, "LEASE", 3600.0)

    async def test() -> None:
        async with replicas(redis_server, concurrent_requests=1) as (one, other), aiohttp.ClientSession() as session:
            monkeypatch.setattr(fleet, "RENEWAL", 3600.0)  # with which all that runs is reported
            body = {"model": "m", "input": ENDLESS, "stream": True}
            running = await session.post(one.url + "/v1/responses", json=body, headers=HEADERS)
            await running.content.readany()
            asked = asyncio.create_task(asking(one))
            assert (await asking(other)).status == 429
            running.close()
            await until(lambda: not one.parts.in_flight.activities, "the first one has ended")
            await asyncio.sleep(0.5)  # until that is reported
            ended.set()
            assert (await asked).status == 429
            await eventually(other, 200)

    run(test())


def test_a_request_costs_one_round_trip_and_a_token_none(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from responses_gateway.state.redis_counters import RedisCounters  # noqa: PLC0415  (its driver is an extra)

    calls: Counter[str] = Counter()

    def count(name: str, original: Any) -> None:
        def counted(self: Any, *given: Any) -> Any:
            calls[name] += 1
            return original(self, *given)

        monkeypatch.setattr(RedisCounters, name, counted)

    count("take", RedisCounters.take)
    count("report", RedisCounters.report)

    async def test() -> None:
        async with replicas(redis_server, 1, requests_per_minute=1000, tokens_per_minute=10**7) as (one,):
            await asyncio.gather(*(asking(one, "tokens: 300 tps: 100000") for _ in range(50)))
            assert calls["take"] == 50
            assert calls["report"] < 25  # of what ended, for many together

    run(test())


@pytest.mark.slow
def test_without_redis_each_gateway_has_its_share_and_with_it_they_share_again(redis_server: RedisServer) -> None:
    async def test() -> None:
        async with replicas(redis_server, requests_per_minute=40) as served:
            one, other = served
            before = time.monotonic()
            assert await admitted(served, 8) == {200: 8}
            redis_server.kill()
            began = time.monotonic()
            # 32 of 40 are left: 16 for each, and what has refilled meanwhile.
            for each in served:
                statuses = await admitted([each], 40)
                assert 16 <= statuses[200] <= 16 + refilled(40, before)
                assert each.metric("limits_gateways") == 0
            redis_server.start()  # it has lost everything
            for each in served:
                await counts_with(each, 2)
            # All is used up: a server that has forgotten it does not give it once more.
            assert (await admitted(served, 10))[200] <= 1 + refilled(40, began)
            assert (await asking(one)).headers["x-ratelimit-limit-requests"] == "40"
            assert other.metric("defects_total") == 0

    run(test())


def test_limits_on_what_runs_hold_without_redis_too(redis_server: RedisServer) -> None:
    async def test() -> None:
        async with replicas(redis_server, concurrent_requests=4) as served, aiohttp.ClientSession() as session:
            redis_server.kill()
            body = {"model": "m", "input": ENDLESS, "stream": True}
            for each in served:
                url = each.url + "/v1/responses"
                running = [await session.post(url, json=body, headers=HEADERS) for _ in range(4)]
                assert [answer.status for answer in running] == [200, 200, 429, 429]
                for answer in running:
                    answer.close()

    run(test())


def test_a_gateway_starts_without_redis_and_joins_later(redis_server: RedisServer) -> None:
    async def test() -> None:
        redis_server.kill()
        async with replicas(redis_server, requests_per_minute=4) as served:
            assert await admitted([served[0]], 3) == {200: 3}
            redis_server.start()
            for each in served:
                await counts_with(each, 2)
            # The first one tells what it has let in.
            assert await admitted(served, 6) == {200: 1, 429: 5}

    run(test())


def test_a_redis_that_hangs_delays_one_request_and_stops_none(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from responses_gateway.state import redis_counters  # noqa: PLC0415  (its driver is an extra)

    monkeypatch.setattr(redis_counters, "TIMEOUT", 0.5)

    async def test() -> None:
        async with replicas(redis_server, 1, requests_per_minute=1000) as served:
            with redis_server.paused():
                assert await admitted(served, 5) == {200: 5}
                assert served[0].metric("limits_gateways") == 0
            await counts_with(served[0], 1)
            assert await admitted(served, 5) == {200: 5}

    run(test())


def test_what_ran_in_a_gateway_that_died_is_free_when_its_lease_ends(
    redis_server: RedisServer,
) -> None:
    from responses_gateway.state.redis_counters import RedisCounters  # noqa: PLC0415  (its driver is an extra)

    async def test() -> None:
        async with replicas(redis_server, 1, concurrent_requests=2) as (one,):
            dead = RedisCounters(redis_server.url)
            assert await dead.join("dead:1", 1.0) == 2
            request = LimitRequest("key 'alice'", 0, 0, 2, 0.0, 0.0, False, 0, 2)
            assert (await dead.take("dead:1", request)).refused == ""
            await dead.close()  # without a word
            assert (await asking(one)).status == 429

            await counts_with(one, 1)
            assert (await asking(one)).status == 200

    run(test())


def test_a_server_that_lost_its_scripts_gets_them_again(redis_server: RedisServer) -> None:
    async def test() -> None:
        from redis.asyncio import Redis  # noqa: PLC0415  (an extra)

        async with replicas(redis_server, tokens_per_minute=1000) as (one, other), Redis.from_url(redis_server.url) as redis:
            assert (await asking(one, "tokens: 2000 tps: 100000")).status == 200
            await redis.script_flush()
            await eventually(other, 429)
            assert (await redis.keys("*alice*")) == []  # nor does anybody learn the names of keys

    run(test())


# ---- processes --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def two_by_two(redis: RedisServer, tmp_path: Path, **limits: int) -> AsyncIterator[tuple[list[Program], Any]]:
    """Run two gateways with two workers each."""
    async with serving(create_app()) as backend, AsyncExitStack() as stack:
        flags = ["--backend", backend, "--store", "none", "--no-adapt", "--workers", "2", "--events", redis.url]
        for name, value in limits.items():
            flags += [f"--{name.replace('_', '-')}", str(value)]
        both = [await stack.enter_async_context(program(*flags, TMPDIR=str(tmp_path))) for _ in range(2)]

        async def ask(index: int) -> int:
            url = f"{both[index % 2].url}/v1/responses"
            async with fresh_connections() as session, session.post(url, json=QUESTION) as answer:
                await answer.read()
                return answer.status

        async def count_with(one: Program) -> None:
            async with fresh_connections() as session, asyncio.timeout(PATIENCE):
                while True:
                    async with session.get(f"{one.url}/metrics") as answer:
                        if b"responses_gateway_limits_gateways 2.0" in await answer.read():
                            return
                    await asyncio.sleep(0.1)

        for one in both:
            await count_with(one)

        yield both, ask


@pytest.mark.slow
def test_two_gateways_with_two_workers_each_let_in_what_the_limit_says(redis_server: RedisServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with two_by_two(redis_server, tmp_path, requests_per_minute=30) as (both, ask):
            began = time.monotonic()
            statuses = Counter(await asyncio.gather(*(ask(index) for index in range(100))))
            assert statuses.keys() == {200, 429}
            assert 30 <= statuses[200] <= 30 + refilled(30, began)
            redis_server.kill()
            await asyncio.gather(*(ask(index) for index in range(8)))
            # Both workers: one to which no request came notices only as it renews its membership.
            for one in both:
                await one.says("limits not shared", times=2)
            # Used up is used up, but each of the four processes may let one request through.
            assert Counter([await ask(index) for index in range(20)])[200] <= 4 + refilled(30, began)
            redis_server.start()
            for one in both:
                await one.says("limits are shared again", times=2)

    run(test())


@pytest.mark.slow
def test_without_redis_the_workers_of_a_gateway_have_its_share_together(redis_server: RedisServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with two_by_two(redis_server, tmp_path, requests_per_minute=60) as (_, ask):
            began = time.monotonic()
            statuses = Counter([await ask(index) for index in range(12)])
            assert statuses == {200: 12}
            redis_server.kill()
            statuses = Counter([await ask(0) for _ in range(45)])
            # 48 of 60 are left, half of it here: not all of it, nor half of it for each worker.
            assert 24 <= statuses[200] <= 24 + refilled(60, began), statuses

    run(test())
