"""Inputs that are nothing which can be read, in requests whose hosted tools are opened before the input is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.hosted.model import DOCS, MCP, model, says
from tests.server.running_gateway import post, run

CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
MALFORMED: dict[str, Any] = {
    "no object": 5,
    "a list": [[]],
    "a type that is an object": {"type": {"a": 1}},
    "an id that is an object": {"type": "web_search_call", "id": {"a": 1}, "action": {"type": "search"}},
    "an id that is a list": {"type": "code_interpreter_call", "id": [1], "code": "1", "container_id": [{}]},
    "a label that is a list": {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": [{}], "tools": []},
    "arguments of a number": {"type": "mcp_call", "id": "mcp_1", "server_label": "docs", "name": "add", "arguments": 5},
    "an error of lists": {
        "type": "mcp_call",
        "id": "mcp_1",
        "server_label": "docs",
        "name": "add",
        "arguments": "{}",
        "error": {"content": [[], {"text": 5}], "message": [1]},
    },
}


@pytest.mark.parametrize("what", MALFORMED)
def test_it_is_read_or_refused_and_never_a_defect(what: str) -> None:
    async def test() -> None:
        settings: dict[str, Any] = {"mcp_servers": DOCS, "code_interpreter": "mcp:docs/shout_code", "store": "memory"}
        async with model(says("Hi."), **settings) as (served, _):
            question = {"type": "message", "role": "user", "content": "Hi"}
            answer = await post(served, tools=[MCP, CODE], input=[question, MALFORMED[what]], stream=False)
            assert answer.status in (200, 400), answer.body
            assert answer.status == 200 or answer.json["error"]["param"].startswith("input[1]")

    run(test())
