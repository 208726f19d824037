"""Calls are repaired beside hosted tools, where another backend continues the answer, and where another gateway does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.conformance.checker import check_stream
from tests.server.features.agent_cases import CODEX, calling, pieces
from tests.server.fleet_of_simulators import fleet
from tests.server.generation.test_takeover import ended, events_in_store, expire, silence, streamed, two
from tests.server.hosted.model import DOCS, MCP, calls, model
from tests.server.running_gateway import Served, events_of, post, run

Json = dict[str, Any]
# Its arguments are `"5"` where an integer is due.
FORECAST: Json = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}
ASKED = 'What is the weather? Use the tool with the arguments {"city": "Paris", "days": "5"}'
WHOLE = '{"city":"Paris","days":5}'
SAFE: Json = {"repair_calls": "safe"}


def calls_of(response: Json) -> list[str]:
    return [item["arguments"] for item in response["output"] if item["type"] == "function_call"]


def repaired(served: Served) -> float:
    return served.metric("repairs_total", kind="decoded_scalar")


@pytest.mark.parametrize("streamed_answer", [True, False])
def test_a_call_beside_a_hosted_one(streamed_answer: bool) -> None:
    mixed = calls(("docs__echo", {"text": "x"}))
    wrong = pieces(calling("get_weather", '{"city": "Paris", "days": "5"}'), finish="tool_calls")

    async def test() -> None:
        async with model(mixed, wrong, mcp_servers=DOCS) as (served, talking):
            answer = await post(served, tools=[MCP, FORECAST], stream=streamed_answer, headers=CODEX)
            response = answer.final if streamed_answer else answer.json
            assert [item["type"] for item in response["output"] if item["type"] != "mcp_list_tools"] == [
                "mcp_call",
                "function_call",
            ]
            assert calls_of(response) == [WHOLE]
            assert len(talking.requests) == 2

    run(test())


def test_hosted_calls_are_run_as_the_model_wrote_them() -> None:
    async def test() -> None:
        async with model(calls(("docs__echo", '{"text": "x"')), pieces({"content": "So."}), mcp_servers=DOCS, **SAFE) as (
            served,
            talking,
        ):
            answer = await post(served, tools=[MCP], headers=CODEX)
            assert answer.final["status"] == "completed"
            assert [item["arguments"] for item in answer.final["output"] if item["type"] == "mcp_call"] == ['{"text": "x"']
            assert len(talking.requests) == 2

    run(test())


@pytest.mark.parametrize("dialect", ["vllm", "vllm-raw"])
@pytest.mark.parametrize("place", ["call", "half", "005"])
def test_a_call_that_another_backend_continues(dialect: str, place: str) -> None:
    async def test() -> None:
        async with fleet(dialect, **SAFE) as served:
            answer = await post(served, input=f"fault: drop={place},times=1 {ASKED}", tools=[FORECAST])
            assert answer.final["status"] == "completed"
            assert calls_of(answer.final) == [WHOLE]
            done = [event for event in events_of(answer.body) if event["type"] == "response.function_call_arguments.done"]
            assert [event["arguments"] for event in done] == [WHOLE]
            assert served.metric("continuations_total", outcome="continued", reason="broke") == 1
            assert repaired(served) == 1

    run(test())


def test_a_strict_answer_that_broke_off_is_continued() -> None:
    async def test() -> None:
        async with fleet("vllm", strict_calls="on", **SAFE) as served:
            answer = await post(served, input=f"fault: drop=half,times=1 {ASKED}", tools=[FORECAST])
            assert answer.final["status"] == "completed"
            assert served.metric("calls_total", model="simulator", validity="valid") == 1
            assert served.metric("continuations_total", outcome="continued", reason="broke") == 1

    run(test())


def test_a_call_that_another_gateway_hands_over(tmp_path: Path) -> None:
    async def test() -> None:
        async with two(tmp_path, speed=40, common=SAFE) as (one, other):
            asked = {"input": ASKED, "tools": [FORECAST], "background": True, "stream": False}
            name = str((await post(one, asked)).json["id"])
            async with asyncio.timeout(60):
                while b"reasoning" not in await events_in_store(one, name):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await silence(one)
            await expire(one)
            response = await ended(other, name)
            assert (response["status"], calls_of(response)) == ("completed", [WHOLE])
            assert check_stream(await streamed(other, name)) == []
            await one.parts.pool.close()

    run(test())
