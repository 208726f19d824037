"""The sandbox of several workers: they share its containers, which are in a process of its own (`sandbox_process.py`)."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from responses_gateway.child_process import minimal_environment
from responses_gateway.hosted.code import messages
from responses_gateway.hosted.code.container import SandboxUnavailable
from responses_gateway.hosted.code.runner import CodeOutcome, ContainerKey
from responses_gateway.hosted.code.sandbox import NOT_AVAILABLE, SandboxOptions
from responses_gateway.hosted.interface import ToolFailure

# Seconds for the start of the sandbox, which unpacks its interpreter; and for its end.
_START = 120.0
_END = 20.0
# Seconds for an answer for which nothing has to be done.
_ANSWER = 10.0
_BACKLOG = 1024
_BROKEN = (OSError, asyncio.IncompleteReadError)
_LOST = "The sandbox ended while the code ran. Its variables and files are lost."

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_Answer = TypeVar("_Answer", messages.Joined, messages.ContainerExists, messages.Ran)


class WorkerSandbox:
    """Runs code in the containers that all workers share. Use `start` before the first run, and `close`."""

    def __init__(self, folder: Path, options: SandboxOptions) -> None:
        """`folder` is shared by the workers of this gateway, and can be opened by no other user."""
        self._path = folder / options.socket_name
        self._options = options
        self._joined: Streams | None = None
        self._joining = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None  # if this worker has started it

    async def start(self) -> None:
        """Join the other workers; the first one starts the process. Raise SandboxUnavailable."""
        async with self._joining:
            if self._is_joined():
                return
            self._leave()
            try:
                await self._join()
            except _BROKEN:  # the process that was found was about to end
                try:
                    await self._join()
                except _BROKEN as error:
                    raise SandboxUnavailable(f"the process that runs code for all workers did not start ({error})") from None

    async def close(self) -> None:
        """Leave the other workers. The last one waits for the end of all containers."""
        if self._joined is None:
            return
        reader, writer = self._joined
        last = False
        with suppress(*_BROKEN, TimeoutError):
            messages.send(writer, messages.Leave())
            async with asyncio.timeout(_END):
                last = msgspec.json.decode(await messages.receive(reader), type=messages.Left).last
        self._leave()
        if self._process is None:
            return
        if last:
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, _END)
        else:
            self._process.returncode = 0  # it serves the other workers, and is not waited for

    async def has(self, container: ContainerKey) -> bool:
        """Return whether the tenant has this container."""
        with suppress(*_BROKEN, TimeoutError, SandboxUnavailable):
            streams = await self._reach()
            async with asyncio.timeout(_ANSWER):
                return (await self._ask(streams, messages.HasContainer(*container), messages.ContainerExists)).exists
        return False

    async def run(self, code: str, container: ContainerKey, files: Mapping[str, bytes]) -> CodeOutcome:
        """Run code; see `CodeRunner`."""
        try:
            streams = await self._reach()
        except (*_BROKEN, SandboxUnavailable):
            raise ToolFailure(NOT_AVAILABLE) from None
        try:
            answer = await self._ask(
                streams, messages.RunCode(*container, code.encode("utf-8", "surrogatepass"), dict(files)), messages.Ran
            )
        except _BROKEN:
            return CodeOutcome("", error=_LOST)
        if answer.outcome is None:
            raise ToolFailure(answer.failure or NOT_AVAILABLE)
        return answer.outcome

    def _is_joined(self) -> bool:
        if self._joined is None:
            return False
        reader, _ = self._joined
        return not reader.at_eof() and reader.exception() is None

    def _leave(self) -> None:
        if self._joined is not None:
            self._joined[1].close()
            self._joined = None

    async def _join(self) -> None:
        """Join the process, which is started if there is none. Raise SandboxUnavailable, or what a connection raises."""
        await asyncio.to_thread(self._start_process)
        reader, writer = await self._connect()
        try:
            messages.send(writer, messages.Join())
            async with asyncio.timeout(_START):
                answer = msgspec.json.decode(await messages.receive(reader), type=messages.Joined)
            if answer.error is not None:
                raise SandboxUnavailable(answer.error)
        except BaseException:
            writer.close()
            raise
        self._joined = (reader, writer)

    def _start_process(self) -> None:
        """Start the process if nothing listens. One worker does so at a time."""
        command = [sys.executable, "-P", "-m", "responses_gateway.hosted.code.sandbox_process"]
        options = msgspec.json.encode(self._options).decode()
        if self._process is not None:
            self._process.poll()  # it has ended, and nobody else asks how
        lock = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
                connection.connect(str(self._path))
                return
            self._path.unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(str(self._path))
                listening.listen(_BACKLOG)
                self._process = subprocess.Popen(
                    [*command, str(listening.fileno()), options],
                    pass_fds=[listening.fileno()],
                    env={**minimal_environment("TMPDIR"), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
        finally:
            os.close(lock)

    async def _reach(self) -> Streams:
        """Connect to the process, which is started again if it was killed. Raise SandboxUnavailable, `OSError`."""
        await self.start()
        try:
            return await self._connect()
        except OSError:
            self._leave()
            await self.start()
            return await self._connect()

    async def _connect(self) -> Streams:
        return await asyncio.open_unix_connection(str(self._path))

    async def _ask(self, streams: Streams, question: messages.HasContainer | messages.RunCode, kind: type[_Answer]) -> _Answer:
        reader, writer = streams
        try:
            messages.send(writer, question)
            return msgspec.json.decode(await messages.receive(reader), type=kind)
        finally:
            writer.close()
