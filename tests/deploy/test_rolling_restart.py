"""Two gateways behind nginx are restarted one after the other, under load: no client may notice."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from responses_gateway.settings import Settings
from responses_gateway.simulator import SimulatorOptions, create_app, serving
from tests.deploy.checking_programs import ROOT, tool
from tests.deploy.nginx_process import Proxy, nginx
from tests.ports import free_port
from tests.server.running_gateway import QUESTION, final_of, run, until
from tests.waiting import PATIENCE

# A stream lasts about half a second: longer than it takes to ask the next, shorter than the drain.
PACE = SimulatorOptions(tokens_per_second=100)
BODY: dict[str, Any] = {**QUESTION, "input": "scenario: long tokens: 50", "store": False}
CLIENTS = 8


class Replica:
    """A gateway as a process of its own."""

    def __init__(self, backend: str) -> None:
        self.port = free_port()
        self._backend = backend
        self._process: asyncio.subprocess.Process

    async def start(self) -> None:
        flags = ["--backend", self._backend, "--port", str(self.port), "--store", "none", "--log-level", "error"]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "responses_gateway", "serve", *flags, cwd=ROOT
        )
        async with asyncio.timeout(PATIENCE):
            while not await self._ready():
                assert self._process.returncode is None, "the replica does not start"
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            assert await asyncio.wait_for(self._process.wait(), PATIENCE) == 0
        finally:
            if self._process.returncode is None:
                self._process.kill()

    async def _ready(self) -> bool:
        """Tell whether it answers: by then it stops in good order when it is told to. An open port alone says neither."""
        try:
            async with aiohttp.request("GET", f"http://127.0.0.1:{self.port}/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False


@asynccontextmanager
async def replicas(number: int, backend: str) -> AsyncIterator[list[Replica]]:
    running = [Replica(backend) for _ in range(number)]
    try:
        await asyncio.gather(*(replica.start() for replica in running))
        yield running
    finally:
        await asyncio.gather(*(replica.stop() for replica in running))


async def keep_asking(front: Proxy, stop: asyncio.Event, ended: list[str]) -> None:
    async with aiohttp.ClientSession() as session:
        while not stop.is_set():
            async with session.post(f"{front.url}/v1/responses", json=BODY) as answer:
                body = await answer.read()
                ended.append(final_of(body)["status"] if answer.status == 200 else f"HTTP {answer.status} {body!r}")


async def answers(ended: list[str], more: int) -> None:
    wanted = len(ended) + more
    await until(lambda: len(ended) >= wanted, f"{more} more answers")


@pytest.mark.skipif("drain_delay" not in Settings.model_fields, reason="the port closes at once: what is on its way is lost")
def test_restarting_one_after_the_other_is_not_noticed(tmp_path: Path) -> None:
    tool("nginx", "install-servers")

    async def test() -> None:
        ended: list[str] = []
        stop = asyncio.Event()
        async with (
            serving(create_app(PACE)) as backend,
            replicas(2, backend) as running,
            nginx(tmp_path, *(replica.port for replica in running)) as front,
        ):
            clients = [asyncio.create_task(keep_asking(front, stop, ended)) for _ in range(CLIENTS)]
            for replica in running:
                await answers(ended, CLIENTS)
                await replica.stop()
                await replica.start()
            await answers(ended, CLIENTS)
            stop.set()
            await asyncio.gather(*clients)
        assert set(ended) == {"completed"}
        assert len(ended) > 3 * CLIENTS

    run(test())
