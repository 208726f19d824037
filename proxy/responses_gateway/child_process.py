"""Small programs of ours that work on a stranger's data, each in a process that can be killed: a thread cannot."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

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
        answer, _ = await process.communicate(data)
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.shield(process.wait())
    return json.loads(answer)
