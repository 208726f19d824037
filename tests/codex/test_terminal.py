"""The text interface of the client: whole turns, typed and read in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.codex.codex_cli import Codex
from tests.codex.servers import GREETING, Stage
from tests.codex.terminal import TMUX, Terminal, eventually, running
from tests.codex.test_catalog import configure

pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed")


@pytest.fixture
def terminal(codex: Codex) -> Iterator[Terminal]:
    codex.use_catalog()
    with running(codex) as terminal:
        terminal.wait_for("Ask Codex to do anything")
        yield terminal


def test_a_whole_turn(codex: Codex, stage: Stage, terminal: Terminal) -> None:
    terminal.type("scenario: agent tps: 80")
    terminal.wait_for("The greeting should use")  # reasoning, while it comes
    screen = terminal.wait_for("Done: the file is written and checked", "Worked for")
    for shown in ("I'll start with greeting.py.", "Ran cat > greeting.py", "Edited greeting.py (+1 -1)", "Hello, world!"):
        assert shown in screen
    assert "⚠" not in screen
    assert "■" not in screen
    assert codex.files() == {"greeting.py": GREETING}
    terminal.press("C-t")
    terminal.wait_for("A small file is enough: write it, improve it, run it.")  # reasoning, in the transcript
    assert len([each for each in stage.exchanges if each.status == 200]) == 5  # four steps and the thread's title


@pytest.mark.parametrize("silence", ["slow-headers", "delay"])
def test_escape_frees_a_backend_that_has_not_begun(stage: Stage, terminal: Terminal, silence: str) -> None:
    terminal.type(f"scenario: plain fault: {silence}=60")
    eventually(lambda: stage.counters.running == 1, terminal.screen)
    terminal.press("Escape")
    terminal.wait_for("Conversation interrupted")
    eventually(lambda: stage.counters.running == 0, lambda: stage.counters)


def test_escape_frees_the_backend(stage: Stage, terminal: Terminal) -> None:
    terminal.type("scenario: long tokens: 5000 tps: 50")
    terminal.wait_for("jumps over a lazy dog")
    assert stage.counters.running == 1
    terminal.press("Escape")
    terminal.wait_for("Conversation interrupted")
    eventually(lambda: stage.counters.running == 0, lambda: stage.counters)
    assert stage.counters.aborted == 1
    terminal.type("scenario: plain go on")
    terminal.wait_for("A plain answer to “scenario: plain go on”.")


def test_the_transcript_shows_reasoning_once(codex: Codex, stage: Stage) -> None:
    configure(codex, stage.url, "qwen3")
    with running(codex) as terminal:
        terminal.wait_for("Ask Codex to do anything")
        terminal.type("scenario: reasoning")
        terminal.wait_for("The answer is 391.")
        terminal.press("C-t")
        assert terminal.wait_for("Brevity wins").count("Brevity wins") == 1
