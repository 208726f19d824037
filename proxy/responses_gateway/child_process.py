"""Small programs of ours that work on a stranger's data, each in a process that can be killed: a thread cannot.

Hostile data can keep a parser busy forever, or fill all memory, so what a process may use up is bounded from outside."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

if sys.platform == "linux":
    import resource

# CPU time of a program in seconds, and address space in bytes.
_CPU = 20
_MEMORY = 1024 * 1024 * 1024
# What a Python process needs of the environment: nothing secret.
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")


def minimal_environment(*names: str) -> dict[str, str]:
    """Return the environment for a process: what Python needs, and the variables with these names."""
    return {name: os.environ[name] for name in (*_ENVIRONMENT, *names) if name in os.environ}


async def run_program(path: Path, data: bytes) -> Any:
    """Run a Python file, which imports nothing of ours, with data as its input, and return the JSON that it prints. Raise
    `OSError` if it cannot be started, `ValueError` if it was killed or failed. Cancelling ends it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=minimal_environment(),
    )
    try:
        _bound(process.pid)
        answer, _ = await process.communicate(data)
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.shield(process.wait())
    return json.loads(answer)


def _bound(pid: int) -> None:
    """Bound what a process may use up, where the system lets others do that. Who waits for it has a time limit anyway."""
    if sys.platform == "linux":
        with suppress(ProcessLookupError):  # it has ended
            resource.prlimit(pid, resource.RLIMIT_CPU, (_CPU, _CPU))
            resource.prlimit(pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            os.setpriority(os.PRIO_PROCESS, pid, 10)  # because streams come first
