"""A backend is killed while it writes a call: with `continue_answers` Claude Code sees nothing of it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from responses_gateway.simulator import SimulatorOptions
from tests.chaos.faults import Simulator, busy, simulators
from tests.claude.claude_code import ClaudeCode
from tests.codex.servers import GREETING, Background, Stage, open_stage
from tests.waiting import PATIENCE

# The third of five steps stops in the middle of its call, and is not over before its backend is killed.
_HALTED = "scenario: agent fault: silence=600,step=2"
_STEPS = 5


async def _kill_the_writer(stage: Stage, several: list[Simulator], begun: bytes) -> None:
    """Wait until Claude Code has got the beginning of the third call, then kill the backend that writes it."""
    async with asyncio.timeout(PATIENCE):
        while len(stage.exchanges) < 3 or begun not in stage.exchanges[2].body:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await (await busy(several)).kill()


# Arguments that may be repaired are held until they are whole: their block alone shows that the call has begun.
@pytest.mark.parametrize(("repair", "begun"), [("off", b"input_json_delta"), ("safe", b'"type":"tool_use"')])
def test_the_backend_is_killed_in_the_middle_of_an_edit(tmp_path: Path, repair: str, begun: bytes) -> None:
    servers = Background()
    stack = AsyncExitStack()
    several = servers.run(stack.enter_async_context(simulators(2, "--model", "qwen3")))
    settings = {"continue_answers": 1, "adapt": False, "repair_calls": repair}
    stage = servers.run(stack.enter_async_context(open_stage(SimulatorOptions(), [one.url for one in several], settings)))
    try:
        claude = ClaudeCode(tmp_path, stage.url)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(claude.run, _HALTED)
            servers.run(_kill_the_writer(stage, several, begun))
            run = running.result()
    finally:
        servers.run(stack.aclose())
        servers.stop()
    assert (run.code, run.complaints, run.failed_tools) == (0, [], [])
    assert run.tools == ["Write", "Read", "Edit", "Bash"]
    assert (claude.workspace / "greeting.py").read_text() == GREETING
    assert "in 4 tool calls" in run.result
    assert [exchange.status for exchange in stage.exchanges] == [200] * _STEPS
    assert stage.complaints() == []
