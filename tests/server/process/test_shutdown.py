"""The program itself, stopped by a signal while it answers."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.server.gateway_process import MAIN, WITHOUT_UVLOOP
from tests.server.running_gateway import RawClient, body_of, final_of, run, until
from tests.server.scripted_backend import HEAD, PHASES, Connection, backend, chat_stream
from tests.state.database_servers import redis_running
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[3]


@dataclass
class Program:
    """A running `serve`; has what `RawClient` wants to know."""

    process: asyncio.subprocess.Process
    port: int

    async def exit(self, within: float = PATIENCE) -> tuple[int, str]:
        """Exit code, and what it still had to say."""
        _, said = await asyncio.wait_for(self.process.communicate(), within)
        assert self.process.returncode is not None
        return self.process.returncode, said.decode()


@asynccontextmanager
async def program(backend_url: str | None, *flags: str, first: str = "") -> AsyncIterator[Program]:
    """Run `serve` in front of a backend until the block ends. `first`: Python to be run before it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RESPONSES_GATEWAY")}
    backend = [] if backend_url is None else ["--backend", backend_url]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-W", "ignore::ResourceWarning",
        "-c", f"{first}\n{MAIN}", "serve", *backend, "--port", "0", "--store", "memory", "--no-adapt", *flags,
        cwd=ROOT, env=environment, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        line = (await asyncio.wait_for(process.stderr.readline(), PATIENCE)).decode()
        found = re.search(r"listening url=http://127\.0\.0\.1:(\d+)", line)
        assert found, line
        yield Program(process, int(found[1]))
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


class Stream:
    """A backend whose stream goes on when it is let."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def __call__(self, connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(*chat_stream()[: PHASES["text"]])
        await until(lambda: self.go_on.is_set() or connection.lost.done())
        connection.send(*chat_stream()[PHASES["text"] :])
        connection.end()


async def streaming(running: Program) -> RawClient:
    """A client whose stream has reached the text."""
    client = await RawClient.connect(running)
    await client.post()
    await client.read_until(b"from here.")
    return client


async def ended(client: RawClient) -> str:
    """How its stream ended."""
    await client.read_all()
    client.close()
    return str(final_of(body_of(client.received))["status"])


@pytest.mark.parametrize("first", ["", WITHOUT_UVLOOP], ids=["uvloop", "asyncio"])
def test_streams_may_finish(first: str) -> None:
    async def test() -> None:
        stream = Stream()
        async with backend(stream) as behind, program(behind.url, first=first) as running:
            client, other = await streaming(running), await RawClient.connect(running)
            probe = await RawClient.connect(running)
            for connected in (other, probe):
                await connected.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                await connected.read_until(b'"ok"')
            running.process.send_signal(signal.SIGTERM)
            await listens_no_more(running)
            await probe.send(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n")
            await probe.read_all()
            assert b"HTTP/1.1 503" in probe.received
            assert b"draining" in probe.received
            probe.close()
            await other.post()
            await other.read_all()
            assert b"shutting down" in other.received
            stream.go_on.set()
            assert await ended(client) == "completed"
            other.close()
            code, said = await running.exit()
            assert code == 0
            assert "draining in_flight=1" in said
            assert " stopped" in said
            assert "Traceback" not in said

    run(test())


#: Stop this process once, where it waits for the last handshakes: the event loop sees nothing of what comes meanwhile.
STOPPED_BEFORE_CLOSING = """
import asyncio, os, signal
from responses_gateway.server.process import serve
sleep = next_sleep = asyncio.sleep
async def stop_once(seconds):
    if seconds != serve._LAST_HANDSHAKES:
        return await sleep(seconds)
    asyncio.sleep = next_sleep
    os.kill(os.getpid(), signal.SIGSTOP)
asyncio.sleep = stop_once
"""


#: Then hold it up once more while it takes the connection, after so many rounds of the event loop.
HELD_UP_AFTER_ROUNDS = """
import time
async def sleep_held_up(seconds):
    asyncio.sleep = sleep
    hold_up(ROUNDS)
    await sleep(seconds)
def hold_up(rounds):
    call = (hold_up, rounds - 1) if rounds else (time.sleep, 0.1)
    asyncio.get_running_loop().call_soon(*call)
next_sleep = sleep_held_up
"""


@pytest.mark.parametrize("rounds", [None, 0, 1, 2])
@pytest.mark.parametrize("first", ["", WITHOUT_UVLOOP], ids=["uvloop", "asyncio"])
def test_a_connection_that_waits_to_be_accepted_is_answered(first: str, rounds: int | None) -> None:
    """As on a machine that gives the process no time just then: closing the socket would reset the connection."""
    held_up = "" if rounds is None else HELD_UP_AFTER_ROUNDS.replace("ROUNDS", str(rounds))

    async def test() -> None:
        stream = Stream()
        stream.go_on.set()
        before = f"{first}\n{STOPPED_BEFORE_CLOSING}\n{held_up}"
        async with backend(stream) as behind, program(behind.url, first=before) as running:
            running.process.send_signal(signal.SIGTERM)
            await until(lambda: psutil.Process(running.process.pid).status() == psutil.STATUS_STOPPED)
            client = await RawClient.connect(running)
            await client.post()
            running.process.send_signal(signal.SIGCONT)
            assert await ended(client) == "completed"
            assert (await running.exit())[0] == 0

    run(test())


PATIENT_WITH_NEW_CONNECTIONS = """
from responses_gateway.server.process import serve
serve._LAST_REQUESTS = 60
"""


@pytest.mark.parametrize("first", ["", WITHOUT_UVLOOP], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("held_up", [False, True], ids=["", "held up"])
def test_the_first_request_of_a_connection_that_was_just_accepted_is_answered(first: str, held_up: bool) -> None:
    """As a proxy sends it that has connected before it learned that the gateway leaves. A process that is held up looks for it
    in the round of the event loop in which it comes."""

    async def test() -> None:
        stream = Stream()
        stream.go_on.set()
        async with (
            backend(stream) as behind,
            program(behind.url, first=f"{first}\n{PATIENT_WITH_NEW_CONNECTIONS}") as running,
        ):
            client = await RawClient.connect(running)
            running.process.send_signal(signal.SIGTERM)
            await listens_no_more(running)
            if held_up:
                running.process.send_signal(signal.SIGSTOP)
            await client.post()
            if held_up:
                await asyncio.sleep(0.1)
                running.process.send_signal(signal.SIGCONT)
            assert await ended(client) == "completed"
            assert (await running.exit())[0] == 0

    run(test())


async def listens_no_more(running: Program) -> None:
    """Wait until no new connection is taken. Nothing connects to find out, because the program still answers requests on other
    connections while it waits for the first one on a connection that it has taken."""
    process = psutil.Process(running.process.pid)
    await until(lambda: all(each.status != psutil.CONN_LISTEN for each in process.net_connections("tcp")))


def test_what_does_not_finish_in_time_fails() -> None:
    async def test() -> None:
        async with backend(Stream()) as behind, program(behind.url, "--drain-timeout", "0.1") as running:
            client = await streaming(running)
            running.process.send_signal(signal.SIGTERM)
            assert await ended(client) == "failed"
            assert b"shutting down" in client.received
            assert await asyncio.wait_for(behind.connections[0].lost, PATIENCE)
            assert (await running.exit())[0] == 0

    run(test())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(number: signal.Signals) -> None:
    async def test() -> None:
        async with backend(Stream()) as behind, program(behind.url, "--drain-timeout", "600") as running:
            client = await streaming(running)
            running.process.send_signal(number)
            await listens_no_more(running)
            running.process.send_signal(number)
            assert await ended(client) == "failed"
            assert (await running.exit())[0] == 0

    run(test())


def test_an_idle_program_ends_at_once() -> None:
    async def test() -> None:
        async with backend(Stream()) as behind, program(behind.url, "--log-format", "text") as running:
            running.process.send_signal(signal.SIGTERM)
            code, said = await running.exit()
            assert code == 0
            assert "draining in_flight=0" in said

    run(test())


def test_a_store_that_does_not_answer_keeps_the_end_from_no_client(tmp_path: Path) -> None:
    """As one whose disk hangs, or a file that another program has locked."""

    async def test() -> None:
        flags = ("--drain-timeout", "0.1", "--store", str(tmp_path / "responses.db"))
        async with backend(Stream()) as behind, program(behind.url, *flags) as running:
            client = await streaming(running)
            with closing(sqlite3.connect(tmp_path / "responses.db", isolation_level=None)) as other:
                other.execute("BEGIN EXCLUSIVE")
                running.process.send_signal(signal.SIGTERM)
                assert await ended(client) == "failed"
            code, said = await running.exit()
            assert code == 0
            assert "not stored" in said
            assert "did not answer" in said
            assert "Traceback" not in said

    run(test())


PATIENT_WITH_REDIS = """
from responses_gateway.state import redis
redis._TIMEOUT = 600.0
"""


def test_a_log_of_events_that_does_not_answer_does_not_hold_it_up() -> None:
    async def test() -> None:
        with redis_running() as redis:
            flags = ("--drain-timeout", "0.1", "--events", redis.url)
            async with backend(Stream()) as behind, program(behind.url, *flags, first=PATIENT_WITH_REDIS) as running:
                client = await RawClient.connect(running)
                await client.post(background=True)
                await client.read_until(b"from here.")
                with redis.paused():
                    running.process.send_signal(signal.SIGTERM)
                    assert (await running.exit())[0] == 0
                client.close()

    run(test())


CLOSING_FOREVER = """
import asyncio, threading
from responses_gateway.server.process import serve
from responses_gateway.state.sqlite import Sqlite
async def close(store):
    await asyncio.to_thread(threading.Event().wait)
Sqlite.close = close
serve._LONGEST_CLOSE = 0.5
"""


def test_what_cannot_be_closed_does_not_hold_it_up() -> None:
    """As a database that hangs, whose driver waits in a thread. The program says where."""

    async def test() -> None:
        async with backend(Stream()) as behind, program(behind.url, first=CLOSING_FOREVER) as running:
            running.process.send_signal(signal.SIGTERM)
            code, said = await running.exit()
            assert code == 1
            assert "Timeout" in said
            assert "threading.py" in said

    run(test())


def test_a_client_that_does_not_read_does_not_hold_it_up() -> None:
    async def test() -> None:
        async with backend(Stream()) as behind, program(behind.url, "--drain-timeout", "0.1") as running:
            client = await RawClient.connect(running, receive_buffer=4096)
            await client.post(instructions="x" * 3_000_000)
            await until(lambda: behind.requests)
            running.process.send_signal(signal.SIGTERM)
            assert (await running.exit(12))[0] == 0
            client.close()

    run(test())
