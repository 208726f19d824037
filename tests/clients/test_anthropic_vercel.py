"""The Vercel AI SDK with `@ai-sdk/anthropic`: each test looks at the deed of its name in `anthropic_vercel.mjs`."""

from __future__ import annotations

from typing import Any

from tests.clients.client_programs import Output

PROGRAM = "anthropic_vercel.mjs"


def test_nothing_is_complained_about(output: Output) -> None:
    assert output.errors == []


def test_whole(got: Any) -> None:
    assert (got["text"], got["reason"]) == ("A plain answer to “scenario: plain”.", "stop")
    assert got["total"] > 0


def test_stream(got: Any) -> None:
    parts = [kind for kind in got["kinds"] if kind.endswith("-start") and kind != "start-step"]
    assert parts == ["reasoning-start", "text-start"]
    assert "17 × 23" in got["reasoning"]
    assert got["text"] == "The answer is **391**."


def test_tool(got: Any) -> None:
    assert (got["steps"], got["inputs"]) == (2, [{"city": "Rome"}, {"city": "Lima"}])
    assert "22 degrees in Lima" in got["text"]


def test_structured(got: Any) -> None:
    assert set(got["parsed"]) == {"name", "population"}


def test_refused(got: Any) -> None:
    assert (got["ours"], got["status"]) == (True, 400)
    assert "prompt is too long" in got["message"]


def test_failed_stream(got: Any) -> None:
    assert got["reason"] == "error"
    assert "error" in got["kinds"]
    assert "broke in the middle" in got["errors"][0]
