"""The addresses of a name are the members of a pool: no such name means none, and an outage changes nothing."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tests.backend.controlled_backends import Replica, replicas, text_of
from tests.server.running_gateway import Served, ask, assert_error, gateway, post, run, until

NAME = "gpu.models.svc.cluster.local."


class Resolver:
    """Stands in for the resolver of the system: `says` which addresses a name has, or which error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.says: list[str] | int = []
        real = socket.getaddrinfo

        def resolve(host: Any, port: Any, *more: Any, **named: Any) -> Any:
            if host != NAME:
                return real(host, port, *more, **named)
            if isinstance(self.says, int):
                raise socket.gaierror(self.says, "as told")
            family = {True: socket.AF_INET6, False: socket.AF_INET}
            return [(family[":" in one], socket.SOCK_STREAM, 6, "", (one, port)) for one in self.says]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)


def names(served: Served) -> set[str]:
    return set(served.parts.pool.members.by_name)


@pytest.mark.slow
def test_members_follow_the_addresses_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        resolver = Resolver(monkeypatch)
        async with replicas(Replica("A")) as (a,):
            resolver.says = ["127.0.0.1", "fd00::7", "127.0.0.1"]
            pool = {"dns": f"{NAME}:{a.port}", "interval": 0.1}
            async with gateway(pools={"gpu": pool}, adapt=False, queue_timeout=0.1, connect_timeout=0.5) as served:
                await until(lambda: names(served) == {f"gpu:127.0.0.1:{a.port}", f"gpu:[fd00::7]:{a.port}"})
                resolver.says = ["127.0.0.1"]
                await until(lambda: names(served) == {f"gpu:127.0.0.1:{a.port}"})
                assert text_of((await post(served, model="m")).final) == "A"
                resolver.says = socket.EAI_AGAIN
                await until(lambda: served.metric("pool_source_stale_seconds", pool="gpu", source="dns") > 0)
                assert text_of((await post(served, model="m")).final) == "A"
                resolver.says = socket.EAI_NONAME
                await until(lambda: not names(served))
                assert served.metric("pool_source_stale_seconds", pool="gpu", source="dns") == 0
                assert_error(await post(served, model="m"), 503)

    run(test())


def test_a_name_with_thousands_of_addresses_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        resolver = Resolver(monkeypatch)
        async with replicas(Replica("A")) as (a,):
            resolver.says = ["127.0.0.1"]
            pool = {"dns": f"{NAME}:{a.port}", "interval": 0.1}
            async with gateway(pools={"gpu": pool}, adapt=False) as served:
                resolver.says = [f"10.0.{number // 250}.{number % 250}" for number in range(10_000)]
                await until(lambda: "names 10000 backends" in served.parts.pool.members.pools["gpu"].problem)
                assert names(served) == {f"gpu:127.0.0.1:{a.port}"}
                assert text_of((await post(served, model="m")).final) == "A"

    run(test())


def test_a_resolver_that_cannot_be_reached_at_the_start_leaves_the_gateway_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        resolver = Resolver(monkeypatch)
        async with replicas(Replica("A")) as (a,):
            resolver.says = socket.EAI_AGAIN
            pool = {"dns": f"{NAME}:{a.port}", "interval": 0.1}
            async with gateway(pools={"gpu": pool}, adapt=False, queue_timeout=30) as served:
                assert (await ask(served, "GET", "/ready")).status == 503
                assert "cannot be looked up" in served.parts.pool.members.pools["gpu"].problem
                resolver.says = ["127.0.0.1"]
                assert text_of((await post(served, model="m")).final) == "A"

    run(test())
