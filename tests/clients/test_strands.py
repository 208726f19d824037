"""Strands Agents: each test looks at the deed of its name in `strands_agents.py`."""

from __future__ import annotations

from typing import Any

from tests.codex.servers import Stage

PROGRAM = "strands_agents.py"
PLAIN = "A plain answer to “scenario: plain”."


def test_text(got: Any) -> None:
    assert got.strip() == PLAIN


def test_stream(got: Any) -> None:
    assert "".join(got) == PLAIN
    assert len(got) > 2


def test_tool(got: Any) -> None:
    assert got.strip() == "The tools answered:\n\n- 22 degrees in Paris"


def test_conversation(got: Any, stage: Stage) -> None:
    assert got.strip() == "A plain answer to “scenario: plain again”."
    (second,) = [chat for chat in stage.chats if chat["messages"][-1]["content"] == "scenario: plain again"]
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "user"]


def test_structured(got: Any) -> None:
    assert got == {"name": "Ada", "inhabitants": 3}
