"""The OpenAI Agents SDK with hosted tools: each test looks at the deed of its name in `agents_sdk.py`."""

from __future__ import annotations

from typing import Any

from tests.clients.client_programs import Output
from tests.clients.hosted.conftest import Hosted

PROGRAM = "hosted/agents_sdk.py"
SUM = "The tool said: 3"


def test_nothing_is_complained_about(output: Output) -> None:
    assert output.errors == []


def test_web_search(got: Any) -> None:
    assert got["names"] == ["reasoning_item_created", "tool_called", "reasoning_item_created", "message_output_created"]
    assert got["text"] == "The tower is 321 metres high."
    assert (got["query"], got["title"]) == ("tower", "The tower of Example")


def test_web_sources(got: Any, hosted: Hosted) -> None:
    assert got == [f"{hosted.web}/tower"]


def test_file_search(got: Any) -> None:
    assert got["found"] == [["Manual 0", "tower 0", 1.0], ["Manual 1", "tower 1", 0.5]]
    assert got["cited"] == ["Manual 0"]


def test_code_interpreter(got: Any) -> None:
    assert (got["code"], got["logs"]) == ("print(6 * 7)", "ran: print(6 * 7)")
    assert got["container"].startswith("cntr_")


def test_mcp_tools(got: Any) -> None:
    assert got["names"][:3] == ["mcp_list_tools", "reasoning_item_created", "tool_called"]
    assert "add" in got["tools"]
    assert (got["output"], got["text"]) == ("3", SUM)


def test_approved(got: Any) -> None:
    assert got["asked"] == [["add", {"a": 1, "b": 2}]] * 3
    assert got["outputs"] == [["3"]] * 3
    assert got["texts"] == [SUM] * 3


def test_refused(got: Any) -> None:
    assert got["asked"] == [["add", {"a": 1, "b": 2}]] * 3
    assert got["outputs"] == [[]] * 3
    assert all("did not approve" in text and "as you like" in text for text in got["texts"])


def test_interruption(got: Any) -> None:
    assert got == {"interruptions": 1, "text": SUM, "again": "You are welcome."}


def test_all_tools(got: Any, hosted: Hosted) -> None:
    assert got["kinds"] == [
        "mcp_list_tools",
        "reasoning",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "mcp_call",
        "function_call",
        "function_call_output",
        "reasoning",
        "message",
    ]
    # The SDK sends the items back with the result of its own function: the model is told what all the others returned, too.
    assert got["text"] == "The tower is 321 metres high."
    turns = [[message["content"] for message in chat["messages"] if message["role"] == "tool"] for chat in hosted.chats]
    (searched, found, ran, *rest) = next(told for told in turns if len(told) == 5)
    assert ("It is 321 metres high." in searched, "Manual 0" in found, ran) == (True, True, "ran: print(6 * 7)")
    assert rest == ["3", "22 degrees in Paris"]
    assert got["again"] == "You are welcome."
