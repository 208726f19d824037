"""The Vercel AI SDK: each test looks at the deed of its name in `vercel_ai.mjs`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.client_programs import Output, absence, run
from tests.codex.servers import Stage

PROGRAM = "vercel_ai.mjs"
PLAIN = "A plain answer to “scenario: plain”."


def test_nothing_is_complained_about(output: Output) -> None:
    assert output.errors == []
    warnings = [result["warnings"] for result in output.results.values() if "warnings" in result]
    assert warnings == [[]] * 4


def test_whole(got: Any) -> None:
    assert (got["text"], got["reason"]) == (PLAIN, "stop")
    assert got["total"] > 0


def test_stream(got: Any) -> None:
    parts = [kind for kind in got["kinds"] if kind.endswith(("-start", "-call")) and kind != "start-step"]
    assert parts == ["reasoning-start", "text-start", "tool-input-start", "tool-call"]
    assert got["kinds"][-1] == "finish"
    assert got["text"].startswith("Let me check that for you.")
    assert got["reason"] == "tool-calls"


def test_reasoning(got: Any) -> None:
    assert "17 × 23" in got["reasoning"]
    assert got["text"] == "The answer is **391**."


def test_reasoning_without_asking(summarising_stage: Stage) -> None:
    reason = absence(PROGRAM)
    if reason is not None:
        pytest.skip(reason)
    output = run(PROGRAM, summarising_stage.url)
    kinds = output.results["stream"]["kinds"]
    assert kinds[kinds.index("reasoning-start") + 1] == "reasoning-delta"
    assert "17 × 23" in output.results["reasoning"]["reasoning"]
    assert output.errors == []


def test_streamed_reasoning(got: Any) -> None:
    assert "17 × 23" in got["reasoning"]


def test_tool(got: Any) -> None:
    assert (got["steps"], got["called"]) == (2, ["get_weather"])
    assert "22 degrees in Paris" in got["text"]


def test_tool_with_reasoning(got: Any) -> None:
    assert got["steps"] == 2
    assert "22 degrees in Paris" in got["text"]


def test_stateless_tool(got: Any) -> None:
    """Store nothing: the reasoning comes back encrypted."""
    assert got["steps"] == 2
    assert "22 degrees in Paris" in got["text"]


def test_previous_response(got: Any, stage: Stage) -> None:
    assert got["text"] == PLAIN
    first = [[message["content"] for message in chat["messages"]][:1] for chat in stage.chats if len(chat["messages"]) == 3]
    assert ["My name is Ada."] in first


def test_structured(got: Any) -> None:
    assert set(got["parsed"]) == {"name", "population"}


def test_refused(got: Any) -> None:
    assert (got["ours"], got["status"]) == (True, 400)
    assert "maximum context length" in got["message"]


def test_failed_stream(got: Any) -> None:
    assert got["reason"] == "error"
    assert "error" in got["kinds"]
    assert "broke in the middle" in got["errors"][0]
