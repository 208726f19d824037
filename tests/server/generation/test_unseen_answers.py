"""A server whose tool parser leaves calls out: the gateway says so, or parses itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from responses_gateway.simulator import DIALECTS, SimulatorOptions
from tests.probing.simulated_backend import SimulatedBackend, adapted
from tests.server.running_gateway import post, run, simulated

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
QUESTION: Any = {"input": "scenario: tool", "tools": [WEATHER]}


def test_unseen_tokens_are_counted_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        simulator = SimulatorOptions(dialect=DIALECTS["vllm-wrong-tool-parser"])
        async with simulated(simulator, adapt=False, access_log=True) as served:
            for _ in range(2):
                answer = await post(served, QUESTION)
                assert [item["type"] for item in answer.final["output"]] == ["reasoning"]
            await post(served, {"input": "scenario: plain"})
            assert served.metric("unseen_tokens_total", model="simulator") > 40

    with caplog.at_level("INFO", logger="responses_gateway"):
        run(test())
    fields = [getattr(record, "fields", {}) for record in caplog.records]
    assert [found["unseen_tokens"] > 20 for found in fields if "outcome" in found and "unseen_tokens" in found] == [True, True]
    warnings = [found for found in fields if "advice" in found]
    assert len(warnings) == 1
    assert "doctor" in warnings[0]["advice"]
    assert warnings[0]["model"] == "simulator"


def test_a_gateway_that_adapts_parses_what_the_server_leaves_out() -> None:
    async def test() -> None:
        async with adapted(SimulatedBackend("vllm-wrong-tool-parser")) as served:
            answer = await post(served, QUESTION)
            assert [item["type"] for item in answer.final["output"]] == ["reasoning", "function_call"]
            assert set(json.loads(answer.final["output"][1]["arguments"])) == {"city"}
            assert served.metric("unseen_tokens_total", model="simulator") == 0

    run(test())


@pytest.mark.parametrize("dialect", sorted(DIALECTS.keys() - {"vllm-wrong-tool-parser"}))
@pytest.mark.parametrize("scenario", ["tool", "parallel", "demo", "unicode", "empty", "reasoning_only", "refusal"])
def test_no_other_server_raises_an_alarm(dialect: str, scenario: str) -> None:
    async def test() -> None:
        async with simulated(SimulatorOptions(dialect=DIALECTS[dialect]), adapt=False) as served:
            await post(served, {"input": f"scenario: {scenario}", "tools": [WEATHER]})
            assert served.metric("unseen_tokens_total", model="simulator") == 0

    run(test())
