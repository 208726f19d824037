"""The wait queue: in order, bounded, and no place is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from responses_gateway.backend.policies.wait_queue import QueueFull, QueueTimeout, WaitQueue
from tests.waiting import PATIENCE


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), PATIENCE))


def anything(_: str) -> bool:
    return True


async def join(queue: WaitQueue[str], wanted: str = "", returned: list[str] | None = None) -> asyncio.Task[str]:
    """Start to wait for any place, or for one; what comes too late is `returned`."""
    returned = [] if returned is None else returned
    suits = (lambda place: place == wanted) if wanted else anything
    task = asyncio.create_task(queue.wait(wanted, suits, returned.append))
    await asyncio.sleep(0)
    return task


def test_first_come_first_served() -> None:
    async def test() -> None:
        queue: WaitQueue[str] = WaitQueue(10, 5)
        waiting = [await join(queue) for _ in range(3)]
        for place, task in zip("abc", waiting, strict=True):
            assert queue.offer(place)
            assert await task == place
        assert not queue.offer("d")
        assert len(queue.waiters) == 0

    run(test)


def test_a_place_that_does_not_suit_the_first_goes_to_the_next() -> None:
    async def test() -> None:
        queue: WaitQueue[str] = WaitQueue(10, 5)
        one = await join(queue, "a")
        two = await join(queue, "b")
        assert queue.offer("b")
        assert await two == "b"
        assert not queue.offer("b")
        assert queue.offer("a")
        assert await one == "a"

    run(test)


def test_a_full_queue_is_full_for_one_group_alone() -> None:
    async def test() -> None:
        queue: WaitQueue[str] = WaitQueue(1, 5)
        first = await join(queue, "a")
        with pytest.raises(QueueFull):
            await queue.wait("a", anything, lambda _: None)
        second = await join(queue, "b")
        assert len(queue.waiters) == 2
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        assert len(queue.waiters) == 0
        again = await join(queue, "a")  # the group is counted anew
        assert queue.offer("a")
        assert await again == "a"

    run(test)


def test_without_room_for_anybody_nobody_waits() -> None:
    async def test() -> None:
        with pytest.raises(QueueFull):
            await WaitQueue[str](0, 5).wait("a", anything, lambda _: None)

    run(test)


def test_who_waits_too_long_leaves() -> None:
    async def test() -> None:
        queue: WaitQueue[str] = WaitQueue(10, 0.01)
        with pytest.raises(QueueTimeout):
            await queue.wait("a", anything, lambda _: None)
        assert len(queue.waiters) == 0
        assert not queue.offer("a")

    run(test)


def test_who_leaves_is_passed_over() -> None:
    async def test() -> None:
        queue: WaitQueue[str] = WaitQueue(10, 5)
        first = await join(queue)
        second = await join(queue)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert len(queue.waiters) == 1
        assert queue.offer("a")
        assert await second == "a"

    run(test)


def test_a_place_handed_to_one_who_leaves_in_the_same_moment_is_given_back() -> None:
    async def test() -> None:
        queue: WaitQueue[str] = WaitQueue(10, 5)
        returned: list[str] = []
        task = await join(queue, returned=returned)
        assert queue.offer("a")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert returned == ["a"]

    run(test)
