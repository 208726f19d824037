"""Many streams at once: none is lost, none is mixed up with another, and the memory stays flat."""

from __future__ import annotations

import asyncio
import gc

import aiohttp
import psutil
import pytest

from responses_gateway.conformance.checker import check_stream
from tests.judges import judge_stream
from tests.server.running_gateway import LOOPS_OF_LONG_TESTS, QUESTION, Served, events_of, run, simulated
from tests.thoroughness import THOROUGH

STREAMS = 160 if THOROUGH else 80
TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
# By how much the process may grow from one round to the next, in bytes.
GROWTH = 12 * 1024 * 1024


async def one(served: Served, session: aiohttp.ClientSession, number: int) -> None:
    """Expect one stream to be complete, valid, and the answer to its own question."""
    scenario = ("default", "reasoning", "parallel", "tool")[number % 4]
    question = f"number-{number} scenario: {scenario} tps: 100"
    body = {**QUESTION, "input": question, "tools": [TOOL]}
    async with session.post(f"{served.url}/v1/responses", json=body) as answer:
        data = await answer.read()
    assert check_stream(data) == []
    final = events_of(data)[-1]["response"]
    assert final["status"] == "completed"
    assert scenario != "default" or f"number-{number} " in str(final["output"])
    if number % 64 == 0:
        assert judge_stream(data) == []


def resident() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS_OF_LONG_TESTS)
def test_many_streams_at_once(loop: str) -> None:
    async def test() -> None:
        async with simulated() as served, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            sizes = []
            most = 0.0
            for _ in range(3):
                work = [asyncio.create_task(one(served, session, number)) for number in range(STREAMS)]
                while not all(task.done() for task in work):
                    await asyncio.wait(work, timeout=0.1)
                    most = max(most, served.metric("requests_in_flight"))
                await asyncio.gather(*work)
                sizes.append(resident())
            assert most > STREAMS / 2, "they ran at once"
            assert (
                served.metric("requests_total", model="simulator", outcome="completed", stream="true", api="responses")
                == 3 * STREAMS
            )
            assert sizes[2] - sizes[1] < GROWTH, sizes

    run(test(), loop)
