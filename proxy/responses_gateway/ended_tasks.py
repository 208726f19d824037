"""How tasks are ended that nobody needs any more, those of a failed one among them."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

_T = TypeVar("_T")


async def end_tasks(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel tasks, those that there are, and wait until they have ended. Their errors are dropped."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def all_results(tasks: list[asyncio.Task[_T]]) -> list[_T]:
    """Return the results of all tasks, which are taken out of the list. The first failure, or a caller that leaves, ends the
    others."""
    try:
        return await asyncio.gather(*tasks)
    finally:
        while tasks:  # nobody may keep them: they keep their errors, whose frames keep all that was at work
            tasks.pop().cancel()
