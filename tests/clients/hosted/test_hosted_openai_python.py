"""The official SDK for Python with hosted tools: typed items, typed events, and what the SDK accumulates of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from openai.types.responses import (
    Response,
    ResponseCodeInterpreterToolCall,
    ResponseFileSearchToolCall,
    ResponseFunctionWebSearch,
    ResponseOutputMessage,
    ResponseReasoningItem,
)
from openai.types.responses.response_output_item import McpApprovalRequest, McpCall, McpListTools

from tests.clients.hosted.conftest import Hosted

SEARCH = 'call web_search {"queries": ["tower"]}'
ADD = 'call docs__add {"a": 1, "b": 2}'
MANUALS = 'call file_search {"queries": ["tower"]}'
CODE = 'call python {"code": "print(6 * 7)"}'
MCP: Any = {"type": "mcp", "server_label": "docs", "require_approval": "never"}
ALL: Any = {
    "model": "qwen3",
    "input": f"{SEARCH}\n{MANUALS}\n{CODE}\n{ADD}",
    "tools": [
        {"type": "web_search"},
        {"type": "file_search", "vector_store_ids": ["vs_manuals"], "max_num_results": 2},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        MCP,
    ],
    "include": ["web_search_call.action.sources", "file_search_call.results", "code_interpreter_call.outputs"],
}


@pytest.fixture(scope="module")
def client(hosted: Hosted) -> Iterator[OpenAI]:
    http = httpx2.Client(trust_env=False)
    with OpenAI(base_url=hosted.stage.url, api_key="sk-test", max_retries=0, http_client=http) as client:
        yield client


def assert_all_tools(response: Response) -> None:
    """Check the items of all tools: their types, their members, and that the SDK knows each member."""
    listed, thought, searched, found, ran, called, _, message = response.output
    assert isinstance(listed, McpListTools)
    assert "add" in {tool.name for tool in listed.tools}
    assert isinstance(thought, ResponseReasoningItem)
    assert isinstance(searched, ResponseFunctionWebSearch)
    assert searched.action.type == "search"
    assert searched.action.queries == ["tower"]
    assert [source.url.endswith("/tower") for source in searched.action.sources or []] == [True]
    assert isinstance(found, ResponseFileSearchToolCall)
    assert [(one.file_id, one.text) for one in found.results or []] == [("doc-0", "tower 0"), ("doc-1", "tower 1")]
    assert isinstance(ran, ResponseCodeInterpreterToolCall)
    assert ran.outputs is not None
    assert (ran.code, ran.outputs[0].type) == ("print(6 * 7)", "logs")
    assert isinstance(called, McpCall)
    assert (called.name, called.output, called.error, called.status) == ("add", "3", None, "completed")
    assert isinstance(message, ResponseOutputMessage)
    part = message.content[0]
    assert part.type == "output_text"
    [citation] = part.annotations
    assert citation.type == "url_citation"
    assert part.text[citation.start_index : citation.end_index] == "The tower is 321 metres high"
    assert [item.model_extra for item in response.output] == [{}] * 8


def test_create(client: OpenAI) -> None:
    raw = client.responses.with_raw_response.create(**ALL)
    assert_all_tools(raw.parse())
    assert "include" not in raw.headers.get("x-responses-gateway-losses", "")


def test_accumulated_stream(client: OpenAI) -> None:
    with client.responses.stream(**ALL) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert_all_tools(final)
    kinds = [event.type for event in events]
    assert {type(event).__name__ for event in events if event.type.startswith("response.mcp")} == {
        "ResponseMcpListToolsInProgressEvent",
        "ResponseMcpListToolsCompletedEvent",
        "ResponseMcpCallInProgressEvent",
        "ResponseMcpCallArgumentsDeltaEvent",
        "ResponseMcpCallArgumentsDoneEvent",
        "ResponseMcpCallCompletedEvent",
    }
    code = "".join(event.delta for event in events if event.type == "response.code_interpreter_call_code.delta")
    assert code == "print(6 * 7)"
    at = kinds.index("response.output_text.annotation.added")
    assert kinds[at - 1] == "response.output_text.delta"


def test_stored_and_continued(client: OpenAI, hosted: Hosted) -> None:
    first = client.responses.create(**ALL)
    assert_all_tools(client.responses.retrieve(first.id))
    second = client.responses.create(**{**ALL, "input": "Thanks"}, previous_response_id=first.id)
    assert second.output_text == "You are welcome."
    results = [message["content"] for message in hosted.chats[-1]["messages"] if message["role"] == "tool"]
    assert len(results) == 4
    assert results[-1] == "3"
    history: Any = [{"role": "user", "content": ALL["input"]}, *(item.to_dict() for item in first.output)]
    stateless = client.responses.create(**{**ALL, "input": [*history, {"role": "user", "content": "Thanks"}]}, store=False)
    assert stateless.output_text == "You are welcome."


def test_background(client: OpenAI) -> None:
    started = client.responses.create(**ALL, background=True, stream=True)
    events = list(started)
    assert events[-1].type == "response.completed"
    resumed = list(client.responses.retrieve(events[-1].response.id, stream=True))
    assert [event.sequence_number for event in resumed] == [event.sequence_number for event in events]
    assert resumed[-1].type == "response.completed"
    assert_all_tools(resumed[-1].response)


@pytest.mark.parametrize("approve", [True, False])
def test_approval(client: OpenAI, *, approve: bool) -> None:
    tools: Any = [{**MCP, "require_approval": "always"}]
    first = client.responses.create(model="qwen3", input=ADD, tools=tools)
    request = first.output[-1]
    assert isinstance(request, McpApprovalRequest)
    decision: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve}
    with client.responses.stream(model="qwen3", input=[decision], tools=tools, previous_response_id=first.id) as stream:
        final = stream.get_final_response()
    called = [item for item in final.output if isinstance(item, McpCall)]
    assert [(call.approval_request_id, call.output) for call in called] == ([(request.id, "3")] if approve else [])
    assert final.output_text.startswith("The tool said: ")


def test_a_failure_is_a_typed_item(client: OpenAI) -> None:
    response = client.responses.create(model="qwen3", input="call docs__fail {}", tools=[MCP])
    [call] = [item for item in response.output if isinstance(item, McpCall)]
    assert (call.status, call.output) == ("failed", None)
    assert call.error is not None
    assert call.error.type == "mcp_tool_execution_error"
    assert response.output_text.startswith("The tool said: Error")
