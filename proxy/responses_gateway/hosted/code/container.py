"""One container of the sandbox: a child process with a Python in WebAssembly, and the JSON lines to it (see `child.py`)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("child.py")

# Of the text of one run, because the model reads it all; of more, beginning and end are kept.
OUTPUT_BYTES = 64 * 1024
# Seconds for the start of a child, and beyond the time limit of the code: only a process that hangs needs them.
_START_TIMEOUT = 60.0
_MARGIN = 15.0
_OTHER_PYTHON = "set code_interpreter to sandbox:PATH"


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """Limits of a container: `timeout` in seconds for a run, `memory_bytes` for variables and files together, `output_bytes`
    of text and `image_bytes` of images for a run."""

    timeout: float = 30.0
    memory_bytes: int = 256 * 1024**2
    output_bytes: int = OUTPUT_BYTES
    image_bytes: int = 4 * 1024**2

    def line_bytes(self) -> int:
        """Return the size that an answer of the child cannot exceed: escaped text, images in base64, names of files."""
        return 8 * self.output_bytes + 2 * self.image_bytes + 1024**2


class ContainerDied(Exception):
    """The process of a container ended or hung: the code broke the interpreter, or used up what it may use."""


class SandboxUnavailable(ValueError):
    """The sandbox cannot start with these settings. The message tells the operator why, and what to do."""


class Container:
    """A container: its process, which is started by the first run and again after it died. One run at a time."""

    def __init__(self, python: str, folder: Path, limits: ContainerLimits) -> None:
        self._python = python
        self._folder = folder
        self._limits = limits
        self._process: Process | None = None
        self._killed = False
        self._closed = False

    @property
    def running(self) -> bool:
        """Whether there is a process, with variables and files of earlier runs."""
        return self._process is not None and not self._killed and self._process.returncode is None

    async def start(self, *arguments: str) -> None:
        """Start the process. Raise SandboxUnavailable."""
        if self._closed:
            raise SandboxUnavailable("the sandbox is closed")
        await self.end()
        limits = {name: getattr(self._limits, name) for name in ContainerLimits.__slots__}
        # Nothing of the gateway's environment. Address space is reserved for one memory instead of a thousand.
        environment = {"TMPDIR": str(self._folder), "ERYX_ALLOCATOR": "on-demand", "RUST_BACKTRACE": "0"}
        try:
            self._process = await asyncio.create_subprocess_exec(
                self._python, "-I", "-B", str(PROGRAM), json.dumps(limits), *arguments,
                stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment, cwd=self._folder, start_new_session=True,
                limit=self._limits.line_bytes(),
            )  # fmt: skip
        except OSError as error:
            message = f"{self._python} cannot be run ({error.strerror}); {_OTHER_PYTHON}"
            raise SandboxUnavailable(message) from None
        self._killed = False
        try:
            greeting = await self._read(_START_TIMEOUT)
        except ContainerDied:
            raise SandboxUnavailable(
                f"the sandbox did not start with {self._python}: it needs Python 3.12 or later with pyeryx; {_OTHER_PYTHON}"
            ) from None
        if "error" in greeting:
            self.kill()
            raise SandboxUnavailable(self._explain(greeting))

    async def run(self, code: str, files: Mapping[str, bytes]) -> dict[str, Any]:
        """Run code and return the answer of the child, whose members may be anything. Raise ContainerDied. Whatever else ends
        this ends the process."""
        assert self._process is not None
        assert self._process.stdin is not None
        encoded = {name: base64.b64encode(content).decode() for name, content in files.items()}
        finished = False
        try:
            self._process.stdin.write(json.dumps({"code": code, "files": encoded}).encode() + b"\n")
            answer = await self._read(self._limits.timeout + _MARGIN)
            finished = True
        finally:
            if not finished:
                self.kill()
        return answer

    def kill(self) -> None:
        """End the process, and all that it may have started, at once."""
        if self._process is not None and self._process.returncode is None:
            self._killed = True
            # Not `Process.kill`: it may take the exit status that the event loop waits for.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """End the process, and wait until it has ended."""
        self.kill()
        if self._process is not None:
            await self._process.wait()

    async def close(self) -> None:
        """End the process for good."""
        self._closed = True
        await self.end()

    def _explain(self, greeting: Mapping[str, Any]) -> str:
        if greeting["error"] == "missing":
            return (
                f"pyeryx is not installed for {self._python} (Python {greeting.get('version')}): install "
                f"the extra `sandbox` with Python 3.12 or later, or {_OTHER_PYTHON}"
            )
        return (
            "the sandbox cannot load its compiled code: something forbids executable memory (with systemd, set "
            "MemoryDenyWriteExecute=no), or the memory of the gateway is limited"
        )

    async def _read(self, seconds: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                line = await self._process.stdout.readline()
            answer = json.loads(line)
        except (TimeoutError, ValueError, RecursionError):  # ValueError also for a line that is too long, or not complete
            answer = None
        if not isinstance(answer, dict):
            self.kill()
            raise ContainerDied
        return answer
