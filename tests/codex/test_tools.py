"""Turns in which the model works: what was really run and written, and what the model was told of it."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.simulator import DIALECTS, SimulatorOptions
from tests.codex.codex_cli import Codex
from tests.codex.servers import GREETING, Stage, StartStage

_MCP = {"command": sys.executable, "args": [str(Path(__file__).with_name("tiny_mcp.py"))]}


def names(chat: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in chat["tools"]]


def assert_agent_did_its_work(codex: Codex, prompt: str) -> None:
    run = codex.run(prompt)
    assert (run.code, run.errors) == (0, [])
    assert codex.files() == {"greeting.py": GREETING}
    assert run.commands[-1]["aggregated_output"] == f"{GREETING}Hello, world!\n"
    assert "in 3 tool calls" in run.answers[-1]


def test_a_file_is_written_edited_and_run(codex: Codex, stage: Stage) -> None:
    assert_agent_did_its_work(codex, "scenario: agent")
    roles = [message["role"] for message in stage.chats[-1]["messages"]]
    assert roles == ["system", "user", "user", *["assistant", "tool"] * 3]


def test_a_model_of_a_catalog_edits_with_apply_patch(codex: Codex, stage: Stage) -> None:
    codex.use_catalog(apply_patch_tool_type="freeform")
    assert_agent_did_its_work(codex, "scenario: agent")
    calls = [item for each in stage.exchanges for item in each.events[-1]["response"]["output"] if "call_id" in item]
    assert [call["type"] for call in calls] == ["function_call", "custom_tool_call", "function_call"]
    patch = next(call for call in calls if call["type"] == "custom_tool_call")
    [told] = [m["content"] for m in stage.chats[-1]["messages"] if m.get("tool_call_id") == patch["call_id"]]
    assert "Success. Updated the following files" in told


def test_a_patch_adds_a_file(codex: Codex) -> None:
    codex.use_catalog(apply_patch_tool_type="freeform")
    run = codex.run("scenario: patch")
    assert (run.code, run.errors) == (0, [])
    assert codex.files() == {"hello.txt": "Hello from the simulator.\n"}
    assert [change["kind"] for item in run.items("file_change") for change in item["changes"]] == ["add"]


@pytest.mark.parametrize(
    "name", ["vllm-interleaved", "vllm-interval", "vllm-usage-none", "sglang", "llamacpp", "ollama", "deepseek", "legacy"]
)
def test_the_same_work_on_every_kind_of_backend(name: str, tmp_path: Path, start_stage: StartStage) -> None:
    stage = start_stage(SimulatorOptions(dialect=DIALECTS[name]))
    assert_agent_did_its_work(Codex(tmp_path, stage.url), "scenario: agent")


def test_parallel_calls(codex: Codex, stage: Stage) -> None:
    run = codex.run("scenario: parallel")
    assert (run.code, run.errors) == (0, [])
    assert sorted(command["aggregated_output"] for command in run.commands) == ["first\n", "second\n"]
    assert run.answers == ["The tools answered:\n\n- first\n- second"]
    assert [message["role"] for message in stage.chats[-1]["messages"][-3:]] == ["assistant", "tool", "tool"]


def test_text_behind_a_call_stays_in_the_same_turn(codex: Codex, stage: Stage) -> None:
    run = codex.run("scenario: text_after_call")
    assert run.answers == ["First I look.", "That is under way.", "The tools answered:\n\n- first"]
    assert [message["role"] for message in stage.chats[-1]["messages"][-2:]] == ["assistant", "tool"]


def test_a_tool_of_an_mcp_server(codex: Codex, stage: Stage) -> None:
    codex.tables["mcp_servers.tiny"] = _MCP
    run = codex.run("scenario: mcp")
    [call] = run.items("mcp_tool_call")
    assert (call["server"], call["tool"], call["arguments"]) == ("tiny", "add", {"a": 3, "b": 3})
    assert run.answers == ["The tools answered:\n\n- the sum is 6"]
    assert run.errors == []
    assert {"mcp__tiny__add", "mcp__tiny__lookup_word"} <= set(names(stage.chats[0]))


def test_a_tool_that_is_searched_for_first(codex: Codex, stage: Stage) -> None:
    codex.top["model"] = "gpt-5.5"  # the client knows it: tools of MCP servers hide behind a search
    codex.tables["mcp_servers.tiny"] = _MCP
    run = codex.run("scenario: mcp")
    [call] = run.items("mcp_tool_call")
    assert call["result"]["content"] == [{"type": "text", "text": "the sum is 6"}]
    assert run.errors == []
    assert ["mcp__tiny__add" in names(chat) for chat in stage.chats] == [False, True, True]


def test_code_mode(codex: Codex, stage: Stage) -> None:
    codex.top["model"] = "gpt-6.1-sol"  # the client knows it: tools come as an input item, and run inside JavaScript
    assert_agent_did_its_work(codex, "scenario: agent")
    assert "tools" not in stage.exchanges[0].request
    assert "exec" in names(stage.chats[0])


def test_a_sub_agent(codex: Codex, stage: Stage) -> None:
    run = codex.run("scenario: subagent")
    assert (run.code, run.errors) == (0, [])
    assert [call["tool"] for call in run.items("collab_tool_call")] == ["spawn_agent", "wait"]
    assert "A plain answer to “scenario: plain. Say hello in one sentence.”" in run.answers[-1]
    assert any(each.headers.get("x-openai-subagent") == "collab_spawn" for each in stage.exchanges)


def test_two_sessions_at_once(tmp_path: Path, stage: Stage) -> None:
    sessions = [Codex(tmp_path / name, stage.url) for name in ("one", "two")]
    with ThreadPoolExecutor() as pool:
        list(pool.map(assert_agent_did_its_work, sessions, ["scenario: agent tps: 200"] * 2))
    assert len(stage.chats) == 8


def test_arguments_reach_the_client_as_the_model_wrote_them(codex: Codex, stage: Stage) -> None:
    codex.run("scenario: agent")
    [call] = [item for item in stage.exchanges[0].events[-1]["response"]["output"] if item["type"] == "function_call"]
    assert json.loads(call["arguments"])["cmd"].startswith("cat > greeting.py")
