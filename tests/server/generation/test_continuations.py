"""A backend breaks off in the middle of an answer, and another one goes on with it: the client notices nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from proxy.simulator import PERSONALITIES, SimulatorOptions, create_app, serving
from proxy.simulator.state import FAULT_COUNTS
from tests.server.running_gateway import Answer, Served, gateway, post, run

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
    },
}
# Personality of the simulators -> settings of the gateway.
READINGS: dict[str, dict[str, Any]] = {
    "vllm": {},
    "vllm-interval": {},
    "vllm-raw": {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"},
    "vllm-raw-xml": {"reasoning_parser": "qwen3", "tool_call_parser": "qwen3_coder"},
    "vllm-raw-opened": {"reasoning_parser": "qwen3", "tool_call_parser": "hermes", "opened_thinking": "yes"},
}


@asynccontextmanager
async def fleet(personality: str, size: int = 2, **settings: Any) -> AsyncIterator[Served]:
    """Serve the gateway in front of simulators of one model."""
    options = SimulatorOptions(personality=PERSONALITIES[personality])
    async with AsyncExitStack() as stack:
        apps = [create_app(options) for _ in range(size)]
        for app in apps:
            app[FAULT_COUNTS] = apps[0][FAULT_COUNTS]  # a fault happens once in all
        urls = [await stack.enter_async_context(serving(app)) for app in apps]
        wanted = {
            "adapt": False,
            "continue_answers": 1,
            "breaker_failures": 10_000,
            **READINGS.get(personality, {}),
            **settings,
        }
        yield await stack.enter_async_context(gateway(*urls, **wanted))


def said(answer: Answer) -> dict[str, Any]:
    """Return what a response says: everything but ids, and the tokens that were in a cache."""
    final = answer.final
    items = [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in final["output"]]
    usage = (
        {name: final["usage"][name] for name in ("input_tokens", "output_tokens", "total_tokens")} if final["usage"] else None
    )
    return {"status": final["status"], "output": items, "usage": usage, "error": final["error"]}


async def ask(served: Served, scenario: str, fault: str) -> Answer:
    question = f"scenario: {scenario} fault: {fault}"
    return await post(served, input=question, tools=[WEATHER], headers={"X": "y"})


async def undisturbed(served: Served, scenario: str) -> dict[str, Any]:
    return said(await ask(served, scenario, "drop=5,times=0"))


@pytest.mark.parametrize("personality", list(READINGS))
@pytest.mark.parametrize("scenario", ["demo", "unicode", "parallel"])
def test_cut_anywhere_nothing_is_lost_or_said_twice(personality: str, scenario: str) -> None:
    async def test() -> None:
        async with fleet(personality) as served:
            whole = await undisturbed(served, scenario)
            usage = whole.pop("usage")
            assert whole["status"] == "completed"
            for position in range(0, 140 if personality != "vllm-interval" else 30):
                answer = await ask(served, scenario, f"drop={position},times=1")
                found = said(answer)
                counted = found.pop("usage")
                assert found == whole, position
                assert counted["output_tokens"] == usage["output_tokens"], position

    run(test())
