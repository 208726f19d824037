"""Who asks, of every captured request of the real clients: the values that `tests/data/sessions` expects, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.request.who_asks import Asker, asker_of
from tests.data_folder import BESIDE, DATA

SESSIONS = sorted((DATA / "sessions").glob("*.json"))
NAMES = ("session", "thread", "parent", "turn", "agent")


def kind_of(expected: dict[str, str], asker: Asker, *, hints: bool) -> str | None:
    """Return the kind that a client's own word means: a turn is a sub-agent's, or a main one where it says so."""
    if expected["kind"] != "turn":
        return expected["kind"]
    if expected.get("agent") == "review":
        return "review"
    if "parent" in expected:
        return "subagent"
    return "main" if hints else None


@pytest.mark.parametrize("path", SESSIONS, ids=[path.stem for path in SESSIONS])
def test_every_captured_request_says_who_asks(path: Path) -> None:
    for request in json.loads(path.read_text()):
        headers = request["headers"]
        expected = request["expect"]
        asker = asker_of(headers, request["body"], handshake=request["door"] == "responses-websocket")
        told = {name: getattr(asker, name) for name in NAMES if getattr(asker, name) is not None}
        assert told == {name: expected[name] for name in NAMES if name in expected}
        hints = "codex" in path.stem or "x-claude-code-request-class" in headers
        assert asker.kind == kind_of(expected, asker, hints=hints)
        assert {name for name in (*NAMES, "kind") if getattr(asker, name) is not None} <= asker.source.keys()


def test_there_are_captures_of_each_client() -> None:
    assert {path.stem.split("-")[0] for path in SESSIONS} == {"claude", "codex", "opencode"}
    assert len(SESSIONS) == 14


def captured(client: str, number: str) -> Any:
    folder = BESIDE / client / "requests"
    path = next(iter(folder.glob(f"{number}-*.json")), None) if folder.is_dir() else None
    if path is None:
        pytest.skip("no captured requests beside the checkout")
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("client", "number", "kind"),
    [
        ("codex", "29", "title"),
        ("codex", "31", "compaction"),
        ("codex", "33", "compaction"),
        ("claude", "13", "title"),
        ("claude", "15", "auxiliary"),
        ("claude", "16", "subagent"),
    ],
)
def test_kinds_that_the_scenarios_do_not_have(client: str, number: str, kind: str) -> None:
    request = captured(client, number)
    asker = asker_of(request["headers"], request["body"])
    assert asker.kind == kind
    assert asker.session is not None


def test_a_fork_names_the_thread_that_it_continues() -> None:
    first, fork = json.loads((DATA / "sessions" / "codex-fork.json").read_text())
    asker = asker_of(fork["headers"], fork["body"])
    assert asker.forked_from == first["expect"]["thread"]
    assert asker.session != first["expect"]["session"]


def test_claude_code_says_how_long_its_tools_took() -> None:
    request = json.loads((DATA / "sessions" / "claude-nested-hints.json").read_text())[1]
    assert asker_of(request["headers"], request["body"]).tool_seconds == 0.057
