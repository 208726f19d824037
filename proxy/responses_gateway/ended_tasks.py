"""How tasks are kept for which nobody waits, how those go on that have no end, how those are ended that nobody needs any more,
those of a failed one among them, and how they wait so that they can be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, TypeVar

_S = TypeVar("_S")
_T = TypeVar("_T")
_INTERVAL = 0.02  # seconds between two looks at a condition
AFTER_DEFECT = 1.0  # seconds until work begins again that a defect has ended


class KeptTasks(set[asyncio.Task[_T]]):
    """Tasks for which nobody waits, until they have ended: the event loop alone would not keep them."""

    def begin(self, work: Coroutine[Any, Any, _T], name: str | None = None) -> asyncio.Task[_T]:
        """Have work done in a task."""
        task = asyncio.create_task(work, name=name)
        self.add(task)
        task.add_done_callback(self.discard)
        return task

    def cancel(self) -> None:
        """Cancel those that run."""
        for task in self:
            task.cancel()


async def keep_going(work: Callable[[], Coroutine[Any, Any, None]], on_defect: Callable[[Exception], object]) -> None:
    """Do work that has no end of its own. If an exception has ended it that nobody expects, pass it to `on_defect`, and begin
    it again after a pause: else it would rest as long as the process lives, and nobody would know. Return when it returns."""
    while True:
        try:
            return await work()
        except Exception as defect:
            on_defect(defect)
        await asyncio.sleep(AFTER_DEFECT)


async def end_tasks(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel tasks, those that there are, and wait until they have ended. Their errors are dropped."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, but no longer than so many seconds. Before Python 3.12 `asyncio.wait_for` drops a cancellation that
    comes right behind the event: a task in an endless loop would go on, and `end_tasks` would wait for it forever."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def becomes_true(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition that no event tells of, at most so many seconds. Return whether it holds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(_INTERVAL)
    return condition()


async def all_results(ask: Callable[[_S], Awaitable[_T]], subjects: Iterable[_S], at_once: int) -> list[_T]:
    """Return what is answered about each subject, with so many questions at once. The first failure, or a caller that leaves,
    ends the others."""
    places = asyncio.Semaphore(at_once)

    async def ask_one(subject: _S) -> _T:
        async with places:
            return await ask(subject)

    tasks = [asyncio.create_task(ask_one(subject)) for subject in subjects]
    try:
        return await asyncio.gather(*tasks)
    finally:
        while tasks:  # nobody may keep them: they keep their errors, whose frames keep all that was at work
            tasks.pop().cancel()
