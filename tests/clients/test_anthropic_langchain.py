"""LangChain's `ChatAnthropic`: each test looks at the deed of its name in `anthropic_langchain.py`."""

from __future__ import annotations

from typing import Any

from tests.clients.client_programs import Output

PROGRAM = "anthropic_langchain.py"


def test_nothing_is_complained_about(output: Output) -> None:
    assert output.errors == []


def test_whole(got: Any) -> None:
    assert got["text"] == "A plain answer to “scenario: plain”."
    assert got["usage"] > 0


def test_stream(got: Any) -> None:
    assert "17 × 23" in got["reasoning"]
    assert got["text"] == "The answer is **391**."
    assert got["pieces"] > 2
    assert got["usage"] > 0


def test_tool(got: Any) -> None:
    assert [call[1]["city"] for call in got["calls"]] == ["Rome", "Lima"]
    assert "22 degrees in Lima" in got["text"]


def test_count(got: Any) -> None:
    assert got["counted"] == got["used"] > 0


def test_structured(got: Any) -> None:
    assert set(got) == {"name", "population"}


def test_refused(got: Any) -> None:
    assert got["status"] == 400
    assert "prompt is too long" in got["message"]


def test_failed_stream(got: Any) -> None:
    assert "broke in the middle" in got["error"]
