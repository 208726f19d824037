"""A gateway is killed, or told to stop, while a response runs in the background: the next one goes on with it."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import pytest

from tests.chaos.faults import shows, simulators
from tests.chaos.test_backend_continued import SETTINGS, WEATHER, spoken
from tests.judges import judge_stream
from tests.server.gateway_process import Program, program
from tests.server.running_gateway import TERMINALS, run, until
from tests.state.database_servers import postgres_running, redis_running
from tests.waiting import PATIENCE

# For a gateway that sooner takes another one for dead that gives no sign of life: 15 seconds by default.
SHORTER = "import responses_gateway.server.generation.background.runner as runner; runner.SILENCE = 2.0"
# How the backend is read, and how the gateway ends.
STOPS = {
    "raw-killed": ("raw", signal.SIGKILL),
    "parsed-killed": ("parsed", signal.SIGKILL),
    "parsed-stopped": ("parsed", signal.SIGTERM),
    "parsed-killed-with-a-client's-key": ("parsed", signal.SIGKILL),
}
# What a client sends along that has a key of its own for the backend.
KEY = {"Authorization": "Bearer sk-of-the-client-0123456789"}
# The backend falls silent in the middle of its text, once.
TEXT = "response.output_text.delta"
NEVER = "fault: drop=5,times=0"
LONG = "scenario: long tokens: 2000"
SILENT = "fault: silence=600,times=1"
Headers: TypeAlias = dict[str, str] | None


async def call(running: Program, method: str, path: str, **fields: Any) -> bytes:
    async with aiohttp.ClientSession() as session, session.request(method, f"{running.url}{path}", **fields) as answer:
        return await answer.read()


async def start(running: Program, text: str, headers: Headers = None, **fields: Any) -> str:
    """Start a response in the background; return its id."""
    body = {"model": "simulator", "input": text, "background": True, "tools": [WEATHER], **fields}
    return str(json.loads(await call(running, "POST", "/v1/responses", json=body, headers=headers))["id"])


async def events(running: Program, name: str, after: int = -1, last: str = "", headers: Headers = None) -> list[dict[str, Any]]:
    """Read the stream behind an event, to its end or to the first event of the kind `last`."""
    url = f"{running.url}/v1/responses/{name}?stream=true&starting_after={after}"
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        async for line in answer.content:
            if line.startswith(b"data: {"):
                found.append(json.loads(line[6:]))
                if found[-1]["type"] == last:
                    break
    return found


async def final_of(running: Program, name: str, headers: Headers = None) -> dict[str, Any]:
    final: dict[str, Any] = json.loads(await call(running, "GET", f"/v1/responses/{name}", headers=headers))
    return final


def assert_one_stream(found: list[dict[str, Any]]) -> None:
    """Expect one whole stream, with every number once."""
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    frames = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in found)
    assert judge_stream((frames + "data: [DONE]\n\n").encode()) == []
    assert found[-1]["type"] in TERMINALS


@pytest.mark.parametrize("stop", list(STOPS))
def test_the_next_gateway_goes_on(stop: str, tmp_path: Path) -> None:
    setting, end = STOPS[stop]
    headers = KEY if "key" in stop else None
    simulator, gateway = SETTINGS[setting]

    async def test() -> None:
        async with simulators(1, *simulator) as (one,):
            flags = ("--backend", one.url, "--no-adapt", "--store", str(tmp_path / "x.sqlite3"), "--continue-answers", "1")
            async with program(*flags, *gateway, "--drain-timeout", "0.1", first=SHORTER) as dying:
                name = await start(dying, f"scenario: demo {NEVER}", headers)
                assert_one_stream(await events(dying, name, headers=headers))
                whole = await final_of(dying, name, headers)
                name = await start(dying, f"scenario: demo {SILENT}", headers)
                found = await events(dying, name, last=TEXT, headers=headers)
                assert found[-1]["type"] == TEXT
                dying.process.send_signal(end)
                await dying.process.wait()
            async with program(*flags, *gateway, first=SHORTER) as other:
                found += await events(other, name, found[-1]["sequence_number"], headers=headers)
                final = await final_of(other, name, headers)
                await other.says("taken over")
                await shows(other, lambda line: 'continuations_total{outcome="continued",reason="restart"} 1.0' in line)
            assert_one_stream(found)
            assert found[-1]["response"] == final
            assert final["status"] == "completed"
            assert spoken(final) == spoken(whole)
            assert final["usage"]["output_tokens"] == whole["usage"]["output_tokens"]

    run(test())


@pytest.fixture
def shared_store() -> Iterator[tuple[str, ...]]:
    """Start servers for what several gateways share; return the flags for it."""
    with postgres_running() as postgres, redis_running() as redis:
        yield ("--no-adapt", "--continue-answers", "1", "--store", postgres.fresh_database(), "--events", redis.url)


def test_a_gateway_that_was_halted_sends_its_client_the_rest(shared_store: tuple[str, ...]) -> None:
    """It wakes up when another one has ended its response, and the client still reads from it."""

    async def test() -> None:
        async with simulators(1) as (one,):
            flags = ("--backend", one.url, *shared_store)
            async with program(*flags, first=SHORTER) as halted, program(*flags, first=SHORTER) as other:
                name = await start(halted, f"scenario: demo {SILENT}")
                await events(halted, name, last=TEXT)
                reading = asyncio.create_task(events(halted, name))
                halted.signal(signal.SIGSTOP)
                await other.says("taken over")
                found = await events(other, name)
                assert_one_stream(found)
                assert found[-1]["type"] == "response.completed"
                halted.signal(signal.SIGCONT)
                assert await reading == found
                await halted.says("outcome=handed_over")
                assert await events(halted, name) == found

    run(test())


def test_one_of_several_goes_on_and_when_it_is_killed_too_the_response_ends(shared_store: tuple[str, ...]) -> None:
    async def test() -> None:
        async with simulators(1, "--tokens-per-second", "40") as (one,), AsyncExitStack() as stack:
            flags = ("--backend", one.url, *shared_store)
            starting = (program(*flags, first=SHORTER) for _ in range(3))
            first, *others = await asyncio.gather(*map(stack.enter_async_context, starting))
            name = await start(first, LONG)
            found = await events(first, name, last=TEXT)
            first.process.kill()
            await until(lambda: any("taken over" in other.said for other in others))
            (second,) = [other for other in others if "taken over" in other.said]
            (third,) = [other for other in others if other is not second]
            found += await events(second, name, found[-1]["sequence_number"], last=TEXT)
            assert found[-1]["type"] == TEXT
            second.process.kill()
            found += await events(third, name, found[-1]["sequence_number"])
            assert_one_stream(found)
            assert found[-1]["type"] == "response.failed"
            assert found[-1]["response"] == await final_of(third, name)
            assert "taken over" not in third.said
            await third.says("response lost")

    run(test())
