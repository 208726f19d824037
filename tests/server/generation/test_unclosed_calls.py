"""A model that stops in the middle of a call, through the front door: an answer, not an error."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.running_gateway import gateway, post, run
from tests.server.scripted_backend import backend, call, chunk, streaming

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
DONE = b"data: [DONE]\n\n"
XML = "<tool_call>\n<function=get_weather>\n<parameter=ci"


async def answer_of(*pieces: bytes, stream: bool, headers: dict[str, str] | None = None, **settings: Any) -> tuple[int, Any]:
    async with backend(streaming(*pieces)) as server, gateway(server.url, **settings) as served:
        answer = await post(served, tools=[WEATHER], stream=stream, headers=headers or {})
        return answer.status, answer.final if stream else answer.json


@pytest.mark.parametrize("headers", [{}, {"originator": "codex_exec"}])
@pytest.mark.parametrize("stream", [True, False])
def test_a_function_call_is_handed_over_as_it_is_written(stream: bool, headers: dict[str, str]) -> None:
    async def test() -> None:
        pieces = [chunk(call('{"city": "Par', id="call-1", type="function")), chunk({}, "tool_calls"), DONE]
        status, response = await answer_of(*pieces, stream=stream, headers=headers)
        assert (status, response["status"], response["error"]) == (200, "completed", None)
        (item,) = response["output"]
        assert (item["arguments"], item["status"]) == ('{"city": "Par', "completed")

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_a_call_that_stops_within_a_parameter_is_incomplete(stream: bool) -> None:
    async def test() -> None:
        pieces = [chunk({"content": XML}), chunk({}, "stop"), DONE]
        status, response = await answer_of(*pieces, stream=stream, tool_call_parser="qwen3_coder")
        assert (status, response["status"]) == (200, "incomplete")
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert [(item["type"], item["status"]) for item in response["output"]] == [("function_call", "incomplete")]

    run(test())


@pytest.mark.parametrize("headers", [{"originator": "codex_exec"}, {"originator": "an editor", "x-codex-window-id": "t:0"}])
def test_codex_does_not_get_a_call_that_stops_within_a_parameter(headers: dict[str, str]) -> None:
    async def test() -> None:
        pieces = [chunk({"content": f"I look.{XML}"}), chunk({}, "stop"), DONE]
        _, response = await answer_of(*pieces, stream=True, headers=headers, tool_call_parser="qwen3_coder")
        assert response["status"] == "incomplete"
        assert [item["type"] for item in response["output"]] == ["message"]

    run(test())
