"""The Vercel AI SDK with tools of the provider: each test looks at the deed of its name in `vercel_ai.mjs`. Most are done with
`generateText` and with `streamText`, and must give the same."""

from __future__ import annotations

from typing import Any

from tests.clients.client_programs import Output
from tests.clients.hosted.conftest import Hosted

PROGRAM = "hosted/vercel_ai.mjs"
ANSWER = "The tower is 321 metres high."
RESULT = {"type": "call", "serverLabel": "example", "name": "add", "arguments": '{"a": 1, "b": 2}', "output": "3"}


def both(got: Any) -> Any:
    """Return what came of a deed."""
    assert got["streamed"] == got["whole"]
    return got["whole"]


def test_warnings_are_those_of_a_history_that_is_not_stored(output: Output) -> None:
    warnings = [line for line in output.errors if "AI SDK Warning (" in line]
    assert [line for line in warnings if "when store is false" not in line] == []


def test_web_search(got: Any, hosted: Hosted) -> None:
    page = f"{hosted.web}/tower"
    assert both(got)["text"] == ANSWER
    action = {"type": "search", "query": "tower", "queries": ["tower"]}
    assert both(got)["outputs"] == [{"action": action, "sources": [{"type": "url", "url": page}]}]
    assert both(got)["sources"] == [page]


def test_web_citation(got: Any) -> None:
    assert both(got) == ["The tower of Example"]


def test_web_pages(got: Any) -> None:
    assert both(got) == ["openPage", "findInPage"]


def test_file_search(got: Any) -> None:
    assert both(got)["text"] == ANSWER
    [found] = both(got)["outputs"]
    assert found["queries"] == ["tower"]
    assert [(one["fileId"], one["text"], one["score"]) for one in found["results"]] == [
        ("doc-0", "tower 0", 1),
        ("doc-1", "tower 1", 0.5),
    ]
    assert both(got)["files"] == ["Manual 0", "Manual 1"]


def test_code_interpreter(got: Any) -> None:
    code = "print(6 * 7)"
    logs = f"ran: {code}"
    assert both(got) == {
        "text": f"The tool said: {logs}",
        "input": code,
        "outputs": [{"outputs": [{"type": "logs", "logs": logs}]}],
    }


def test_mcp(got: Any) -> None:
    assert both(got) == {"text": "The tool said: 3", "outputs": [RESULT]}


def test_mcp_failure(got: Any) -> None:
    assert both(got) == ["mcp_tool_execution_error"]


def test_mcp_without_server(got: Any) -> None:
    assert both(got) == "You are welcome."


def test_approval(got: Any) -> None:
    assert both(got) == {
        "called": "mcp.add",
        "outputs": [RESULT],
        "text": "The tool said: 3",
        "last": "You are welcome.",
    }


def test_conversation(got: Any) -> None:
    assert got["errors"] == []
    assert got["calls"] == ["web_search", "file_search", "code_interpreter", "mcp.add"]
    assert got["texts"] == ["You are welcome."] * 2
