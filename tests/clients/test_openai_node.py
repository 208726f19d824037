"""openai-node: each test looks at the deed of its name in `openai_node.mjs`."""

from __future__ import annotations

from typing import Any

from tests.clients.client_programs import Output

PROGRAM = "openai_node.mjs"
PLAIN = "A plain answer to “scenario: plain”."


def test_nothing_is_complained_about(output: Output) -> None:
    assert output.errors == []


def test_whole(got: Any) -> None:
    assert (got["text"], got["status"]) == (PLAIN, "completed")
    assert got["total"] > 0


def test_stream(got: Any) -> None:
    assert got["kinds"][0] == "response.created"
    assert got["text"] == got["final"]
    assert got["text"].startswith("You said “hello”.")


def test_stream_helper(got: Any) -> None:
    assert got["items"] == ["reasoning", "message", "function_call"]
    assert got["text"].startswith("Let me check that for you.")
    assert got["reasoning"].startswith("The user wants to know")


def test_reasoning(got: Any) -> None:
    assert "17 × 23" in got["content"]
    assert got["summary"] == got["content"]
    assert got["text"] == "The answer is **391**."


def test_tool(got: Any) -> None:
    assert (got["name"], got["city"]) == ("get_weather", "Paris")
    assert "22 degrees" in got["text"]


def test_previous_response(got: Any) -> None:
    assert "21 degrees" in got["text"]
    assert got["kept"] == got["text"]


def test_conversation(got: Any) -> None:
    assert got == {"text": PLAIN, "items": ["user", "reasoning", "assistant", "user", "assistant"]}


def test_parse(got: Any) -> None:
    assert got["parsed"] == got["streamed"]
    assert set(got["parsed"]) == {"name", "population"}


def test_background(got: Any) -> None:
    assert got == {"first": "queued", "status": "completed", "text": PLAIN}


def test_refused(got: Any) -> None:
    assert got == {"bad": True, "status": 400, "code": "context_length_exceeded", "id": True}


def test_failed_stream(got: Any) -> None:
    assert got["code"] == "server_error"
    assert "broke in the middle" in got["message"]


def test_models(got: Any) -> None:
    assert got == ["simulator"]
