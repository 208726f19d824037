"""Most members of a pool die at once, and nothing has said so: no request is refused while one is left. In virtual time."""

from __future__ import annotations

import asyncio

import pytest

from tests.backend.virtual_pool import Server, VirtualPool, now, run_virtually


@pytest.mark.parametrize("refuses_in", [0.001, 10.0], ids=["refused", "vanished"])
@pytest.mark.parametrize("left", [1, 20])
def test_requests_move_on_until_they_find_a_member_that_lives(
    left: int, refuses_in: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        living = [Server(f"living{number}") for number in range(left)]
        dying = [Server(f"dying{number}", lambda: now() < 2) for number in range(40 - left)]
        for server in dying:
            server.refuses_in = refuses_in
        several = VirtualPool(monkeypatch, [*living, *dying])
        await several.pool.start()
        before = asyncio.create_task(several.traffic(50, 1.5))
        await asyncio.sleep(2)
        assert "broke" not in await before
        after = await several.traffic(50, 20)
        await several.pool.close()
        assert set(after) == {server.spec.name for server in living}
        assert sum(at > 3 + 2 * refuses_in for server in dying for at in server.came) < 10  # they are left in peace soon

    run_virtually(test())


def test_requests_move_on_where_checks_are_late_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that is too busy: the checks of those that live fail, too."""

    async def test() -> None:
        living = [Server(f"living{number}") for number in range(20)]
        dying = [Server(f"dying{number}", lambda: now() < 4) for number in range(20)]
        several = VirtualPool(monkeypatch, [*living, *dying], health_interval=1)
        await several.pool.start()
        for server in (*living, *dying):
            server.health_ok = False
        await asyncio.sleep(4)
        asking = [asyncio.create_task(several.ask()) for _ in range(200)]
        assert set(await asyncio.gather(*asking)) <= {server.spec.name for server in living}
        for server in living:
            server.is_up = lambda: False
        came = sum(len(server.came) for server in several.servers.values())
        assert await several.ask() in {"502", "503"}
        assert sum(len(server.came) for server in several.servers.values()) - came <= 20
        await several.pool.close()

    run_virtually(test())


def test_what_a_member_refuses_that_is_going_moves_without_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        staying, going = Server("staying"), Server("going")
        several = VirtualPool(monkeypatch, [staying, going])
        await several.pool.start()
        going.answers = 503
        several.pool.members.drain("staying")  # so that all go to the other one
        asking = [asyncio.create_task(several.ask()) for _ in range(100)]
        await asyncio.sleep(0.0005)
        several.pool.members.drain("staying", draining=False)
        several.pool.members.drain("going")
        assert set(await asyncio.gather(*asking)) == {"staying"}
        await several.pool.close()

    run_virtually(test())
