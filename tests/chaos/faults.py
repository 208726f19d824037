"""What the tests break: simulators as processes of their own, connections to machines that vanish, disks that fill up."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from responses_gateway.backend.policies.affinity import preference
from tests.ports import free_port
from tests.server.gateway_process import ROOT, Program
from tests.server.running_gateway import QUESTION, Answer, RawClient, Served, body_of, final_of
from tests.waiting import PATIENCE

# For a gateway that is quick to give up and to try again.
IMPATIENT = ("--health-interval", "0.3", "--breaker-time", "0.3", "--connect-timeout", "2")
_SO_ATTACH_FILTER = 26


@dataclass(frozen=True)
class Place:
    """Where a server is."""

    url: str


class Simulator:
    """A simulated chat server that can be killed, halted, and started again on the same port."""

    def __init__(self, *flags: str) -> None:
        self.port = free_port()
        self.place = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.place}"
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start, and wait until it listens."""
        command = [sys.executable, "-m", "responses_gateway", "simulate", "--port", str(self.port), *self._flags]
        quiet = subprocess.DEVNULL
        self._process = await asyncio.to_thread(subprocess.Popen, command, cwd=ROOT, stdin=quiet, stdout=quiet, stderr=quiet)
        async with asyncio.timeout(PATIENCE):
            while not await self._listens():
                assert self._process.poll() is None, "the simulator does not start"
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """Kill it, as the kernel does when memory runs out; returns when it is gone."""
        if self._process is not None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
            self._process = None

    def stop(self) -> None:
        """Tell it to stop, as for a restart: it aborts its answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def halt(self) -> None:
        """Stop the process: it keeps its connections, is even given new ones by the kernel, and sends nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def connections(self) -> int:
        """How many connections there are to it, those among them that the kernel took for it while it was halted."""
        states = ("01",) if self._process is not None else ()  # established
        rows = (line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:])
        return sum(row[1].endswith(f":{self.port:04X}") and row[3] in states for row in rows)

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True


@asynccontextmanager
async def simulators(number: int = 1, *flags: str) -> AsyncIterator[list[Simulator]]:
    """Run so many simulators."""
    several = [Simulator(*flags) for _ in range(number)]
    async with AsyncExitStack() as stack:
        for one in several:
            stack.push_async_callback(one.kill)
        await asyncio.gather(*(one.start() for one in several))
        yield several


async def busy(several: list[Simulator]) -> Simulator:
    """Wait until one of them generates something, and return it."""
    async with aiohttp.ClientSession() as session:
        while True:
            for one in several:
                async with session.get(f"{one.url}/metrics") as answer:
                    lines = (await answer.text()).splitlines()
                if any(line.startswith("vllm:num_requests_running") and not line.endswith(" 0.0") for line in lines):
                    return one


def behind(*several: Simulator) -> tuple[str, ...]:
    """Flags of a gateway in front of them that keeps nothing and logs each response."""
    return (*(part for one in several for part in ("--backend", one.url)), "--no-adapt", "--store", "none")


def key_for(first: Simulator, *others: Simulator) -> str:
    """Return a cache key that sends a request to the first of them."""
    names = [(one.place, 1.0) for one in (first, *others)]
    return next(key for key in map(str, range(1000)) if preference(f"key:{key}", names)[0] == first.place)


async def ask(running: Program | Served | Place, method: str = "POST", path: str = "/v1/responses", **fields: Any) -> Answer:
    """Send a request on a connection of its own and return the answer; fields go into its body."""
    body = {**QUESTION, **fields} if method == "POST" else None
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.request(method, running.url + path, json=body) as answer,
    ):
        return Answer(answer.status, {name.lower(): value for name, value in answer.headers.items()}, await answer.read())


async def ended(client: RawClient) -> dict[str, Any]:
    """Return the response at the end of a client's stream, judged, and close its connection."""
    await client.read_until(b"[DONE]\n\n\r\n0\r\n\r\n")
    client.close()
    return final_of(body_of(client.received))


async def at_end(running: Program, response_id: str) -> dict[str, Any]:
    """Return a background response once it has ended."""
    while True:
        response: dict[str, Any] = (await ask(running, "GET", f"/v1/responses/{response_id}")).json
        if response["status"] not in ("queued", "in_progress"):
            return response
        await asyncio.sleep(0.1)


async def metrics(running: Program) -> str:
    return (await ask(running, "GET", "/metrics")).body.decode()


async def shows(running: Program, line: Callable[[str], bool], seconds: float = PATIENCE) -> None:
    """Wait until a line of the metrics is as wanted: workers tell what they counted once a second."""
    async with asyncio.timeout(seconds):
        while not any(map(line, (await metrics(running)).splitlines())):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def resident(running: Program) -> int:
    """Memory of a gateway and its workers, in bytes."""
    parent = psutil.Process(running.process.pid)
    return sum(one.memory_info().rss for one in (parent, *parent.children()))


def need_socket_filters() -> None:
    """Skip the test where a process may not filter the packets of its own sockets, as `vanish` does."""
    with socket.socket() as connection:
        try:
            vanish(connection)
        except OSError as error:
            pytest.skip(f"no socket filters here: {error.strerror}")


def vanish(connection: Any) -> None:
    """Make the machine at this end of a connection vanish: the kernel drops all that comes for it, confirms nothing
    and answers no probe, and nothing is said. `connection` is a socket."""
    program = struct.pack("HBBI", 0x06, 0, 0, 0)  # a filter of one instruction: keep nothing of any packet
    buffer = ctypes.create_string_buffer(program)
    connection.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(buffer)))


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """Mount a file system with so much room. The test is skipped where none may be mounted."""
    folder.mkdir()
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("mounting a file system takes root on Linux")
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no file system may be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Write a file until not a byte more fits; returns it."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    return ballast
