"""A backend is killed while it writes a call: with `continue_answers` another one goes on, and the user sees nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.faults import Simulator, busy
from tests.codex.codex_cli import Codex, Run
from tests.codex.servers import GREETING, Background, Stage, StartStage
from tests.codex.wire_tap import Exchange
from tests.waiting import PATIENCE

# The second of three steps stops in the middle of its call, and is not over before its backend is killed.
_HALTED = "scenario: agent fault: silence=600,step=1"
_RAW = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes", "opened_thinking": "no"}
_MODEL = "qwen3"
# A model that the client knows: all tools run inside JavaScript.
_OF_CODE_MODE = "gpt-6.1-sol"
_CONTINUED = {"continue_answers": 1, "adapt": False}


@pytest.fixture
def two_simulators(background: Background, dialect: str) -> Iterator[list[Simulator]]:
    several = [Simulator("--dialect", dialect, "--model", _MODEL, "--model", _OF_CODE_MODE) for _ in range(2)]
    with ExitStack() as stack:
        for one in several:
            stack.callback(lambda one=one: background.run(one.kill()))
            background.run(one.start())
        yield several


def _is_second_step(exchange: Exchange) -> bool:
    return sum(item.get("type", "").endswith("_call_output") for item in exchange.request.get("input", ())) == 1


async def _kill_the_writer(stage: Stage, several: list[Simulator], event: str) -> None:
    """Wait until the client has got the beginning of the second call, then kill the backend that writes it."""
    async with asyncio.timeout(PATIENCE):
        while not any(event.encode() in each.body for each in stage.exchanges if _is_second_step(each)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await (await busy(several)).kill()


@pytest.mark.parametrize("dialect", ["vllm", "vllm-raw"])
@pytest.mark.parametrize(
    ("tool", "event", "repair"),
    [
        ("apply_patch", "response.custom_tool_call_input.delta", "safe"),
        ("exec_command", "response.function_call_arguments.delta", "off"),
        ("exec_command", '"type":"function_call"', "safe"),  # whose arguments are held until they are whole
        ("code mode", "response.custom_tool_call_input.delta", "safe"),
    ],
)
def test_the_backend_is_killed_in_the_middle_of_a_patch(
    dialect: str,
    tool: str,
    event: str,
    repair: str,
    tmp_path: Path,
    background: Background,
    two_simulators: list[Simulator],
    start_stage: StartStage,
) -> None:
    parsers: dict[str, Any] = _RAW if dialect == "vllm-raw" else {}
    stage = start_stage(backends=[one.url for one in two_simulators], repair_calls=repair, **_CONTINUED, **parsers)
    codex = Codex(tmp_path, stage.url)
    codex.provider |= {"stream_max_retries": 0, "request_max_retries": 0}
    if tool == "apply_patch":
        codex.use_catalog(apply_patch_tool_type="freeform")
    elif tool == "code mode":
        codex.top["model"] = _OF_CODE_MODE
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(codex.run, _HALTED)
        background.run(_kill_the_writer(stage, two_simulators, event))
        run: Run = running.result()
    assert (run.code, run.errors) == (0, [])
    assert codex.files() == {"greeting.py": GREETING}
    assert run.commands[-1]["aggregated_output"] == f"{GREETING}Hello, world!\n"
    assert "in 3 tool calls" in run.answers[-1]
    assert len([exchange for exchange in stage.exchanges if exchange.is_stream]) == 4
