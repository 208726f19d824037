"""Tasks that wait can be ended at any time."""

from __future__ import annotations

import asyncio

import pytest

from responses_gateway.ended_tasks import KeptTasks, end_tasks, wait_at_most
from tests.waiting import PATIENCE


async def _goes_on(event: asyncio.Event) -> None:
    while True:
        await wait_at_most(event, PATIENCE)
        event.clear()


@pytest.mark.parametrize("turns", range(6))
def test_a_task_that_is_cancelled_right_behind_what_it_waits_for_ends(turns: int) -> None:
    async def test() -> None:
        event = asyncio.Event()
        task = asyncio.create_task(_goes_on(event))
        for _ in range(3):
            await asyncio.sleep(0)
        event.set()
        for _ in range(turns):  # of the event loop
            await asyncio.sleep(0)
        await end_tasks(task)

    asyncio.run(asyncio.wait_for(test(), PATIENCE))


def test_an_event_that_does_not_come_is_waited_for_as_long_as_told() -> None:
    asyncio.run(asyncio.wait_for(wait_at_most(asyncio.Event(), 0.01), PATIENCE))


def test_tasks_are_kept_until_they_have_ended() -> None:
    async def test() -> None:
        tasks: KeptTasks[None] = KeptTasks()
        waiting = tasks.begin(asyncio.sleep(PATIENCE))
        await tasks.begin(asyncio.sleep(0))
        await asyncio.sleep(0)
        assert tasks == {waiting}
        tasks.cancel()
        await asyncio.wait({waiting})
        await asyncio.sleep(0)
        assert waiting.cancelled()
        assert not tasks

    asyncio.run(asyncio.wait_for(test(), PATIENCE))
