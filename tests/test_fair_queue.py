"""A queue for places that tenants share: who is next, and what is left for others."""

from __future__ import annotations

import asyncio
import threading

import pytest

from responses_gateway.fair_queue import FairQueue
from tests.server.running_gateway import run
from tests.waiting import PATIENCE


class Scene:
    """Tenants that take places until they are let go. `running` has those that hold one, in the order of getting it."""

    def __init__(self, places: int, share: int, timeout: float = PATIENCE) -> None:
        self.queue = FairQueue(places, share, timeout, lambda: ValueError("too many"))
        self.running: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str) -> None:
        """Take a place for a tenant, the first letter of a name."""
        self.ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._hold(name))
        await settle()

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.tasks[name]
        await settle()

    async def _hold(self, name: str) -> None:
        async with self.queue.take(name[0]):
            self.running.append(name)
            await self.ends[name].wait()
        self.running.remove(name)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_tenant_has_its_share_and_leaves_the_rest_to_others() -> None:
    async def test() -> None:
        scene = Scene(3, 2)
        for name in ("a1", "a2", "a3", "a4", "b1", "b2", "c1"):
            await scene.begin(name)
        assert scene.running == ["a1", "a2", "b1"]
        await scene.end("a1")
        assert scene.running == ["a2", "b1", "c1"]  # it has none, so it is before a and b
        await scene.end("c1")
        assert scene.running == ["a2", "b1", "a3"]  # as many as b, which came later
        for name in ("a2", "b1", "a3", "b2", "a4"):
            await scene.end(name)
        assert scene.running == []

    run(test())


def test_who_stops_waiting_takes_no_place_with_it() -> None:
    async def test() -> None:
        scene = Scene(1, 1)
        for name in ("a1", "b1", "c1", "d1"):
            await scene.begin(name)
        scene.tasks["b1"].cancel()
        await settle()
        scene.ends["a1"].set()
        await asyncio.sleep(0)
        scene.tasks["c1"].cancel()  # in the moment in which it gets its place, or soon after
        await settle()
        assert scene.running == ["d1"]
        await scene.end("d1")
        await scene.begin("a2")
        assert scene.running == ["a2"]
        await scene.end("a2")
        await asyncio.gather(*scene.tasks.values(), return_exceptions=True)

    run(test())


def test_nobody_waits_without_end() -> None:
    async def test() -> None:
        scene = Scene(1, 1, timeout=0.05)
        await scene.begin("a1")
        with pytest.raises(ValueError, match="too many"):
            async with scene.queue.take("b"):
                pass
        await scene.end("a1")
        async with scene.queue.take("b"):
            pass

    run(test())


def test_of_one_place_the_tenants_have_it_in_turn() -> None:
    async def test() -> None:
        scene = Scene(1, 1)
        for name in ("a1", "a2", "a3", "b1", "c1", "b2"):
            await scene.begin(name)
        order = []
        while scene.running:
            order += scene.running
            await scene.end(scene.running[0])
        assert order == ["a1", "a2", "b1", "c1", "a3", "b2"]

    run(test())


def test_work_in_a_thread_keeps_its_place_though_its_client_has_left() -> None:
    async def test() -> None:
        queue = FairQueue(1, 1)
        began, may_end, order = threading.Event(), threading.Event(), []

        def first() -> None:
            began.set()
            may_end.wait(PATIENCE)
            order.append("first")
            raise ValueError  # which nobody hears of

        working = asyncio.create_task(queue.in_thread("a", first))
        await asyncio.to_thread(began.wait, PATIENCE)
        working.cancel()
        waiting = asyncio.create_task(queue.in_thread("b", order.append, "second"))
        await settle()
        assert order == []
        may_end.set()
        await waiting
        assert order == ["first", "second"]
        assert working.cancelled()

    run(test())
