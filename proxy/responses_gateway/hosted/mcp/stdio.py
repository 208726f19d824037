"""MCP servers that are programs: started in a process group of their own, and ended with it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from responses_gateway.ended_tasks import end_tasks, wait_at_most
from responses_gateway.hosted.mcp.messages import MessageReader
from responses_gateway.hosted.mcp.servers import StdioEndpoint

# Seconds for the program to end.
_INPUT_CLOSED_TIMEOUT = 2.0
_SIGTERM_TIMEOUT = 1.0
_SIGKILL_TIMEOUT = 5.0
# Of what the program writes to its standard error.
_LOGGED_LINES = 200
_LOGGED_LENGTH = 500

Messages = MemoryObjectReceiveStream[SessionMessage | Exception]
Requests = MemoryObjectSendStream[SessionMessage]


class ProgramObstacle(Exception):
    """A program cannot be started. The message is for the operator: it names the setting, and says what to do."""


@asynccontextmanager
async def stdio_transport(
    endpoint: StdioEndpoint, reader: MessageReader, log: Callable[[str], None]
) -> AsyncIterator[tuple[Messages, Requests]]:
    """Run the program of a server, and exchange messages with it, each a line, which `reader` reads. One that is too long
    ends the connection. `log` gets the first lines of its standard error. Raises `ProgramObstacle`."""
    try:
        transport, protocol = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Protocol(reader.limits.message_bytes),
            endpoint.command,
            *endpoint.args,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=dict(endpoint.env),
            cwd=endpoint.cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramObstacle(_obstacle(endpoint, error)) from error
    program = _Program(transport, protocol)
    to_session, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    requests, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(program.read(to_session, reader)),
        asyncio.create_task(program.write(from_session)),
        asyncio.create_task(program.read_errors(log)),
    ]
    try:
        yield messages, requests
    finally:
        with anyio.CancelScope(shield=True):
            await program.stop()
            await end_tasks(*tasks)
        for stream in (to_session, messages, requests, from_session):
            stream.close()


def _obstacle(endpoint: StdioEndpoint, error: OSError) -> str:
    """Say which setting of a server is wrong, and what to do. The error does not always name the file."""
    command = endpoint.command
    folder = Path(endpoint.cwd or "")
    if not folder.is_dir():
        return f"cwd: there is no folder {folder}. Create it, or correct the path."
    file = str(folder / command) if "/" in command else command
    if shutil.which(file, path=endpoint.env.get("PATH")):
        return f"command: {command} cannot be started: {error.strerror}."
    if "/" not in command:
        return f"command: there is no program {command} in the folders of PATH. Install it, or give its full path."
    if Path(file).exists():
        return f"command: {command} is not an executable file. Allow it to be executed (chmod +x), or correct the path."
    return f"command: there is no program {command}. Install it, or correct the path."


class _Protocol(SubprocessStreamProtocol):
    """Notices when the program has ended, though a child of it may hold its pipes."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(limit=most_bytes, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class _Program:
    """A running program, and its pipes."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _Protocol) -> None:
        self._transport = transport
        self._protocol = protocol
        self._input = cast(asyncio.StreamWriter, protocol.stdin)
        self._output = cast(asyncio.StreamReader, protocol.stdout)
        self._errors = cast(asyncio.StreamReader, protocol.stderr)

    async def read(self, to_session: MemoryObjectSendStream[SessionMessage | Exception], reader: MessageReader) -> None:
        """Pass the messages on until the program closes its output or writes too long a line. Lines that are no messages are
        skipped: some programs greet."""
        with to_session, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ValueError, OSError):
            while line := await self._output.readline():
                with suppress(ValueError):
                    message = jsonrpc_message_adapter.validate_json(await reader.read(line), by_name=False)
                    await to_session.send(SessionMessage(message))

    async def write(self, from_session: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write the messages of the session until it ends, or the program does not take them."""
        with from_session, suppress(OSError):
            async for item in from_session:
                line = item.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
                self._input.write(line.encode())
                await self._input.drain()

    async def read_errors(self, log: Callable[[str], None]) -> None:
        """Log the first lines of the standard error, and read on, so that the program does not wait for a reader."""
        lines = 0
        rest = b""
        while data := await self._errors.read(64 * 1024):
            if lines >= _LOGGED_LINES:
                continue
            *complete, rest = (rest + data).split(b"\n")
            rest = rest[:_LOGGED_LENGTH]
            for line in complete[: _LOGGED_LINES - lines]:
                log(line[:_LOGGED_LENGTH].decode(errors="replace").rstrip())
            lines += len(complete)

    async def stop(self) -> None:
        """Close the input, wait, then end the whole group."""
        self._input.close()
        if not await self._ended(_INPUT_CLOSED_TIMEOUT):
            self._signal(signal.SIGTERM)
            await self._ended(_SIGTERM_TIMEOUT)
        self._signal(signal.SIGKILL)  # also its children, which may have survived it
        await self._ended(_SIGKILL_TIMEOUT)
        self._transport.close()

    async def _ended(self, seconds: float) -> bool:
        await wait_at_most(self._protocol.exited, seconds)
        return self._protocol.exited.is_set()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), number)
