"""A response in the background goes on in another gateway that shares the store, unless that would say anything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.simulator import PERSONALITIES, SimulatorOptions, create_app, serving
from tests.judges import judge_stream
from tests.server.fleet_of_simulators import WEATHER
from tests.server.running_gateway import Served, ask, events_of, gateway, post, run, until

SILENT = "scenario: demo fault: silence=600,times=1"


@asynccontextmanager
async def two(path: Path, **settings: Any) -> AsyncIterator[tuple[Served, Served]]:
    """Run two gateways on one store, in front of one backend; the second one has `settings` besides."""
    common: dict[str, Any] = {"store": str(path / "x.sqlite3"), "adapt": False, "continue_answers": 1}
    async with (
        serving(create_app(SimulatorOptions(personality=PERSONALITIES["vllm"]))) as url,
        gateway(url, **common) as one,
        gateway(url, **{**common, **settings}) as other,
    ):
        yield one, other


async def stuck(one: Served, **fields: Any) -> str:
    """Start a response whose backend falls silent, in a gateway that gives no more sign of life; return its id."""
    asked = [{"role": "user", "content": text} for text in ("Hello.", SILENT)]
    answer = await post(one, input=asked, background=True, stream=False, tools=[WEATHER], **fields)
    name = str(answer.json["id"])
    store = one.parts.store
    background = one.parts.background
    assert store is not None
    assert background is not None
    async with asyncio.timeout(60):
        while not any(b"output_text.delta" in row.data for row in await store.events(name, -1)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    background._upkeep.cancel()
    await asyncio.gather(background._upkeep, return_exceptions=True)
    late = "UPDATE responses SET alive_until = alive_until - 30"
    await store._database.run(lambda sql: sql.execute(late).rowcount)
    return name


async def ended(served: Served, name: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            response: dict[str, Any] = (await ask(served, "GET", f"/v1/responses/{name}")).json
            if response["status"] not in ("queued", "in_progress"):
                return response
            await asyncio.sleep(0.02)


async def streamed(served: Served, name: str) -> bytes:
    return (await ask(served, "GET", f"/v1/responses/{name}?stream=true")).body


def test_a_gateway_that_was_only_slow_changes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with two(tmp_path) as (slow, other):
            name = await stuck(slow)
            response = await ended(other, name)
            assert response["status"] == "completed"
            background = slow.parts.background
            assert background is not None
            assert name in background.runs
            await background._renew_claims()  # it wakes up
            await until(lambda: not background.runs)
            assert await ended(slow, name) == response
            body = await streamed(slow, name)
            assert judge_stream(body) == []
            events = events_of(body)
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            assert events[-1]["response"] == response
            assert other.metric("continuations_total", outcome="continued", reason="restart") == 1
            await slow.parts.pool.close()  # its idle connections would count as tasks that the other one left

    run(test())


@pytest.mark.parametrize(
    ("reason", "settings"),
    [("events_differ", {"reasoning_summary": "always"}), ("request_differs", {"user_messages": "merge"})],
)
def test_a_gateway_that_would_say_something_else_ends_it(reason: str, settings: dict[str, Any], tmp_path: Path) -> None:
    async def test() -> None:
        async with two(tmp_path, **settings) as (one, other):
            name = await stuck(one)
            response = await ended(other, name)
            assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
            assert response["output"][-1]["status"] == "incomplete"
            assert judge_stream(await streamed(other, name)) == []
            await until(lambda: other.metric("continuations_total", outcome="failed", reason=reason) == 1)
            await one.parts.pool.close()

    run(test())


def test_encrypted_reasoning_stays_what_the_client_was_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with two(tmp_path) as (one, other):
            name = await stuck(one, include=["reasoning.encrypted_content"])
            assert (await ended(other, name))["status"] == "completed"
            body = await streamed(other, name)
            told = [event["item"] for event in events_of(body) if event["type"] == "response.output_item.done"]
            assert told[0]["encrypted_content"]
            assert events_of(body)[-1]["response"]["output"] == told
            assert judge_stream(body) == []
            await one.parts.pool.close()

    run(test())
