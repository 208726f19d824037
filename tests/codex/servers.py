"""The servers of a test: a simulated backend, the gateway in front of it, and a tape on the way to the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from threading import Thread
from typing import Any, TypeVar

import pytest
from aiohttp import web

from responses_gateway.server.app import create_app as create_gateway
from responses_gateway.server.http.connections import Runner
from responses_gateway.server.lifespan import open_parts
from responses_gateway.settings import Settings
from responses_gateway.simulator import COUNTERS, RECEIVED, SimulatorOptions, serving
from responses_gateway.simulator import create_app as create_simulator
from responses_gateway.simulator.state import Counters
from tests.codex.wire_tap import Exchange, Tape
from tests.judges import judge_message, judge_stream
from tests.waiting import PATIENCE

T = TypeVar("T")
# What is in `greeting.py` when the simulated agent has done its work.
GREETING = "def greet(name):\n    return f'Hello, {name}!'\n\n\nprint(greet('world'))\n"


class Background:
    """An event loop in a thread of its own, so that tests may wait for a client process without stopping the servers."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="servers", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in that loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Stage:
    """Running servers. `url` is the base URL for the client."""

    def __init__(self, simulator: web.Application, tape: Tape, url: str) -> None:
        self._simulator = simulator
        self._tape = tape
        self.url = url

    @property
    def chats(self) -> list[dict[str, Any]]:
        """The bodies of the chat requests that reached the backend, oldest first."""
        received = self._simulator[RECEIVED]
        return [entry["body"] for entry in list(received)]

    @property
    def counters(self) -> Counters:
        """What the backend counts: running and aborted answers."""
        return self._simulator[COUNTERS]

    @property
    def exchanges(self) -> list[Exchange]:
        """What the client asked for and got."""
        return self._tape.exchanges

    def complaints(self) -> list[str]:
        """Return what the judges say about every stream that reached the client, except those that the client left."""
        found = []
        for exchange in self.exchanges:
            if exchange.is_stream and not exchange.abandoned:
                in_messages = "/v1/messages" in exchange.path
                found += judge_message(exchange.body) if in_messages else judge_stream(exchange.body, unfinished_allowed=True)
        return found


# `start_stage(options, backends=[url], **settings)`, as the fixture of that name gives it.
StartStage = Callable[..., Stage]


@asynccontextmanager
async def open_stage(options: SimulatorOptions, backends: list[str], overrides: dict[str, Any]) -> AsyncIterator[Stage]:
    """Servers on free ports while the block runs. `backends` are URLs to use instead of the simulator's, `overrides` are fields
    of the gateway's settings."""
    simulator = create_simulator(options)
    tape = Tape()
    with pytest.MonkeyPatch.context() as patch:
        # Because a process that reads a page has a low priority, and gets little of a busy machine.
        patch.setattr("responses_gateway.server.features.hosted_tools.opening.FETCH_SECONDS", PATIENCE)
        async with serving(simulator) as simulator_url:
            settings = Settings(backend=backends or [simulator_url], access_log=False, **{"store": "memory", **overrides})
            async with _gateway(settings) as (host, port), tape.listening(host, port) as tapped:
                yield Stage(simulator, tape, f"http://127.0.0.1:{tapped}/v1")


@asynccontextmanager
async def _gateway(settings: Settings) -> AsyncIterator[tuple[str, int]]:
    async with open_parts(settings) as parts:
        runner = Runner(create_gateway(parts), shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0]
            yield host, port
        finally:
            await runner.cleanup()
