"""Small programs of ours that work on a stranger's data, each in a process that can be killed: a thread cannot.

Hostile data can keep a parser busy forever, or fill all memory, so what a process may use up is bounded from outside."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

if sys.platform == "linux":
    import resource

# CPU time of a program in seconds, and address space in bytes.
_CPU = 20
_MEMORY = 1024 * 1024 * 1024
_TRIED_WITHIN = 30  # seconds for a program that is tried: it loads its libraries
# What a Python process needs of the environment: nothing secret.
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")


class CannotStart(Exception):
    """A program cannot work here, whatever its data: the text says which library it lacks."""


def minimal_environment(*names: str) -> dict[str, str]:
    """Return the environment for a process: what Python needs, and the variables with these names."""
    return {name: os.environ[name] for name in (*_ENVIRONMENT, *names) if name in os.environ}


async def run_program(path: Path, data: bytes) -> Any:
    """Run a Python file, which imports nothing of ours, with data as its input, and return the JSON that it prints. Raise
    `OSError` if no process can be started, `CannotStart` if it lacks a library, `ValueError` if it was killed or failed.
    Cancelling ends it."""
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
    return _read_answer(answer)


def obstacle(path: Path, data: bytes) -> str:
    """Run a Python file once, with harmless data, and return why it cannot work: which library it lacks. Nothing else that goes
    wrong is told, because it need not go wrong again."""
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        command = [sys.executable, "-I", str(path)]
        tried = subprocess.run(
            command, input=data, capture_output=True, timeout=_TRIED_WITHIN, env=minimal_environment(), check=False
        )
        try:
            _read_answer(tried.stdout)
        except CannotStart as error:
            return str(error)
    return ""


def _read_answer(answer: bytes) -> Any:
    """Return the JSON that a program printed. Raise `CannotStart`, `ValueError`."""
    value = json.loads(answer)
    if isinstance(value, dict) and "cannot_start" in value:
        raise CannotStart(value["cannot_start"])
    return value


def _bound(pid: int) -> None:
    """Bound what a process may use up, where the system lets others do that. Who waits for it has a time limit anyway."""
    if sys.platform == "linux":
        with suppress(ProcessLookupError):  # it has ended
            resource.prlimit(pid, resource.RLIMIT_CPU, (_CPU, _CPU))
            resource.prlimit(pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            os.setpriority(os.PRIO_PROCESS, pid, 10)  # because streams come first
