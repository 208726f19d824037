"""What a vLLM server says of its load counts in the choice among several, beside our own requests."""

from __future__ import annotations

import pytest
from aiohttp import web

from responses_gateway.backend.policies.server_load import requests_in
from tests.backend.controlled_backends import Replica, replicas, text_of
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
    ("metrics", "requests"),
    [
        (b"", None),
        (b"# vllm:num_requests_running 3\n", None),
        (b'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_waiting{engine="0"} 2.0\n', 5),
        (b'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_running{engine="1"} 1e+01\n', 13),
        (b"vllm:num_requests_running 7\nvllm:num_requests_running_total 9\n", 7),
    ],
)
def test_the_requests_of_all_engines_add_up(metrics: bytes, requests: int | None) -> None:
    assert requests_in(metrics) == requests


def test_a_server_that_others_keep_busy_is_spared_until_it_is_free() -> None:
    async def test() -> None:
        a, b = Busy("A"), Busy("B")
        a.requests = 50
        async with replicas(a, b), gateway(a.url, b.url, adapt=False, load_interval=0.02) as served:
            member = served.parts.pool.members.by_name[a.place]
            await until(lambda: member.elsewhere == 50)
            assert {text_of((await post(served, model="m", store=False)).final) for _ in range(6)} == {"B"}
            a.requests = 0
            await until(lambda: member.elsewhere == 0)
            assert {text_of((await post(served, model="m", store=False)).final) for _ in range(6)} == {"A", "B"}
            a.requests = 50
            await until(lambda: member.elsewhere == 50)
            a.tells = False
            await until(lambda: member.elsewhere == 0)

    run(test())
