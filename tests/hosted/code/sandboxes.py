"""Sandboxes for tests, with the Python that scripts/install-sandbox installs; without it their tests are skipped."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from responses_gateway.hosted.code.container import PROGRAM, ContainerLimits
from responses_gateway.hosted.code.runner import CodeOutcome, ContainerKey
from responses_gateway.hosted.code.sandbox import Sandbox, SandboxOptions
from tests.waiting import PATIENCE, until

PYTHON = Path(__file__).parents[3] / ".cache" / "sandbox" / "bin" / "python"
KEY = ContainerKey("alice", "cntr_1")

needs_sandbox = pytest.mark.skipif(not PYTHON.exists(), reason="the sandbox is not installed: run scripts/install-sandbox")


Loop = Callable[[], asyncio.AbstractEventLoop]
LOOPS: list[Loop] = [uvloop.new_event_loop, asyncio.new_event_loop]


def run(test: Coroutine[Any, Any, None], loop: Loop = uvloop.new_event_loop) -> None:
    """Run a test that awaits, within the patience of tests."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await test

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(bounded())


@asynccontextmanager
async def sandbox(*, containers: int = 4, idle: float = 3600, **limits: Any) -> AsyncIterator[Sandbox]:
    """Open a sandbox with some limits."""
    opened = Sandbox(SandboxOptions("test", str(PYTHON), ContainerLimits(**limits), containers, idle))
    await opened.start()
    try:
        yield opened
    finally:
        await opened.close()


async def execute(
    sandbox: Sandbox, code: str, key: ContainerKey = KEY, files: Mapping[str, bytes] | None = None
) -> CodeOutcome:
    """Run code in a container."""
    return await sandbox.run(code, key, files or {})


async def still_runs(sandbox: Sandbox) -> None:
    """Check that code runs, if need be in the second attempt: a short time limit may be too short on a busy machine."""
    for _ in range(20):
        outcome = await execute(sandbox, "'on'")
        if outcome.error is None:
            break
    assert outcome.logs == "'on'\n"


def child_pids(parent: int | None = None) -> list[int]:
    """Return the ids of the processes of containers that this process, or another one, has started and that run."""
    found = []
    for child in psutil.Process(parent).children():
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            if str(PROGRAM) in child.cmdline() and alive(child.pid):
                found.append(child.pid)
    return found


def child_pid(parent: int | None = None) -> int:
    """Return the id of the process of the only container."""
    (pid,) = child_pids(parent)
    return pid


async def begin_endless(sandbox: Sandbox) -> asyncio.Task[CodeOutcome]:
    """Begin to run code that does not end, in a container that has run code before; return when it computes."""
    process = psutil.Process(child_pid())
    before = process.cpu_times().user
    endless = asyncio.create_task(execute(sandbox, "while True: pass"))
    await until(lambda: process.cpu_times().user > before + 0.1, "the code computes")
    return endless


def alive(pid: int) -> bool:
    """Return whether a process runs (a zombie does not)."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def memory_status(pid: int, field: str) -> int:
    """Return a figure of `/proc/PID/status`, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
