"""The text interface of Claude Code: whole turns, and turns that its user ends."""

from __future__ import annotations

import pytest

from tests.claude.claude_code import ClaudeCode
from tests.codex.servers import GREETING, Stage
from tests.codex.terminal import TMUX, eventually

pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed")


def test_a_whole_turn(claude: ClaudeCode, stage: Stage) -> None:
    with claude.terminal() as terminal:
        terminal.type("scenario: agent tps: 200")
        shown = ("Thought for", "Write(greeting.py)", "Update(greeting.py)", "Added 1 line, removed 1 line", "Hello, world!")
        screen = terminal.wait_for("Done: the file is written and checked, in 4 tool calls.", "· done", *shown)
        assert "recognize" not in screen  # its window is set
        assert "Error" not in screen
    assert (claude.workspace / "greeting.py").read_text() == GREETING
    assert [exchange.status for exchange in stage.exchanges] == [200] * 5


def test_an_interrupted_answer_frees_the_backend_and_the_next_one_comes(claude: ClaudeCode, stage: Stage) -> None:
    with claude.terminal() as terminal:

        def shows(text: str, times: int = 1) -> bool:
            """Press Enter until a text is to be seen: just behind an interruption the key is not heard."""
            if stage.counters.running == 0:
                terminal.press("Enter")
            return terminal.screen().count(text) >= times

        for number, key in enumerate(("Escape", "C-c"), start=1):
            terminal.type("scenario: long tokens: 5000 tps: 10")
            eventually(lambda number=number: shows("● Once quick brown fox jumps", number), terminal.screen)
            assert stage.counters.running == 1
            terminal.press(key)
            eventually(lambda number=number: terminal.screen().count("Interrupted") >= number, terminal.screen)
            eventually(lambda: stage.counters.running == 0, lambda: stage.counters)
            assert stage.counters.aborted == number
        terminal.type("scenario: plain go on")
        eventually(lambda: shows("A plain answer to"), terminal.screen)
        terminal.wait_for("scenario: plain go on”.")


def test_escape_frees_a_backend_that_has_not_begun(claude: ClaudeCode, stage: Stage) -> None:
    with claude.terminal() as terminal:
        terminal.type("scenario: plain fault: slow-headers=600")
        eventually(lambda: stage.counters.running == 1, terminal.screen)
        terminal.press("Escape")
        eventually(lambda: stage.counters.running == 0, lambda: stage.counters)
