"""Anthropic's SDK for Node.js: each test looks at the deed of its name in `anthropic_node.mjs`."""

from __future__ import annotations

from typing import Any

from tests.clients.client_programs import Output

PROGRAM = "anthropic_node.mjs"


def test_nothing_is_complained_about(output: Output) -> None:
    assert output.errors == []


def test_whole(got: Any) -> None:
    assert (got["text"], got["reason"]) == ("A plain answer to “scenario: plain”.", "end_turn")
    assert got["output"] > 0


def test_stream(got: Any) -> None:
    assert got["kinds"] == ["thinking", "text"]
    assert got["thought"] == got["whole"]
    assert "17 × 23" in got["thought"]
    assert got["text"] == "The answer is **391**."


def test_tools(got: Any) -> None:
    assert (got["reason"], list(got["input"])) == ("tool_use", ["city"])
    assert "22 degrees" in got["text"]


def test_broken(got: Any) -> None:
    assert (got["raised"], got["type"]) == ("APIError", "api_error")


def test_busy(got: Any) -> None:
    assert got["type"] == "overloaded_error"
