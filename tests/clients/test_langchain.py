"""LangChain's `ChatOpenAI` with `use_responses_api`: each test looks at the deed of its name in `langchain_chat.py`."""

from __future__ import annotations

from typing import Any

from tests.clients.client_programs import Output
from tests.codex.servers import Stage

PROGRAM = "langchain_chat.py"
PLAIN = "A plain answer to “scenario: plain”."


def test_nothing_is_complained_about(output: Output) -> None:
    assert output.errors == []


def test_whole(got: Any) -> None:
    assert got["text"] == PLAIN
    assert got["usage"] > 0


def test_stream(got: Any) -> None:
    assert got["text"] == PLAIN
    assert got["usage"] > 0
    assert got["pieces"] > 2


def test_asynchronous(got: Any) -> None:
    assert got["text"] == PLAIN


def test_reasoning(got: Any) -> None:
    assert "17 × 23" in got["reasoning"]
    assert got["text"] == "The answer is **391**."


def test_streamed_reasoning(got: Any) -> None:
    assert "17 × 23" in got["reasoning"]
    assert got["text"] == "The answer is **391**."


def test_tool(got: Any) -> None:
    assert got["calls"] == [["get_weather", {"city": "Paris"}]]
    assert "22 degrees in Paris" in got["text"]


def test_parallel_tools(got: Any) -> None:
    assert [call[1]["city"] for call in got["calls"]] == ["Rome", "Lima"]
    assert "22 degrees in Lima" in got["text"]


def test_streamed_tool(got: Any) -> None:
    assert got["calls"] == [["get_weather", {"city": "Paris"}]]
    assert got["text"].startswith("Let me check that for you.")


def test_previous_response(got: Any, stage: Stage) -> None:
    assert got["id"] == "resp_"
    assert "22 degrees in Paris" in got["text"]
    referring = [each.request for each in stage.exchanges if each.request.get("previous_response_id")]
    assert [[item["type"] for item in request["input"]] for request in referring] == [["function_call_output"]]


def test_structured(got: Any) -> None:
    assert set(got["parsed"]) == set(got["called"]) == {"name", "population"}


def test_refused(got: Any) -> None:
    assert (got["status"], got["code"]) == (400, "context_length_exceeded")


def test_failed_stream(got: Any) -> None:
    assert "broke in the middle" in got["error"]
