"""A worker is killed while a client of the official SDK reads a stream from it: the client goes on reading at another one.

The dead worker cannot end its streams, and nobody else can: their bodies end early, which the SDK reports as an error."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
from openai import AsyncOpenAI

from tests.chaos.faults import simulators
from tests.judges import judge_stream
from tests.server.gateway_process import Program, program
from tests.server.running_gateway import TERMINALS, run, until

_CUT = (httpx.TransportError, openai.APIConnectionError)
# For a gateway that sooner takes a worker for dead that gives no sign of life: 15 seconds by default.
_SHORTER = "import responses_gateway.server.generation.background.runner as runner; runner.SILENCE = 2.0"


def clients_of(running: Program) -> dict[int, int]:
    """Return how many clients each worker has a connection to."""
    return {
        worker: sum(
            each.status == psutil.CONN_ESTABLISHED and each.laddr.port == running.port
            for each in psutil.Process(worker).net_connections("tcp")
        )
        for worker in running.workers
    }


def sdk(running: Program) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{running.url}/v1", api_key="any")


async def read(stream: Any, events: list[dict[str, Any]], until_number: int | None = None) -> None:
    """Collect events, up to one number or to the end of the stream."""
    while until_number is None or not events or events[-1]["sequence_number"] < until_number:
        event = await anext(stream, None)
        if event is None:
            return
        events.append(event.to_dict())


async def read_until_killed(stream: Any, events: list[dict[str, Any]], victim: int) -> None:
    """Kill the worker that sends a stream, and read what still comes: the stream is cut."""
    os.kill(victim, signal.SIGKILL)
    cut = False
    try:
        await read(stream, events)
    except _CUT:
        cut = True
    assert cut


def assert_one_stream(events: list[dict[str, Any]]) -> None:
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    frames = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    assert judge_stream((frames + "data: [DONE]\n\n").encode(), unfinished_allowed=True) == []
    assert events[-1]["type"] in TERMINALS


def test_a_client_whose_worker_dies_reads_on_at_another_one(tmp_path: Path) -> None:
    """Expect all events, the terminal one included, once each: another worker makes the response."""

    async def test() -> None:
        store = ("--no-adapt", "--store", str(tmp_path / "x.sqlite3"), "--workers", "2")
        async with simulators() as (behind_us,), program("--backend", behind_us.url, *store) as running:
            async with sdk(running) as asking:
                question = "tokens: 300 tps: 40"
                response = await asking.responses.create(model="simulator", input=question, background=True)
                maker = next(worker for worker, clients in clients_of(running).items() if clients)
                events: list[dict[str, Any]] = []
                victim = maker
                while victim == maker:  # the kernel chooses the worker
                    following = sdk(running)
                    events.clear()
                    stream = await following.responses.retrieve(response.id, stream=True)
                    await read(stream, events, until_number=5)
                    others = {worker: clients for worker, clients in clients_of(running).items() if worker != maker}
                    if any(others.values()):
                        victim = next(iter(others))
                    else:
                        await stream.close()
                        await following.close()
                await read_until_killed(stream, events, victim)
                await stream.close()
                await following.close()
                assert events[-1]["type"] not in TERMINALS
            async with sdk(running) as resuming:
                last = events[-1]["sequence_number"]
                await read(await resuming.responses.retrieve(response.id, stream=True, starting_after=last), events)
            assert_one_stream(events)
            assert events[-1]["type"] == "response.completed"

    run(test())


def test_a_client_whose_response_dies_with_the_worker_is_told(tmp_path: Path) -> None:
    """Expect what was stored, once each, and a truthful end from another worker."""

    async def test() -> None:
        store = ("--no-adapt", "--store", str(tmp_path / "x.sqlite3"), "--workers", "2")
        async with simulators() as (behind_us,), program("--backend", behind_us.url, *store, first=_SHORTER) as running:
            events: list[dict[str, Any]] = []
            async with sdk(running) as asking:
                question = "tokens: 3000 tps: 40"
                stream = await asking.responses.create(model="simulator", input=question, background=True, stream=True)
                await read(stream, events, until_number=8)
                victim = next(worker for worker, clients in clients_of(running).items() if clients)
                await read_until_killed(stream, events, victim)
                await stream.close()
            response_id = events[0]["response"]["id"]
            await until(lambda: victim not in running.workers)
            async with sdk(running) as resuming:
                last = events[-1]["sequence_number"]
                await read(await resuming.responses.retrieve(response_id, stream=True, starting_after=last), events)
                assert_one_stream(events)
                assert events[-1]["type"] == "response.failed"
                assert (await resuming.responses.retrieve(response_id)).status == "failed"

    run(test())
