"""A worker is killed, or the program told to end, while clients ask all the time: what was acknowledged is there."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import psutil

from tests.chaos.faults import ask, at_end, simulators
from tests.server.gateway_process import Program, fresh_connections, program
from tests.server.running_gateway import QUESTION, RawClient, body_of, events_of, final_of, run, until
from tests.state.database_servers import postgres_running

TERMINAL = b"event: response.completed\n"


@dataclass
class Seen:
    """What clients were told."""

    stored: list[str] = field(default_factory=list)  # ids of responses that were said to be stored
    unsaved: list[str] = field(default_factory=list)  # completed, and said not to be stored
    failed: list[str] = field(default_factory=list)  # said to have failed
    refused: list[int] = field(default_factory=list)  # statuses of HTTP errors
    cut: int = 0  # connections that ended in the middle
    no_connection: int = 0


@asynccontextmanager
async def asking(running: Program, clients: int) -> AsyncIterator[Seen]:
    """Let so many clients ask for one stored response after the other while the block runs."""
    seen = Seen()
    done = asyncio.Event()

    async def client() -> None:
        async with fresh_connections() as session:
            while not done.is_set():
                try:
                    await one(session)
                except aiohttp.ClientConnectorError:
                    seen.no_connection += 1
                    await asyncio.sleep(0.02)
                except aiohttp.ClientError:
                    seen.cut += 1

    async def one(session: aiohttp.ClientSession) -> None:
        body = {**QUESTION, "input": "tokens: 6 tps: 60"}
        async with session.post(f"{running.url}/v1/responses", json=body) as answer:
            whole = await answer.read()
        if answer.status != 200:
            seen.refused.append(answer.status)
            return
        final = final_of(whole)
        kept = seen.stored if final["store"] else seen.unsaved
        (kept if final["status"] == "completed" else seen.failed).append(final["id"])

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
        try:
            yield seen
        finally:
            done.set()


async def all_there(running: Program, ids: list[str]) -> None:
    for name in ids:
        assert (await ask(running, "GET", f"/v1/responses/{name}")).status == 200


def test_a_worker_is_killed(tmp_path: Path) -> None:
    """Expect its streams to end with their connections, which no client takes for an end, and all others to go on."""

    async def test() -> None:
        store = ("--no-adapt", "--store", str(tmp_path / "x.sqlite3"), "--workers", "2")
        async with simulators() as (behind_us,), program("--backend", behind_us.url, *store) as running:
            streams = [await RawClient.connect(running) for _ in range(12)]
            for stream in streams:
                await stream.post(input="tokens: 60 tps: 40")
                await stream.read_until(b"output_text.delta")
            async with asking(running, 6) as seen:
                await until(lambda: len(seen.stored) > 20)
                victim = min(running.workers, key=_connections)  # whoever happened to get more of them goes on
                os.kill(victim, signal.SIGKILL)
                before = len(seen.stored)
                await until(lambda: len(running.workers) == 2 and victim not in running.workers, "a new one")
                await until(lambda: len(seen.stored) > before + 20, "it goes on")
            assert (seen.failed, seen.refused, seen.unsaved, seen.no_connection) == ([], [], [], 0)
            assert seen.cut <= 6
            whole = [body_of(await _rest(stream)) for stream in streams]
            ends = [TERMINAL in body for body in whole]
            assert any(ends)
            for body, ended in zip(whole, ends, strict=True):
                if ended:
                    seen.stored.append(final_of(body)["id"])
                else:
                    assert b"response.failed" not in body
            await all_there(running, seen.stored)
            await running.says("worker died")

    run(test())


def _connections(process: int, port: int | None = None) -> int:
    """Return how many connections a process has; with a port, those to a server there."""
    connections = psutil.Process(process).net_connections("tcp")
    return sum(port is None or (bool(each.raddr) and each.raddr.port == port) for each in connections)


async def _rest(stream: RawClient) -> bytes:
    """Read a connection until it ends, or the answer does."""
    try:
        while not stream.received.endswith(b"\r\n0\r\n\r\n") and await stream.read():
            pass
    except ConnectionError:
        pass
    stream.close()
    return stream.received


def test_what_the_killed_worker_ran_in_the_background_fails_and_is_told(tmp_path: Path) -> None:
    """Wait until the last sign of life is too old: 15 seconds by default, less here."""
    shorter = "import responses_gateway.server.generation.background.runner as runner; runner.SILENCE = 2.0"

    async def test() -> None:
        store = ("--no-adapt", "--store", str(tmp_path / "x.sqlite3"), "--workers", "2")
        async with simulators() as (behind_us,), program("--backend", behind_us.url, *store, first=shorter) as running:
            asked = []
            while len(asked) < 8 or not all(_connections(worker, behind_us.port) > 2 for worker in running.workers):
                asked.append((await ask(running, background=True, stream=False, input="tokens: 150 tps: 30")).json)
            os.kill(running.workers[0], signal.SIGKILL)
            statuses = set()
            for name in [response["id"] for response in asked]:
                last = await at_end(running, name)
                statuses.add(last["status"])
                events = events_of((await ask(running, "GET", f"/v1/responses/{name}?stream=true")).body)
                assert events[-1]["response"] == last
            assert statuses == {"completed", "failed"}
            await running.says(" lost ")

    run(test())


def test_the_program_is_told_to_end(tmp_path: Path) -> None:
    async def test() -> None:
        path = str(tmp_path / "x.sqlite3")
        store = ("--no-adapt", "--store", path, "--workers", "2", "--drain-timeout", "0.3")
        async with simulators() as (behind_us,):
            async with program("--backend", behind_us.url, *store) as running, asking(running, 8) as seen:
                await until(lambda: len(seen.stored) > 20)
                running.signal(signal.SIGTERM)
                assert await running.exit() == 0
            assert seen.cut == 0
            assert set(seen.refused) <= {503}
            async with program("--backend", behind_us.url, *store) as running:
                await all_there(running, seen.stored)

    run(test())


def test_the_database_is_killed_and_comes_back() -> None:
    """Expect answers to say that they are not stored while it is gone, and those that say they are to be there."""
    with postgres_running() as server:
        url = server.fresh_database()

        async def test() -> None:
            store = ("--no-adapt", "--store", url, "--workers", "2")
            async with simulators() as (behind_us,), program("--backend", behind_us.url, *store) as running:
                async with asking(running, 4) as seen:
                    await until(lambda: len(seen.stored) > 10)
                    await asyncio.to_thread(server.stop)
                    await until(lambda: len(seen.unsaved) > 10, "answers that are not stored")
                    await running.says("error   the store fails error=", times=2)
                    await asyncio.to_thread(server.start)
                    before = len(seen.stored)
                    await until(lambda: len(seen.stored) > before + 10, "they are stored again")
                assert (seen.failed, seen.refused, seen.cut, seen.no_connection) == ([], [], 0, 0)
                await all_there(running, seen.stored)
                await running.says("not stored")
                await running.says("store is back", times=2)
                assert "Traceback" not in running.said

        run(test())
