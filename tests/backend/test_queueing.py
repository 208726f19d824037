"""The line: in order, bounded, and nobody's place is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from proxy.backend.policies.wait_queue import Line, LineFull, TooLate


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 5))


def anything(_: str) -> bool:
    return True


async def join(line: Line[str], wanted: str = "", returned: list[str] | None = None) -> asyncio.Task[str]:
    """One more who waits: for anything, or for one place; what comes too late is `returned`."""
    returned = [] if returned is None else returned
    suits = (lambda place: place == wanted) if wanted else anything
    task = asyncio.create_task(line.wait(wanted, suits, returned.append))
    await asyncio.sleep(0)
    return task


def test_first_come_first_served() -> None:
    async def test() -> None:
        line: Line[str] = Line(10, 5)
        waiting = [await join(line) for _ in range(3)]
        for place, task in zip("abc", waiting, strict=True):
            assert line.offer(place)
            assert await task == place
        assert not line.offer("d")
        assert len(line) == 0

    run(test)


def test_a_place_that_does_not_suit_the_first_goes_to_the_next() -> None:
    async def test() -> None:
        line: Line[str] = Line(10, 5)
        one, two = await join(line, "a"), await join(line, "b")
        assert line.offer("b")
        assert await two == "b"
        assert not line.offer("b")
        assert line.offer("a")
        assert await one == "a"

    run(test)


def test_a_full_line_is_full_for_one_group_alone() -> None:
    async def test() -> None:
        line: Line[str] = Line(1, 5)
        first = await join(line, "a")
        with pytest.raises(LineFull):
            await line.wait("a", anything, lambda _: None)
        second = await join(line, "b")
        assert len(line) == 2
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        assert len(line) == 0
        again = await join(line, "a")  # the group is counted anew
        assert line.offer("a")
        assert await again == "a"

    run(test)


def test_without_room_for_anybody_nobody_waits() -> None:
    async def test() -> None:
        with pytest.raises(LineFull):
            await Line[str](0, 5).wait("a", anything, lambda _: None)

    run(test)


def test_who_waits_too_long_leaves() -> None:
    async def test() -> None:
        line: Line[str] = Line(10, 0.01)
        with pytest.raises(TooLate):
            await line.wait("a", anything, lambda _: None)
        assert len(line) == 0
        assert not line.offer("a")

    run(test)


def test_who_leaves_is_passed_over() -> None:
    async def test() -> None:
        line: Line[str] = Line(10, 5)
        first, second = await join(line), await join(line)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert len(line) == 1
        assert line.offer("a")
        assert await second == "a"

    run(test)


def test_a_place_handed_to_one_who_leaves_in_the_same_moment_is_given_back() -> None:
    async def test() -> None:
        line: Line[str] = Line(10, 5)
        returned: list[str] = []
        task = await join(line, returned=returned)
        assert line.offer("a")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert returned == ["a"]

    run(test)
