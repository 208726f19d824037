"""The steps of the coding agent, with the tools of different clients; its commands are really run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.simulator.agent import agent, patch
from responses_gateway.simulator.chat_request import ChatRequest
from responses_gateway.simulator.script import CallTool, Say, Script, Think
from tests.waiting import PATIENCE

EXEC = ("exec_command", {"cmd": {"type": "string"}})
PATCH = ("apply_patch", {"input": {"type": "string"}})
BASH = ("bash", {"command": {"type": "string"}})
ARGV = ("shell", {"command": {"type": "array", "items": {"type": "string"}}})
CODE_MODE = ("functions__exec", {"input": {"type": "string"}})


def chat_request(*tools: tuple[str, dict[str, Any]], results: tuple[str, ...] = (), **fields: Any) -> ChatRequest:
    offered = [{"function": {"name": name, "parameters": {"properties": properties}}} for name, properties in tools]
    messages = [{"role": "user", "content": "scenario: agent"}, *({"role": "tool", "content": text} for text in results)]
    return ChatRequest({"messages": messages, "tools": offered, **fields})


def only_call(script: Script) -> tuple[str, dict[str, Any]]:
    (call,) = [step for step in script.steps if isinstance(step, CallTool)]
    return call.name, json.loads(call.arguments)


def run_bash(command: list[str] | str, folder: Path) -> str:
    argv = command if isinstance(command, list) else ["bash", "-c", command]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout


@pytest.mark.slow
@pytest.mark.parametrize("tool", [BASH, ARGV], ids=["text", "argv"])
def test_four_steps_in_a_real_shell(tool: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    results: tuple[str, ...] = ()
    for _ in range(3):
        name, arguments = only_call(agent(chat_request(tool, results=results)))
        assert name == tool[0]
        results += (run_bash(arguments["command"], tmp_path),)
    assert results[-1].endswith("Hello, world!\n")
    last = agent(chat_request(tool, results=results))
    assert not any(isinstance(step, CallTool) for step in last.steps)
    assert any(isinstance(step, Say) and "Hello, world!" in step.text for step in last.steps)


def test_the_first_step_thinks_speaks_and_calls() -> None:
    kinds = [type(step) for step in agent(chat_request(EXEC)).steps]
    assert kinds == [Think, Say, CallTool]


def test_codex_edits_with_its_patch_tool_or_through_its_shell(tmp_path: Path) -> None:
    name, arguments = only_call(agent(chat_request(EXEC, PATCH, results=("",))))
    assert name == "apply_patch"
    assert arguments["input"].startswith("*** Begin Patch\n*** Update File: greeting.py\n")
    assert arguments["input"].endswith("\n*** End Patch")
    name, arguments = only_call(agent(chat_request(EXEC, results=("",))))
    assert name == "exec_command"
    assert arguments["cmd"].startswith("apply_patch <<'EOF'\n*** Begin Patch\n")
    # the lines that the patch takes away are those that the first step wrote
    _, first = only_call(agent(chat_request(EXEC)))
    removed = [line[1:] for line in arguments["cmd"].splitlines() if line.startswith("-")]
    run_bash(first["cmd"], tmp_path)
    written = (tmp_path / "greeting.py").read_text(encoding="utf-8")
    assert all(line in written.splitlines() for line in removed)
    assert (
        subprocess.run([sys.executable, "greeting.py"], cwd=tmp_path, capture_output=True, check=True).stdout
        == b"Hello world\n"
    )


def test_code_mode_gets_javascript() -> None:
    name, arguments = only_call(agent(chat_request(CODE_MODE)))
    assert name == "functions__exec"
    assert arguments["input"].startswith('const r = await tools.exec_command({cmd: "cat > greeting.py')


def test_the_report_fits_the_schema_that_the_client_wants() -> None:
    schema = {"type": "object", "properties": {"summary": {"type": "string"}}, "required": ["summary"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "report", "schema": schema}}
    last = agent(chat_request(EXEC, results=("", "", "ok"), response_format=wanted)).steps[-1]
    assert isinstance(last, Say)
    assert set(json.loads(last.text)) == {"summary"}


@pytest.mark.parametrize("scenario", [agent, patch])
def test_without_tools_there_is_still_an_answer(scenario: Callable[[ChatRequest], Script]) -> None:
    steps = scenario(chat_request()).steps
    assert steps
    assert not any(isinstance(step, CallTool) for step in steps)


def test_patch_adds_one_file() -> None:
    name, arguments = only_call(patch(chat_request(EXEC, PATCH)))
    assert (name, "*** Add File: hello.txt" in arguments["input"]) == ("apply_patch", True)
    assert only_call(patch(chat_request(EXEC)))[0] == "exec_command"
