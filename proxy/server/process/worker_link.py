"""A worker's side of the link to its parent: what it is told, when it starts and when it is to end.

The link is a pair of sockets, with lines of text. The parent begins with a briefing (JSON); later it says `retire`, `stop` or
`hurry`, or `examine` to the one that is to examine the backends. The worker says `ready` once, and then every second that it
lives. Both pass notices of other workers on (`notices.py`). A worker whose parent is gone stops.

Parent and worker may be of different versions, since a rolling restart starts new workers under an old parent: what one of them
does not know, it passes over.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import msgspec

from proxy.server.access.counter_table import FILE, Table
from proxy.server.process.notices import Notice, line_of, notice_of
from proxy.server.process.sockets import Listeners
from proxy.settings import SUPERVISED_VARIABLE, Settings
from proxy.telemetry import logs, multiprocess

#: Seconds between two signs of life.
BEAT = 1.0
READY = b"ready\n"
ALIVE = b"alive\n"
EXAMINE = b"examine\n"


class Briefing(msgspec.Struct):
    """What a worker is told before anything else. File descriptors are those that it inherits."""

    place: str  # its own among the workers; the successor of a dead one takes the same
    clients: list[int]
    operators: list[int]
    metrics: str  # the folder in which the metrics of all come together
    settings: dict[str, Any]  # what the parent found out or made: before flags, environment and file
    notices: list[Notice] = []  # of other workers, before this one was there
    names_examiner: bool = False  # the parent says who examines the backends


class Orders:
    """How a process is told to end; each of these is set at most once."""

    def __init__(self) -> None:
        self.retire = asyncio.Event()  # take no new connections, and end when those that are there have
        self.stop = asyncio.Event()  # end within the limits of the settings
        self.hurry = asyncio.Event()  # end now
        self.signalled = asyncio.Event()  # the first of them

    def give(self, name: str) -> None:
        """`retire`, `stop` or `hurry`; anything else is of another version."""
        if name in ("retire", "stop", "hurry"):
            getattr(self, name).set()
            self.signalled.set()


class Link:
    """The link of this process to its parent."""

    def __init__(self, connection: socket.socket) -> None:
        """Wait for the briefing. Raises `ValueError` if this is no link."""
        self._connection = connection
        with connection.makefile("rb", buffering=0) as lines:  # an order behind it is not for us to read
            self.briefing = msgspec.json.decode(lines.readline(), type=Briefing)
        self.orphaned = False
        self._writer: asyncio.StreamWriter | None = None
        self._unsent: list[bytes] = []
        self._tasks: list[asyncio.Task[None]] = []
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to reload, no reason to die
        multiprocess.share(Path(self.briefing.metrics), self.briefing.place)

    def table(self) -> Table | None:
        """Where workers count together; None under a parent of an older version, where each counts for itself."""
        folder = Path(self.briefing.metrics)
        return Table(folder, int(self.briefing.place)) if (folder / FILE).exists() else None

    def post(self, notice: Notice) -> None:
        """Tell the other workers."""
        if self._writer is None:
            self._unsent.append(line_of(notice))
        elif not self._writer.is_closing():
            self._writer.write(line_of(notice))

    @classmethod
    def of_environment(cls, environ: MutableMapping[str, str]) -> Link:
        """The link that the environment names, once: what this process starts itself is no worker."""
        return cls(socket.socket(fileno=int(environ.pop(SUPERVISED_VARIABLE))))

    @property
    def settings(self) -> dict[str, Any]:
        """Settings from the parent: those that this version has."""
        return {name: value for name, value in self.briefing.settings.items() if name in Settings.model_fields}

    def listeners(self) -> Listeners:
        """The sockets that the parent has opened."""
        clients, operators = (
            [socket.socket(fileno=number) for number in numbers] for numbers in (self.briefing.clients, self.briefing.operators)
        )
        return Listeners(clients, operators)

    async def open(self, orders: Orders, hear: Callable[[Notice], None], examine: Callable[[], None]) -> None:
        """Take orders from now on, and say that requests are answered. `hear` gets what other workers tell; `examine` is called
        when this one is to examine the backends."""
        reader, writer = await asyncio.open_unix_connection(sock=self._connection)
        self._writer = writer
        writer.writelines([READY, *self._unsent])
        self._tasks = [asyncio.create_task(self._obey(reader, orders, hear, examine)), asyncio.create_task(self._live(writer))]

    async def close(self) -> None:
        """Say and hear no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.orphaned:  # nobody else will do it
            await asyncio.to_thread(multiprocess.remove_folder, Path(self.briefing.metrics))

    async def _obey(
        self, reader: asyncio.StreamReader, orders: Orders, hear: Callable[[Notice], None], examine: Callable[[], None]
    ) -> None:
        try:
            while line := await reader.readline():
                notice = notice_of(line)
                if notice is not None:
                    hear(notice)
                elif line == EXAMINE:
                    examine()
                else:
                    orders.give(line.decode("ascii", "replace").strip())
        except ConnectionError as error:
            logs.logger().debug("the link to the parent broke", extra=logs.fields(error=str(error)))
        self.orphaned = True
        logs.logger().warning("the parent is gone", extra=logs.fields(pid=os.getpid()))
        orders.give("stop")

    async def _live(self, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            await asyncio.sleep(BEAT)
            writer.write(ALIVE)
