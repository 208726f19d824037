"""Backends that flap, come back, or are all out: one that works is found and used at once, and no request is refused before its
time in the queue is over. In virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from tests.backend.virtual_pool import Server, VirtualPool, now, run_virtually


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_of_two_backends_that_flap_the_one_that_lives_is_used(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each die in turn, soon after the other one is back: there is always one that works."""
    chance = random.Random(seed)
    outages: dict[str, list[tuple[float, float]]] = {"A": [], "B": []}
    at = 2.0
    while at < 150:
        lasts = chance.choice([0.5, 2.0, 5.0, 12.0])
        outages[chance.choice("AB")].append((at, at + lasts))
        at += lasts + chance.choice([0.05, 0.3, 1.0])

    def is_up(name: str) -> bool:
        return not any(start <= now() < end for start, end in outages[name])

    async def test() -> None:
        servers = [Server(name, lambda name=name: is_up(name)) for name in "AB"]  # type: ignore[misc]
        several = VirtualPool(monkeypatch, servers)
        await several.pool.start()
        outcomes = Counter(await several.traffic(50, 150))
        await several.pool.close()
        # What broke off after its client had seen something cannot be mended; nothing else may go wrong.
        assert outcomes.keys() <= {"A", "B", "broke"}, outcomes
        assert min(outcomes["A"], outcomes["B"]) > 500
        assert not several.pool.places.queued
        assert [member.in_flight for member in several.pool.members.by_name.values()] == [0, 0]

    run_virtually(test())


@pytest.mark.parametrize("outage", [3.0, 15.0, 200.0])
def test_a_backend_that_is_back_gets_requests_within_two_seconds(outage: float, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        a = Server("A", lambda: not 5 <= now() < 5 + outage)
        several = VirtualPool(monkeypatch, [a, Server("B")])
        await several.pool.start()
        assert set(await several.traffic(20, outage + 10)) <= {"A", "B", "broke"}
        await several.pool.close()
        back = min(at for at in a.came if at >= 5 + outage)
        assert back - (5 + outage) < 1.5
        assert ("backend healthy", "A") in several.observer.lines

    run_virtually(test())


@pytest.mark.slow
def test_while_all_are_out_one_request_at_a_time_tries_and_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        servers = [Server(name, lambda: now() >= 20) for name in "AB"]
        several = VirtualPool(monkeypatch, servers, breaker_time=300)
        await several.pool.start()
        while any(member.breaker.allows(now()) for member in several.pool.members.by_name.values()):
            await several.ask()
        asked = [len(server.came) for server in servers]
        waiting = [asyncio.create_task(several.ask()) for _ in range(80)]
        while now() < 20:
            await asyncio.sleep(0.0005)
            assert all(server.active <= 1 for server in servers)
        tried = sum(len(server.came) - before for server, before in zip(servers, asked, strict=True))
        assert 5 <= tried <= 60  # paced: about one a second for each
        outcomes = Counter(await asyncio.gather(*waiting))
        await several.pool.close()
        assert now() < 23
        assert set(outcomes) <= {"A", "B", "502"}
        assert outcomes["502"] <= tried
        assert outcomes["A"] + outcomes["B"] >= 40

    run_virtually(test())


def test_where_none_comes_back_those_that_wait_are_told_at_their_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        several = VirtualPool(monkeypatch, [Server("A"), Server("B")], queue_size=5, queue_timeout=7, breaker_failures=1)
        await several.pool.start()
        for server in several.servers.values():
            server.answers = 503
        await several.ask()
        several.outcomes.clear()
        for server in several.servers.values():
            server.answers = "hangs"
        start = now()
        await asyncio.gather(*(several.ask() for _ in range(6)))
        after = [(outcome, round(at - start)) for at, outcome in several.outcomes]
        # The queue was full (but the backends are not busy: no 429); the time in the queue was over; two were tried, and hung.
        assert after[:4] == [("503", 0), ("503", 7), ("503", 7), ("503", 7)]
        assert [outcome for outcome, _ in after[4:]] == ["504", "504"]
        await several.pool.close()

    run_virtually(test())


@pytest.mark.slow
@pytest.mark.parametrize("fails", [503, "hangs"])
def test_a_health_check_that_knows_nothing_new_closes_no_breaker(fails: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer health checks all the time: only requests notice the failure."""

    async def test() -> None:
        a = Server("A")
        several = VirtualPool(monkeypatch, [a, Server("B")], breaker_failures=2)
        await several.pool.start()
        a.answers = fails
        await several.traffic(20, 300)
        await several.pool.close()
        assert len(a.came) < 20 * 2 + 10  # some at first, and a trial after 10, 20, 40, 80 and 80 s

    run_virtually(test())


def test_health_checks_that_are_always_wrong_are_believed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break all connections, behind a proxy that answers the health checks itself."""

    async def test() -> None:
        a = Server("A", lambda: now() < 5)
        a.health_ok = True
        several = VirtualPool(monkeypatch, [a, Server("B")], breaker_failures=2)
        await several.pool.start()
        outcomes = await several.traffic(20, 300)
        await several.pool.close()
        assert set(outcomes) <= {"A", "B", "broke"}
        assert len([at for at in a.came if at > 5]) < 15

    run_virtually(test())
