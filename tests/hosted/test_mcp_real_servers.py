"""MCP servers that other people use: over standard input and output, server-sent events, and streamable HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from responses_gateway.hosted.mcp.servers import Endpoint, HttpEndpoint, McpTool, StdioEndpoint
from responses_gateway.wire.mcp import McpServer
from tests.hosted.mcp_peers import (
    ENVIRONMENT,
    EVERYTHING,
    absence,
    connections,
    program,
    sdk_over_http,
    sdk_program,
    until_text,
)
from tests.ports import free_port
from tests.server.running_gateway import run
from tests.waiting import until

SERVER = McpServer("everything")
TRANSPORTS = ["stdio", "sse", "http"]
_NAMES = {"sse": ("sse", "/sse"), "http": ("streamableHttp", "/mcp")}


@asynccontextmanager
async def everything(kind: str) -> AsyncIterator[Endpoint]:
    """Run the server from npm. The transport over HTTP is left to be found out."""
    if kind == "stdio":
        yield StdioEndpoint("node", (str(EVERYTHING), "stdio"), ENVIRONMENT)
        return
    name, path = _NAMES[kind]
    port = free_port()
    async with program("node", str(EVERYTHING), name, port=port, PORT=str(port)):
        yield HttpEndpoint(f"http://127.0.0.1:{port}{path}", public_only=False)


@asynccontextmanager
async def made_with_sdk(kind: str) -> AsyncIterator[Endpoint]:
    if kind == "stdio":
        yield sdk_program()
    else:
        async with sdk_over_http(kind) as endpoint:
            yield endpoint


@pytest.mark.skipif(absence() is not None, reason=absence() or "")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("kind", TRANSPORTS)
def test_the_server_from_npm(kind: str, loop: str) -> None:
    async def test() -> None:
        async with everything(kind) as endpoint, connections({"everything": endpoint}) as servers:
            tools = {tool.name: tool for tool in await servers.list_tools("alice", SERVER)}
            assert "message" in tools["echo"].input_schema["properties"]
            assert tools["echo"].description
            echo = McpTool(servers, "alice", SERVER, tools["echo"], 1000)
            result = await echo.run({"message": "hi"})
            assert (result.text, result.item, result.failed) == ("Echo: hi", {"output": "Echo: hi"}, False)
            refused = await echo.run({"wrong": "arguments"})
            assert refused.failed
            assert refused.item["error"]["type"] == "mcp_tool_execution_error"
            assert "Invalid arguments" in refused.item["error"]["content"][0]["text"]
            image = await servers.call_tool("alice", SERVER, "get-tiny-image", {})
            assert "[image, image/png, " in image.text
            weather = await servers.call_tool("alice", SERVER, "get-structured-content", {"location": "New York"})
            assert weather.structured["conditions"]

    run(test(), loop)


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_the_server_made_with_the_sdk(kind: str) -> None:
    async def test() -> None:
        async with made_with_sdk(kind) as endpoint, connections({"everything": endpoint}) as servers:
            tools = {tool.name: tool for tool in await servers.list_tools("alice", SERVER)}
            assert tools["add"].description == "Add two numbers"
            assert tools["add"].read_only
            assert tools["process"].as_item().keys() == {"name", "description", "input_schema"}
            assert (await servers.call_tool("alice", SERVER, "add", {"a": 2, "b": 3})).text == "5"
            assert (await servers.call_tool("alice", SERVER, "fail", {})).failed

    run(test())


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_cancelling_a_call_reaches_the_server_and_no_other_call(kind: str) -> None:
    async def test() -> None:
        async with made_with_sdk(kind) as endpoint, connections({"everything": endpoint}) as servers:

            async def until_running(number: int) -> None:
                await until_text(lambda: servers.call_tool("alice", SERVER, "running", {}), str(number))

            first = asyncio.create_task(servers.call_tool("alice", SERVER, "wait_for_ever", {}))
            second = asyncio.create_task(servers.call_tool("alice", SERVER, "wait_for_ever", {}))
            await until_running(2)
            process = (await servers.call_tool("alice", SERVER, "process", {})).text
            first.cancel()
            await until_running(1)
            assert not second.done()
            assert (await servers.call_tool("alice", SERVER, "process", {})).text == process
            second.cancel()
            await until(lambda: first.done() and second.done())
            await until_running(0)

    run(test())
