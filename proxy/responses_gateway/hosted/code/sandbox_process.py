"""The process that runs code for all workers of one gateway: it has the sandbox, and so each container, whoever asks.

`worker_sandbox.py` starts it, with a listening socket and the options as arguments. It belongs to no worker and ends with the
last one; if workers were killed it waits for their successors, which find the containers again."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from responses_gateway import own_folder
from responses_gateway.ended_tasks import KeptTasks
from responses_gateway.hosted.code import messages
from responses_gateway.hosted.code.container import SandboxUnavailable
from responses_gateway.hosted.code.runner import ContainerKey
from responses_gateway.hosted.code.sandbox import Sandbox, SandboxOptions
from responses_gateway.hosted.interface import ToolFailure

# Seconds to wait for a worker where there is none: the first, or the successor of one that was killed.
_WAIT_FOR_WORKERS = 300.0
_CHECK_INTERVAL = 1.0  # seconds between two checks whether there is anybody to wait for
# Seconds for the last answers on their way.
_LAST_ANSWERS = 5.0
_BROKEN = (ConnectionError, asyncio.IncompleteReadError, msgspec.MsgspecError)


class SandboxService:
    """Answers workers. `ended` is set when there are none."""

    def __init__(self, sandbox: Sandbox, error: str | None) -> None:
        """`error`: why the sandbox could not start."""
        self._sandbox = sandbox
        self._error = error
        self._workers = 0
        self._handlers: KeptTasks[None] = KeptTasks()
        self._closed = asyncio.Event()
        self.ended = asyncio.Event()

    async def close(self) -> None:
        """End all containers, then let the last worker go."""
        await self._sandbox.close()
        self._closed.set()
        if self._handlers:
            await asyncio.wait(self._handlers, timeout=_LAST_ANSWERS)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a connection."""
        self._handlers.begin(self._handle(reader, writer))

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(*_BROKEN):
                await self._answer(msgspec.json.decode(await messages.receive(reader), type=messages.Question), reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, question: messages.Question, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(question, messages.Join):
            await self._stay(reader, writer)
        elif isinstance(question, messages.HasContainer):
            messages.send(
                writer, messages.ContainerExists(await self._sandbox.has(ContainerKey(question.tenant, question.container_id)))
            )
        elif isinstance(question, messages.RunCode):
            await self._run(question, reader, writer)

    async def _stay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._workers += 1
        leaves = False
        try:
            messages.send(writer, messages.Joined(self._error))
            leaves = isinstance(msgspec.json.decode(await messages.receive(reader), type=messages.Question), messages.Leave)
        finally:
            self._workers -= 1
            if not self._workers and (leaves or self._error is not None):
                self.ended.set()
        last = self.ended.is_set()
        if last:
            await self._closed.wait()
        messages.send(writer, messages.Left(last))

    async def _run(self, question: messages.RunCode, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Run code, unless the worker closes the connection before."""
        key = ContainerKey(question.tenant, question.container_id)
        running = asyncio.create_task(self._sandbox.run(question.code.decode("utf-8", "surrogatepass"), key, question.files))
        left = asyncio.create_task(reader.read(1))
        await asyncio.wait([running, left], return_when=asyncio.FIRST_COMPLETED)
        left.cancel()
        if not running.done():
            running.cancel()
            await asyncio.wait([running])
            return
        try:
            messages.send(writer, messages.Ran(running.result()))
        except ToolFailure as failure:
            messages.send(writer, messages.Ran(failure=str(failure)))

    async def wait(self, folder: Path) -> None:
        """Wait until no worker is left, and none will come. `folder` is that of the gateway."""
        clock = asyncio.get_running_loop().time
        seen_at = clock()
        while not self.ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_INTERVAL):
                    await self.ended.wait()
            if self._workers:
                seen_at = clock()
            elif clock() - seen_at > _WAIT_FOR_WORKERS or not _is_locked(folder):
                self.ended.set()


def _is_locked(folder: Path) -> bool:
    """Tell whether the gateway still runs: the parent of its workers keeps a lock on their folder."""
    try:
        return own_folder.is_locked(folder)
    except OSError:
        return False


async def serve(listening: socket.socket, options: SandboxOptions) -> None:
    """Answer workers until there are none. The socket is in the folder of the gateway."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: None)  # workers get them too, and may still need it for what they end
    sandbox = Sandbox(options)
    error = None
    try:
        await sandbox.start()
    except SandboxUnavailable as unavailable:
        error = str(unavailable)
    service = SandboxService(sandbox, error)
    server = await asyncio.start_unix_server(service.accept, sock=listening)
    await service.wait(Path(listening.getsockname()).parent)
    server.close()  # a worker that comes now starts another one
    await service.close()


if __name__ == "__main__":
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1])), msgspec.json.decode(sys.argv[2], type=SandboxOptions)))
