"""The official SDK for JavaScript with hosted tools: each test looks at the deed of its name in `openai_node.mjs`."""

from __future__ import annotations

from typing import Any

from tests.clients.client_programs import Output

PROGRAM = "hosted/openai_node.mjs"
ALL = {
    "kinds": [
        "mcp_list_tools",
        "reasoning",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "mcp_call",
        "reasoning",
        "message",
    ],
    "sources": 1,
    "results": 2,
    "logs": "ran: print(6 * 7)",
    "output": "3",
    "text": "The tower is 321 metres high.",
}


def test_nothing_is_complained_about(output: Output) -> None:
    assert output.errors == []


def test_whole(got: Any) -> None:
    assert got == ALL


def test_stream_helper(got: Any) -> None:
    assert got == {**ALL, "arguments": '{"a": 1, "b": 2}', "code": "print(6 * 7)", "annotations": ["url_citation"]}


def test_events(got: Any) -> None:
    """Compare with the order in which OpenAI sends them."""
    assert got == [
        "mcp_list_tools.in_progress",
        "mcp_list_tools.completed",
        "web_search_call.in_progress",
        "web_search_call.searching",
        "web_search_call.completed",
        "file_search_call.in_progress",
        "file_search_call.searching",
        "file_search_call.completed",
        "code_interpreter_call.in_progress",
        "code_interpreter_call_code.delta",
        "code_interpreter_call_code.done",
        "code_interpreter_call.interpreting",
        "code_interpreter_call.completed",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
    ]


def test_approval(got: Any) -> None:
    assert got == {"same": True, "output": "3", "text": "The tool said: 3", "kept": ["mcp_call", "reasoning", "message"]}


def test_history(got: Any) -> None:
    assert got == "You are welcome."
