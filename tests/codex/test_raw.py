"""The same work on backends that parse nothing: the gateway finds thoughts and calls in the model's text."""

from __future__ import annotations

from pathlib import Path

import pytest

from responses_gateway.simulator import DIALECTS, SimulatorOptions
from tests.codex.codex_cli import Codex
from tests.codex.servers import Stage, StartStage
from tests.codex.test_tools import assert_agent_did_its_work, names


def raw_stage(start_stage: StartStage, dialect: str, tool_call_parser: str) -> Stage:
    return start_stage(
        SimulatorOptions(dialect=DIALECTS[dialect]),
        reasoning_parser="qwen3",
        tool_call_parser=tool_call_parser,
        opened_thinking="no",
    )


@pytest.mark.parametrize(
    ("dialect", "tool_call_parser"),
    [("vllm-raw", "hermes"), ("vllm-raw-xml", "qwen3_coder"), ("sglang-raw", "hermes"), ("vllm-raw", "auto")],
)
def test_a_file_is_written_edited_and_run(dialect: str, tool_call_parser: str, tmp_path: Path, start_stage: StartStage) -> None:
    stage = raw_stage(start_stage, dialect, tool_call_parser)
    assert_agent_did_its_work(Codex(tmp_path, stage.url), "scenario: agent")
    working = [chat for chat in stage.chats if "tools" in chat]
    assert working
    assert {chat["tool_choice"] for chat in working} == {"none"}


def test_a_patch_adds_a_file(tmp_path: Path, start_stage: StartStage) -> None:
    """Use a freeform tool: its input is decoded from JSON that was decoded from the text."""
    codex = Codex(tmp_path, raw_stage(start_stage, "vllm-raw", "hermes").url)
    codex.use_catalog(apply_patch_tool_type="freeform")
    run = codex.run("scenario: patch")
    assert (run.code, run.errors) == (0, [])
    assert codex.files() == {"hello.txt": "Hello from the simulator.\n"}


def test_parallel_calls(tmp_path: Path, start_stage: StartStage) -> None:
    stage = raw_stage(start_stage, "vllm-raw-xml", "qwen3_coder")
    run = Codex(tmp_path, stage.url).run("scenario: parallel")
    assert (run.code, run.errors) == (0, [])
    assert sorted(command["aggregated_output"] for command in run.commands) == ["first\n", "second\n"]
    assert "exec_command" in names(stage.chats[0])
