"""Waiting in tests: until a condition holds, or until it is certain that it never will."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

# Seconds after which what has not happened is taken to be missing. Only a test that fails waits so long: on a busy machine a
# process that usually starts within a second may take half a minute.
PATIENCE = 120.0


async def until(condition: Callable[[], Any], what: str = "", seconds: float = PATIENCE) -> None:
    """Wait until the condition holds. It is asked less and less often, because asking takes time from what is waited for."""
    deadline = asyncio.get_running_loop().time() + seconds
    pause = 0.001
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds} s: {what or 'the condition'}"
        await asyncio.sleep(pause)
        pause = min(1.1 * pause, 0.02)
