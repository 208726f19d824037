"""The link between a worker and its parent, and both ends of it.

The link is a pair of sockets, with lines of text. The parent begins with the worker's configuration (JSON); later it sends
`retire`, `stop` or `stop_now`. The worker sends `ready` once, `alive` every second, and `left N` when it stops: the responses
that it waits for. Both also send the lines of `backend_sync.py`. A worker whose parent has ended stops."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from responses_gateway.ended_tasks import end_tasks, keep_going
from responses_gateway.server.access.counter_table import Table
from responses_gateway.server.process.signals import StopSignals
from responses_gateway.server.process.sockets import Listeners
from responses_gateway.settings import SUPERVISED_VARIABLE
from responses_gateway.telemetry import logs, multiprocess

# Seconds between two lines `alive`.
_ALIVE_INTERVAL = 1.0
READY = b"ready\n"
ALIVE = b"alive\n"
_LEFT = b"left "
_LONGEST_LINE = 64 * 1024 * 1024  # longest line in bytes: the state of the backends is one line


class WorkerConfig(msgspec.Struct):
    """What a worker receives first. File descriptors are those that it inherits."""

    place: str  # its number among the workers; the successor of a dead one gets the same
    clients: list[int]
    operators: list[int]
    metrics: str  # the folder with the metrics of all workers
    settings: dict[str, Any]  # from the parent: they override flags, environment and file
    state: str  # the first `BackendState`


class WorkerLink:
    """The link of this process to its parent."""

    def __init__(self, connection: socket.socket) -> None:
        """Wait for the configuration. Raises `ValueError` if this is no link."""
        self._connection = connection
        with connection.makefile("rb", buffering=0) as lines:  # without a buffer, which would swallow the next lines
            self.config = msgspec.json.decode(lines.readline(), type=WorkerConfig)
        self._orphaned = False
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the parent reads the settings again for all
        multiprocess.share(Path(self.config.metrics), self.config.place)

    @classmethod
    def of_environment(cls, environ: MutableMapping[str, str]) -> WorkerLink:
        """Return the link that the environment names, and remove it there, so that child processes do not inherit it."""
        return cls(socket.socket(fileno=int(environ.pop(SUPERVISED_VARIABLE))))

    @property
    def folder(self) -> Path:
        """The folder that all workers share."""
        return Path(self.config.metrics)

    def table(self) -> Table:
        """Return the counters that all workers share."""
        return Table(self.folder, int(self.config.place))

    def listeners(self) -> Listeners:
        """Return the sockets that the parent has opened."""
        clients = [socket.socket(fileno=number) for number in self.config.clients]
        operators = [socket.socket(fileno=number) for number in self.config.operators]
        return Listeners(clients, operators)

    async def open(
        self, stop_signals: StopSignals, receive: Callable[[bytes], None], on_defect: Callable[[Exception], None]
    ) -> None:
        """Read the lines of the parent; `receive` gets all of them but the orders to end, and `on_defect` what it raises."""
        reader, self._writer = await asyncio.open_unix_connection(sock=self._connection, limit=_LONGEST_LINE)
        reading = keep_going(partial(self._read, reader, stop_signals, receive), on_defect)
        self._tasks = [asyncio.create_task(reading), asyncio.create_task(self._stay_alive())]

    def send(self, line: bytes) -> None:
        """Write a line to the parent, unless it has closed the link."""
        assert self._writer is not None
        if not self._writer.is_closing():
            self._writer.write(line)

    def send_left(self, responses: int) -> None:
        """Tell the parent how many responses this worker waits for."""
        self.send(_LEFT + b"%d\n" % responses)

    async def close(self) -> None:
        """Stop reading and writing."""
        await end_tasks(*self._tasks)
        if self._orphaned:  # the parent would have done it
            await asyncio.to_thread(shutil.rmtree, self.config.metrics, ignore_errors=True)

    async def _read(self, reader: asyncio.StreamReader, stop_signals: StopSignals, receive: Callable[[bytes], None]) -> None:
        try:
            while line := await reader.readline():
                if not stop_signals.give(line.decode("utf-8", "replace").strip()):
                    receive(line)
        except ConnectionError as error:
            logs.logger().debug("the link to the parent broke", extra=logs.fields(error=str(error)))
        self._orphaned = True
        logs.logger().warning("the parent has ended", extra=logs.fields(pid=os.getpid()))
        stop_signals.give("stop")

    async def _stay_alive(self) -> None:
        while True:
            await asyncio.sleep(_ALIVE_INTERVAL)
            self.send(ALIVE)


@dataclass(eq=False, slots=True)
class Worker:
    """A worker as its parent sees it. `start` returns one that waits for its `WorkerConfig`; `watch` reads until it ends."""

    place: str
    generation: int  # workers of the same one have the same settings
    process: asyncio.subprocess.Process
    _reader: asyncio.StreamReader
    _link: asyncio.StreamWriter
    ready: asyncio.Future[bool]  # False if it ended before
    left: asyncio.Future[int]  # the responses that it waits for, once it stops; 0 if it has ended
    received_at: float  # on the loop's clock, like the other times
    ready_at: float | None = None
    leaving_since: float | None = None  # it was sent an order to end
    reports: int = 0  # that the parent has read, of changes of the backends

    @classmethod
    async def start(cls, command: Sequence[str], listeners: Listeners, folder: Path, place: str, generation: int) -> Worker:
        """Start the command with the listening sockets, the folder of all workers and a link. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        with theirs:
            numbers = [listener.fileno() for listener in (*listeners.clients, *listeners.operators)]
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, **multiprocess.environment(folder), SUPERVISED_VARIABLE: str(theirs.fileno())},
                pass_fds=[theirs.fileno(), *numbers],
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the parent
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        loop = asyncio.get_running_loop()
        return cls(place, generation, process, reader, writer, loop.create_future(), loop.create_future(), loop.time())

    @property
    def served_for(self) -> float:
        """Seconds since it was ready; 0 if it never was."""
        return 0.0 if self.ready_at is None else self._clock() - self.ready_at

    @property
    def silence(self) -> float:
        """Seconds since it last sent a line."""
        return self._clock() - self.received_at

    @property
    def serves(self) -> bool:
        """Whether it is ready, and was not sent an order to end."""
        return self.ready_at is not None and self.leaving_since is None

    async def watch(self, receive: Callable[[Worker, bytes], None]) -> int:
        """Read its lines until it ends, and pass on all but `alive` and `left`. Return its exit code, negative for a signal."""
        try:
            while line := await self._reader.readline():
                self.received_at = self._clock()
                if line == READY and not self.ready.done():
                    self.ready_at = self.received_at
                    self.ready.set_result(True)
                if line.startswith(_LEFT):
                    self._set_left(line.removeprefix(_LEFT).strip())
                elif line != ALIVE:
                    receive(self, line)
        except (ConnectionError, ValueError):  # a line without an end is a defect of that process: no more is read
            self._link.close()
        code = await self.process.wait()
        if not self.ready.done():
            self.ready.set_result(False)
        self._set_left(b"0")
        self._link.close()
        return code

    def send_order(self, order: str) -> None:
        """Send it the order `retire`, `stop` or `stop_now`."""
        if self.leaving_since is None:
            self.leaving_since = self._clock()
            if self.ready_at is None:
                self.signal(signal.SIGTERM)  # it does not read the link yet
        self.send(f"{order}\n".encode())

    def send(self, line: bytes) -> None:
        """Write a line to it, unless it has closed the link."""
        if not self._link.is_closing():
            self._link.write(line)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def _set_left(self, number: bytes) -> None:
        if number.isdigit() and not self.left.done():
            self.left.set_result(int(number))

    def _clock(self) -> float:
        return asyncio.get_running_loop().time()


def own_command() -> list[str]:
    """Return the command line of this process. Run again, it starts the version that is installed by then."""
    return [sys.executable, *sys.orig_argv[1:]]
