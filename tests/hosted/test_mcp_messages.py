"""Messages of MCP servers that only some parsers read, and events however they are written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from tests.hosted.mcp_peers import PEER, connections, peer, text_result
from tests.server.running_gateway import run


def test_a_tool_that_no_parser_reads_does_not_cost_the_others() -> None:
    """Half a surrogate pair, NaN, a depth that some parsers refuse, a number of thousands of digits."""
    lines: list[str] = []
    deep = '{"a":' * 300 + "1" + "}" * 300
    members = [
        r'"description":"\ud83d"',
        '"inputSchema":{"x":NaN}',
        f'"inputSchema":{{"x":{deep}}}',
        '"inputSchema":{"x":1e999}',
    ]
    members += [r'"inputSchema":{"\udc00":{}}', f'"inputSchema":{{"x":{"9" * 5000}}}', '"inputSchema":{"$schema":5}']

    async def test() -> None:
        for member in members:

            async def listing(_request: web.Request, message: dict[str, Any], member: str = member) -> Any:
                odd = f'{{"name":"odd",{member}}}'
                listed = f'[{{"name":"first"}},{odd},{{"name":"last","description":"\N{GRINNING FACE}"}}]'
                return web.Response(
                    text=f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{{"tools":{listed}}}}}',
                    content_type="application/json",
                )

            async with peer() as served, connections({"peer": served.endpoint}, lines=lines) as servers:
                served.answers["tools/list"] = listing
                first, last = await servers.list_tools("alice", PEER)
                assert (first.name, last.name, last.description) == ("first", "last", "\N{GRINNING FACE}")

    run(test())
    assert lines == ["peer: tools of its list that cannot be offered, or too many: 1"] * len(members)


def test_a_result_that_only_some_parsers_read_is_read() -> None:
    async def test() -> None:
        result = (
            r'{"content":[{"type":"text","text":"cut \ud83d"}],"structuredContent":{"score":NaN,"a":'
            + "[" * 300
            + "]" * 300
            + "}}"
        )

        async def answer(_request: web.Request, message: dict[str, Any]) -> Any:
            body = f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{result}}}'
            return web.Response(text=body, content_type="application/json")

        async with peer() as served, connections({"peer": served.endpoint}) as servers:
            served.answers["tools/call"] = answer
            assert (await servers.call_tool("alice", PEER, "echo", {})).text == "cut ?"

    run(test())


def test_a_byte_order_mark_before_the_first_event_is_no_part_of_it() -> None:
    async def test() -> None:
        async def answer(_request: web.Request, message: dict[str, Any]) -> Any:
            data = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": text_result("done")})
            return web.Response(body=f"\ufeffdata: {data}\n\n".encode(), headers={"Content-Type": "text/event-stream"})

        async with peer() as served, connections({"peer": served.endpoint}) as servers:
            served.answers["tools/call"] = answer
            assert (await servers.call_tool("alice", PEER, "echo", {})).text == "done"

    run(test())


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_events_are_read_however_they_are_written(end: str) -> None:
    """In pieces of one byte, with comments, several lines of data, other events and announcements before the answer."""

    async def test() -> None:
        async def answer(request: web.Request, message: dict[str, Any]) -> Any:
            log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 70_000}}
            lines = [
                ": comment",
                "retry: 5",
                "",
                "event: other",
                "data: {}",
                "",
                f"data: {json.dumps(log)}",
                "",
                "id: 1",
                "data",
                "",
            ]
            lines += ["event: message", "id: 2", 'data: {"jsonrpc":"2.0",', f'data:"id":{message["id"]},', 'data: "result":']
            lines += [f"data: {json.dumps(text_result('done'))}}}", "", ""]
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            body = end.join(lines).encode()
            await response.write(body[:-400])
            for at in range(len(body) - 400, len(body)):
                await response.write(body[at : at + 1])
            return response

        async with peer() as served, connections({"peer": served.endpoint}) as servers:
            served.answers["tools/call"] = answer
            assert (await servers.call_tool("alice", PEER, "echo", {})).text == "done"

    run(test())
