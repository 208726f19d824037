"""Codex over a WebSocket does what it does over HTTP, and sends only what is new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.codex.codex_cli import Codex, Run
from tests.codex.servers import Stage, StartStage


def work(folder: Path, stage: Stage, prompt: str, *, websocket: bool) -> Run:
    codex = Codex(folder, stage.url)
    codex.use_catalog()
    codex.provider["supports_websockets"] = websocket
    return codex.run(prompt)


def answered(stage: Stage) -> list[Any]:
    """Return the chat requests, but for those that only had the prompt read: Codex begins a session with one."""
    return [chat for chat in stage.chats if chat.get("max_completion_tokens") != 1]


def told(stage: Stage) -> list[list[tuple[str, int]]]:
    """Roles and calls of the messages of each chat request."""
    return [
        [(message["role"], len(message.get("tool_calls") or ())) for message in chat["messages"]] for chat in answered(stage)
    ]


def outcome(run: Run) -> Any:
    return run.code, run.errors, run.answers, sorted((each["command"], each["exit_code"]) for each in run.commands)


@pytest.mark.parametrize("prompt", ["scenario: plain", "scenario: agent", "scenario: parallel", "scenario: patch"])
def test_the_same_as_over_http(tmp_path: Path, start_stage: StartStage, prompt: str) -> None:
    stages = start_stage(), start_stage()
    runs = [work(tmp_path / str(way), stages[way], prompt, websocket=bool(way)) for way in (0, 1)]
    assert outcome(runs[0]) == outcome(runs[1])
    assert runs[0].code == 0
    assert told(stages[0]) == told(stages[1])
    assert len(stages[1].chats) == len(answered(stages[1])) + 1
    assert [(each.method, each.status) for each in stages[1].exchanges] == [("GET", 101)]


@pytest.mark.parametrize("fault", ["drop=text", "status=500", "status=429,retry-after=1", "status=429"])
def test_a_broken_answer_is_asked_for_again(tmp_path: Path, start_stage: StartStage, fault: str) -> None:
    stage = start_stage()
    run = work(tmp_path, stage, f"scenario: plain fault: {fault},once", websocket=True)
    assert (run.code, len(run.answers)) == (0, 1)
    assert len(answered(stage)) == 2
