"""The OpenAI Agents SDK: each test looks at the deed of its name in `agents_sdk.py`."""

from __future__ import annotations

from typing import Any

from tests.clients.client_programs import Output
from tests.codex.servers import Stage

PROGRAM = "agents_sdk.py"
PLAIN = "A plain answer to “scenario: plain”."


def test_nothing_is_complained_about(output: Output) -> None:
    assert output.errors == ["Error getting response"]  # of the request that is refused


def test_whole(got: Any) -> None:
    assert got["text"] == PLAIN
    assert got["total"] > 0


def test_stream(got: Any) -> None:
    assert "run_item_stream_event" in got["kinds"]
    assert got["items"] == [
        "reasoning_item_created",
        "message_output_created",
        "tool_called",
        "tool_output",
        "reasoning_item_created",
        "message_output_created",
    ]
    assert got["text"].startswith("Let me check that for you.")
    assert got["text"].endswith(got["final"])
    assert "22 degrees in Paris" in got["final"]


def test_reasoning(got: Any) -> None:
    assert "17 × 23" in got["content"]
    assert got["summary"] == got["content"]
    assert got["text"] == "The answer is **391**."


def test_tool(got: Any) -> None:
    assert got["items"][:3] == ["reasoning_item", "tool_call_item", "tool_call_output_item"]
    assert "22 degrees in Paris" in got["text"]


def test_parallel_tools(got: Any) -> None:
    assert got["calls"] == 2
    assert "22 degrees in Rome" in got["text"]
    assert "22 degrees in Lima" in got["text"]


def test_history(got: Any) -> None:
    assert got["text"] == PLAIN


def test_previous_response(got: Any, stage: Stage) -> None:
    assert "22 degrees in Paris" in got["first"]
    assert got["text"] == "A plain answer to “scenario: plain again”."
    [last] = [chat["messages"] for chat in stage.chats if chat["messages"][-1]["content"] == "scenario: plain again"]
    assert [message["role"] for message in last] == ["system", "user", "assistant", "tool", "assistant", "user"]


def test_session(got: Any) -> None:
    assert got["text"] == PLAIN
    assert got["items"] == 8  # question, thought, call, result, thought, answer; question, answer


def test_structured(got: Any) -> None:
    assert set(got["parsed"]) == {"name", "population"}


def test_handoff(got: Any) -> None:
    assert got["last"] == "Weatherman"


def test_agent_as_tool(got: Any) -> None:
    assert got["text"].startswith("The tools answered:")


def test_refused(got: Any) -> None:
    assert got == {"status": 400, "code": "context_length_exceeded"}


def test_failed_stream(got: Any) -> None:
    assert "broke in the middle" in got["error"]
