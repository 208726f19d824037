"""`responses-gateway serve` as a process of its own, with all that it says."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import psutil

from tests.server.running_gateway import QUESTION, final_of, until
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
SEVERAL = ("--workers", "2")
MAIN = "from responses_gateway.cli import main; raise SystemExit(main())"
# To be run first: the gateway takes asyncio's own loop, as where uvloop is not installed.
WITHOUT_UVLOOP = "import sys; sys.modules['uvloop'] = None"


@dataclass
class Program:
    """A running `serve`."""

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)

    @property
    def said(self) -> str:
        return "".join(self.lines)

    @property
    def url(self) -> str:
        return self._field("url")

    @property
    def operations(self) -> str:
        return self._field("operations")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def workers(self) -> list[int]:
        """The process ids of the workers that there are."""
        return sorted(child.pid for child in psutil.Process(self.process.pid).children() if _lives(child))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def says(self, text: str, times: int = 1, seconds: float = PATIENCE) -> None:
        """Wait until it has said something, so many times."""
        await until(lambda: self.said.count(text) >= times, f"{text!r} in:\n{self.said}", seconds)

    async def exit(self, seconds: float = PATIENCE) -> int:
        """Wait for its end; returns the exit code."""
        code = await asyncio.wait_for(self.process.wait(), seconds)
        await until(lambda: self.lines and self.lines[-1] == "", "the end of what it says", seconds)
        return code

    def _field(self, name: str) -> str:
        found = re.search(rf"listening .*\b{name}=(\S+)", self.said)
        assert found, self.said
        return found[1]


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@asynccontextmanager
async def program(*flags: str, starts: bool = True, first: str = "", **variables: str) -> AsyncIterator[Program]:
    """Run `serve` until the block ends. None of its processes is left behind.

    `starts`: wait until it listens. `first`: Python to be run before it. `variables` go into its environment.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RESPONSES_GATEWAY")}
    environment.update(variables)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", "-c", f"{first}\n{MAIN}",
        "serve", "--port", "0", *flags,
        cwd=ROOT, env=environment, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    running = Program(process)
    reading = asyncio.create_task(_read(running))
    try:
        if starts:
            await until(lambda: " listening " in running.said or "" in running.lines, "listening")
            assert " listening " in running.said, running.said
        yield running
    finally:
        if process.returncode is None:
            children: list[psutil.Process] = []
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                children = psutil.Process(process.pid).children(recursive=True)
                process.kill()
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        await process.wait()
        await reading


async def _read(running: Program) -> None:
    assert running.process.stderr is not None
    while line := (await running.process.stderr.readline()).decode():
        running.lines.append(line)
    running.lines.append("")


def fresh_connections() -> aiohttp.ClientSession:
    """Return a session that opens a connection for each request."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))


async def status_of(running: Program, session: aiohttp.ClientSession, **fields: object) -> str:
    """Ask for a response: its status, or `HTTP 503` and the like."""
    body = {**QUESTION, "input": "scenario: plain tps: 2000", **fields}
    async with session.post(f"{running.url}/v1/responses", json=body) as answer:
        whole = await answer.read()
        return str(final_of(whole)["status"]) if answer.status == 200 else f"HTTP {answer.status}"


async def statuses_of_some(running: Program, number: int, **fields: object) -> set[str]:
    """Send so many requests at once, each on a connection of its own, and return the statuses seen."""
    async with fresh_connections() as session:
        return set(await asyncio.gather(*(status_of(running, session, **fields) for _ in range(number))))


@asynccontextmanager
async def asking_all_the_time(running: Program, clients: int, keep_alive: bool = False) -> AsyncIterator[list[str]]:
    """Let so many clients ask for one response after the other while the block runs; yields what they have seen so far."""
    seen: list[str] = []
    done = asyncio.Event()

    async def ask() -> None:
        async with aiohttp.ClientSession() if keep_alive else fresh_connections() as session:
            while not done.is_set():
                try:
                    seen.append(await status_of(running, session))
                except aiohttp.ClientConnectorError:
                    seen.append("refused")
                    await asyncio.sleep(0.01)
                except aiohttp.ClientError as error:
                    seen.append(repr(error))

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(ask())
        yield seen
        done.set()
