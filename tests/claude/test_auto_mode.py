"""Claude Code in the mode in which it starts by itself: its user is asked nothing as long as the gateway's judge finds the
calls safe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from responses_gateway.simulator import SimulatorOptions
from tests.claude.claude_code import BINARY, ClaudeCode
from tests.codex.servers import GREETING, Background, Stage, open_stage
from tests.codex.terminal import TMUX, in_terminal

pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed")
ROOT = Path(__file__).parents[2]


@contextmanager
def staged(judge: str | None) -> Iterator[Stage]:
    """Servers with this judge. The simulated one has a list of words that are dangerous."""
    servers = Background()
    stack = AsyncExitStack()
    stage = servers.run(stack.enter_async_context(open_stage(SimulatorOptions(), [], {"safeguards_model": judge})))
    yield stage
    servers.run(stack.aclose())
    servers.stop()
    assert stage.complaints() == []


def wrapped(claude: ClaudeCode, url: str) -> list[str]:
    """Return the command that runs it by ours."""
    claude.environment["PATH"] = f"{BINARY.parent}:{os.environ['PATH']}"
    claude.environment["PYTHONPATH"] = str(ROOT / "proxy")
    claude.answer_first_questions(claude.home)
    return [sys.executable, "-m", "responses_gateway", "claude", "--url", url, "--claude-home", str(claude.home)]


def test_commands_run_without_a_question(tmp_path: Path) -> None:
    with staged("simulator") as stage:
        claude = ClaudeCode(tmp_path, stage.url)
        with claude.terminal(mode=(), shown="auto mode on") as terminal:
            terminal.type("scenario: agent tps: 200")
            screen = terminal.wait_for(
                "Done: the file is written and checked, in 4 tool calls.", "ran 1 shell command", "Hello, world!"
            )
            assert "can't check" not in screen
        assert (claude.workspace / "greeting.py").read_text() == GREETING
        assert {exchange.path.partition("?")[0] for exchange in stage.exchanges} == {"/v1/messages"}


def test_without_a_verdict_nothing_is_run(tmp_path: Path) -> None:
    with staged("sim-status=503") as stage:
        claude = ClaudeCode(tmp_path, stage.url)
        with claude.terminal(mode=(), shown="auto mode on") as terminal:
            terminal.type("scenario: agent tps: 200")
            terminal.wait_for("Not run", "gave no verdict", "· done")
        assert not (claude.workspace / "greeting.py").exists()


def test_the_command_keeps_auto_mode_where_calls_are_judged(tmp_path: Path) -> None:
    with staged("simulator") as stage:
        claude = ClaudeCode(tmp_path, stage.url)
        with in_terminal(wrapped(claude, stage.url), claude.workspace, claude.environment) as terminal:
            terminal.wait_for("auto mode on")
            terminal.type("scenario: agent tps: 200")
            terminal.wait_for("Done: the file is written and checked, in 4 tool calls.", "· done")


def test_the_command_starts_in_the_default_mode_where_nobody_judges_and_says_so_once(tmp_path: Path) -> None:
    with staged(None) as stage:
        claude = ClaudeCode(tmp_path, stage.url)
        with in_terminal(wrapped(claude, stage.url), claude.workspace, claude.environment) as terminal:
            screen = terminal.wait_for("? for shortcuts")
            assert screen.count("safeguards_model") == 1
            assert "auto mode on" not in screen
            terminal.type("scenario: agent tps: 200")
            screen = terminal.wait_for("Do you want to create greeting.py?")
            assert "can't check" not in screen
