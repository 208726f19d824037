"""What a vLLM server says of its load counts in the choice among several, beside our own requests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web

from responses_gateway.backend.policies import server_load
from responses_gateway.backend.policies.affinity import Load, choose
from responses_gateway.backend.policies.server_load import LoadReports, ServerLoad, load_in
from tests.backend.controlled_backends import Replica, replicas, text_of
from tests.backend.virtual_pool import now, run_virtually
from tests.server.running_gateway import gateway, post, run, until


class Busy(Replica):
    """One that has requests of others."""

    requests = 0
    tells = True

    async def _other(self, request: web.Request) -> web.Response:
        if request.path != "/metrics" or not self.tells:
            return web.Response(status=404)
        half = f'vllm:num_requests_running{{engine="0",model_name="m"}} {float(self.requests)}\n'
        return web.Response(text=f'# TYPE vllm:num_requests_running gauge\n{half}vllm:num_requests_waiting{{engine="0"}} 0.0\n')


@pytest.mark.parametrize(
    ("metrics", "load"),
    [
        (b"", None),
        (b"# vllm:num_requests_running 3\nvllm:kv_cache_usage_perc 0.5\n", None),
        (b'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_waiting{engine="0"} 2.0\n', (5, 0)),
        (b'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_running{engine="1"} 1e+01\n', (13, 0)),
        (b"vllm:num_requests_running 7\nvllm:num_requests_running_total 9\nvllm:kv_cache_usage_perc 5e-01\n", (7, 0.5)),
        (b'vllm:num_requests_running 1\nvllm:kv_cache_usage_perc{a="0"} 0.25\nvllm:kv_cache_usage_perc{a="1"} 9\n', (1, 1)),
    ],
)
def test_the_requests_of_all_engines_add_up_and_their_caches_are_averaged(
    metrics: bytes, load: tuple[int, float] | None
) -> None:
    assert load_in(metrics) == (None if load is None else ServerLoad(*load))


def test_a_server_that_others_keep_busy_is_spared_until_it_is_free() -> None:
    async def test() -> None:
        a, b = Busy("A"), Busy("B")
        a.requests = 50
        async with replicas(a, b), gateway(a.url, b.url, adapt=False, load_interval=0.02) as served:
            member = served.parts.pool.members.by_name[a.place]
            await until(lambda: member.reported.requests == 50)
            assert {text_of((await post(served, model="m", store=False)).final) for _ in range(6)} == {"B"}
            a.requests = 0
            await until(lambda: member.reported.requests == 0)
            assert {text_of((await post(served, model="m", store=False)).final) for _ in range(6)} == {"A", "B"}
            a.requests = 50
            await until(lambda: member.reported.requests == 50)
            a.tells = False
            await until(lambda: member.reported.requests == 0)

    run(test())


class Absurd(Busy):
    """One whose metrics have a number that no server has."""

    answers = 0

    async def _other(self, request: web.Request) -> web.Response:
        self.answers += request.path == "/metrics"
        return web.Response(text="vllm:num_requests_running 1e999\n")


def test_a_server_that_tells_no_number_that_can_be_counts_as_one_that_tells_none() -> None:
    async def test() -> None:
        a, b = Absurd("A"), Busy("B")
        b.requests = 3
        async with replicas(a, b), gateway(a.url, b.url, adapt=False, load_interval=0.02) as served:
            reported = served.parts.pool.members.by_name
            await until(lambda: a.answers > 2 and reported[b.place].reported.requests == 3)
            assert reported[a.place].reported == ServerLoad(0)

    run(test())


def test_a_server_whose_cache_is_nearly_full_gets_no_more_than_its_share() -> None:
    key = next(key for key in map(str, range(200)) if choose([Load("full", 0), Load("roomy", 0)], key) == "full")
    for cache, most in ((0.5, 6), (0.9, 5)):
        counts = {"full": 0, "roomy": 0}
        for _ in range(9):
            loads = [Load("full", counts["full"], cache=cache), Load("roomy", counts["roomy"])]
            counts[choose(loads, key)] += 1
        assert counts["full"] == most


def test_among_servers_with_as_many_requests_the_one_with_more_room_in_its_cache_is_chosen() -> None:
    assert choose([Load("long", 8, cache=0.9), Load("short", 8, last=1, cache=0.1)]) == "short"


@dataclass(eq=False)
class Server:
    backend: Any = None
    in_flight: int = 0
    last: int = 0
    reported: ServerLoad = field(default_factory=lambda: ServerLoad(0))
    tells_load: bool = True


@pytest.mark.slow
def test_of_a_thousand_servers_those_with_requests_of_ours_are_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[Server, list[float]] = {}

    async def answer(server: Server, within: float) -> ServerLoad:
        asked.setdefault(server, []).append(now())
        await asyncio.sleep(0.01)
        return ServerLoad(3, 0.5)

    async def test() -> None:
        servers = [Server() for _ in range(1000)]
        for server in servers:
            server.backend = server
        for server in servers[:100]:
            server.in_flight = 1
        reports = LoadReports(lambda: servers, 1.0, pytest.fail)
        await asyncio.sleep(60)
        idle = servers[-1]
        idle.last = 7  # it got a request
        at = now()
        await asyncio.sleep(0.5)
        assert asked[idle][-1] >= at
        reports.close()
        assert sum(map(len, asked.values())) <= 61 * 100
        assert all(_longest_gap(asked[server]) < 3 for server in servers[:100])
        assert all(_longest_gap(asked[server]) < 30 for server in servers[100:])
        assert (servers[0].reported.requests, idle.reported) == (2, (3, 0.5))

    monkeypatch.setattr(server_load, "load_of", answer)
    run_virtually(test())


def _longest_gap(times: list[float]) -> float:
    return max(later - earlier for earlier, later in pairwise(times[1:]))
