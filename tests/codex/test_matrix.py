"""What Codex can do, with the configuration that `responses-gateway codex-config` writes and the gateway's catalog, over HTTP
and over a WebSocket: the work is done, and not one warning is shown."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.simulator import SimulatorOptions
from tests.codex.codex_cli import Codex, Run
from tests.codex.servers import GREETING, Stage, StartStage
from tests.codex.terminal import TMUX, running
from tests.codex.test_catalog import configure, warnings

_MCP = {"command": sys.executable, "args": [str(Path(__file__).with_name("tiny_mcp.py"))]}
_PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==")
# The model table of an operator who wants more of Codex than the defaults.
_TABLE = """
- match: lite
  use_responses_lite: true
  tool_mode: code_mode_only
- match: code
  tool_mode: code_mode
- match: agents
  multi_agent_version: v2
- match: search
  supports_search_tool: true
- match: seeing
  input_modalities: [text, image]
- match: short
  auto_compact_token_limit: 6000
"""
MODELS = ("plain", "lite", "code", "agents", "search", "seeing", "short")


@pytest.fixture
def stage(start_stage: StartStage, tmp_path: Path) -> Stage:
    table = tmp_path / "models.yaml"
    table.write_text(_TABLE)
    return start_stage(SimulatorOptions(models=MODELS), model_table=table)


@pytest.fixture(params=["http", "websocket"])
def codex(request: pytest.FixtureRequest, tmp_path: Path, stage: Stage) -> Codex:
    codex = Codex(tmp_path, stage.url)
    configure(codex, stage.url, "plain")
    codex.provider["supports_websockets"] = request.param == "websocket"
    return codex


def quiet(run: Run) -> Run:
    """Expect a run to end well and to complain of nothing."""
    assert (run.code, warnings(run)) == (0, [])
    return run


def names(chat: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in chat.get("tools", ())]


def test_work_in_several_steps(codex: Codex) -> None:
    run = quiet(codex.run("scenario: agent"))
    assert codex.files() == {"greeting.py": GREETING}
    assert "in 3 tool calls" in run.answers[-1]


@pytest.mark.parametrize("model", ["lite", "code"])
def test_code_mode(codex: Codex, stage: Stage, model: str) -> None:
    """Tools are called from JavaScript that the model writes; a lite model gets them as an item of its input."""
    codex.top["model"] = model
    quiet(codex.run("scenario: agent"))
    assert codex.files() == {"greeting.py": GREETING}
    assert "exec" in names(stage.chats[0])


def test_a_sub_agent(codex: Codex) -> None:
    run = quiet(codex.run("scenario: subagent"))
    assert "A plain answer to “scenario: plain. Say hello in one sentence.”" in run.answers[-1]


def test_a_sub_agent_of_the_second_kind(codex: Codex, stage: Stage) -> None:
    """Read its task from a message that would be encrypted if the server were OpenAI's: the client is told that it is not."""
    codex.top["model"] = "agents"
    run = quiet(codex.run("scenario: subagent"))
    assert "timed out" not in run.answers[-1]
    assert "encrypted" not in str([chat.get("tools") for chat in stage.chats])
    items = [item for each in stage.exchanges for item in each.request.get("input", ())]
    messages = [item["content"] for item in items if item["type"] == "agent_message"]
    assert messages or codex.provider["supports_websockets"]  # whose messages are not on the tape
    assert {part["type"] for content in messages for part in content} <= {"input_text"}
    tasks = [str(chat["messages"][-1]["content"]) for chat in stage.chats]
    assert any(task.startswith("<agent_message") and "Say hello in one sentence." in task for task in tasks)


@pytest.mark.parametrize("model", ["plain", "search"])
def test_a_tool_of_an_mcp_server(codex: Codex, model: str) -> None:
    codex.top["model"] = model
    codex.tables["mcp_servers.tiny"] = _MCP
    run = quiet(codex.run("scenario: mcp"))
    assert run.answers[-1].endswith("- the sum is 6")


def test_an_image(codex: Codex, stage: Stage) -> None:
    codex.top["model"] = "seeing"
    picture = codex.workspace / "pixel.png"
    picture.write_bytes(_PIXEL)
    run = quiet(codex.run("scenario: image", "--image", str(picture)))
    assert run.answers == ["I received 1 image part(s): image/png."]


def test_a_review(codex: Codex) -> None:
    codex.git("init", "--quiet")
    (codex.workspace / "notes.txt").write_text("one\n")
    codex.git("add", ".")
    codex.git("commit", "--quiet", "--message", "Begin")
    (codex.workspace / "notes.txt").write_text("one\ntwo\n")
    assert len(quiet(codex.run("--uncommitted", command="review")).answers) == 1


def test_a_session_is_resumed(codex: Codex, stage: Stage) -> None:
    quiet(codex.run("scenario: plain one"))
    run = quiet(codex.run("--last", "scenario: plain two", command="resume"))
    assert run.answers == ["A plain answer to “scenario: plain two”."]
    assert "scenario: plain one" in str(stage.chats[-1]["messages"])


@pytest.mark.parametrize("name", ["gateway", "OpenAI"])
def test_a_history_that_is_compacted(codex: Codex, stage: Stage, name: str) -> None:
    """Codex asks for a summary itself; of a provider called OpenAI it wants the compaction as an item."""
    codex.top["model"] = "short"
    codex.provider["name"] = name
    run = quiet(codex.run("scenario: agent"))
    assert run.answers[-1] == "I have read the summary; everything in it is done."
    asked = "Write this handoff summary now" if name == "OpenAI" else "CONTEXT CHECKPOINT COMPACTION"
    assert any(asked in str(chat["messages"][-1]["content"]) for chat in stage.chats)


@pytest.mark.skipif(TMUX is None, reason="tmux is not installed")
def test_compaction_and_another_model_in_the_terminal(codex: Codex, stage: Stage) -> None:
    with running(codex) as terminal:
        terminal.wait_for("Ask Codex to do anything")
        terminal.type("scenario: plain one")
        terminal.wait_for("A plain answer to “scenario: plain one”.")
        terminal.wait_for_turns(1)
        terminal.type("/compact")
        terminal.wait_for("Context compacted")
        terminal.wait_for_turns(2)
        terminal.type("scenario: plain two")
        terminal.wait_for("A plain answer to “scenario: plain two”.")
        terminal.wait_for_turns(3)
        assert "So far: " in str(stage.chats[-1]["messages"])  # the summary
        terminal.type("/model")
        terminal.wait_for("Select Model", "lite")
        terminal.press("Down")
        terminal.press("Enter")
        screen = terminal.wait_for("Model changed to")
        assert "⚠" not in screen
        assert "■" not in screen
