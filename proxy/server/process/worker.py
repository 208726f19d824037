"""A worker as its parent sees it: a process, and the link to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence

import msgspec

from proxy.server.process.sockets import Listeners
from proxy.server.process.worker_link import ALIVE, READY, WorkerConfig
from proxy.settings import SUPERVISED_VARIABLE


class Worker:
    """A process that serves. `start` gives one, which waits for `configure`; `watch` follows it to its end."""

    def __init__(
        self,
        place: str,
        generation: int,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        link: asyncio.StreamWriter,
    ) -> None:
        self.place = place
        self.generation = generation  # workers of the same one have the same settings
        self.process = process
        self.ready: asyncio.Future[bool] = asyncio.get_running_loop().create_future()  # False if it ended before
        self.ready_at: float | None = None  # on the loop's clock, like the other times
        self.heard_at = self._clock()
        self.leaving_since: float | None = None  # it was told to end
        self.reports = 0  # that the parent has read, of changes of the backends
        self._reader = reader
        self._link = link

    @classmethod
    async def start(cls, command: Sequence[str], listeners: Listeners, place: str, generation: int) -> Worker:
        """Start the command with the listening sockets and a link. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        with theirs:
            numbers = [listener.fileno() for listener in (*listeners.clients, *listeners.operators)]
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, SUPERVISED_VARIABLE: str(theirs.fileno())},
                pass_fds=[theirs.fileno(), *numbers],
                stdin=asyncio.subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is for the parent
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        return cls(place, generation, process, reader, writer)

    def configure(self, config: WorkerConfig) -> None:
        """Tell it all that it needs to begin."""
        self.send(msgspec.json.encode(config) + b"\n")

    @property
    def served_for(self) -> float:
        """Seconds since it was ready; 0 if it never was."""
        return 0.0 if self.ready_at is None else self._clock() - self.ready_at

    @property
    def silence(self) -> float:
        """Seconds since it last sent a line."""
        return self._clock() - self.heard_at

    @property
    def serves(self) -> bool:
        """Whether it is ready, and was not told to end."""
        return self.ready_at is not None and self.leaving_since is None

    async def watch(self, hear: Callable[[Worker, bytes], None]) -> int:
        """Read its lines until it ends, and pass on all but `alive`. Returns its exit code, negative for a signal."""
        try:
            while line := await self._reader.readline():
                self.heard_at = self._clock()
                if line == READY and not self.ready.done():
                    self.ready_at = self.heard_at
                    self.ready.set_result(True)
                if line != ALIVE:
                    hear(self, line)
        except (ConnectionError, ValueError):  # a line without an end is a defect of that process: no more is read
            self._link.close()
        code = await self.process.wait()
        if not self.ready.done():
            self.ready.set_result(False)
        self._link.close()
        return code

    def tell(self, order: str) -> None:
        """Tell it to `retire`, `stop` or `hurry`."""
        if self.leaving_since is None:
            self.leaving_since = self._clock()
            if self.ready_at is None:
                self.signal(signal.SIGTERM)  # it does not read the link yet
        self.send(f"{order}\n".encode())

    def send(self, line: bytes) -> None:
        """Write a line to it, if it still reads."""
        if not self._link.is_closing():
            self._link.write(line)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it is there."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def _clock(self) -> float:
        return asyncio.get_running_loop().time()


def own_command() -> list[str]:
    """Return the command line of this process, to be run again: what is installed by then runs, be it another version."""
    return [sys.executable, *sys.orig_argv[1:]]
