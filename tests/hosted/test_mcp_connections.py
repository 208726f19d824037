"""Connections to MCP servers: whose they are, how long they last, and what happens when they are lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx2
import psutil
import pytest
from aiohttp import web

from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.hosted.mcp import connection
from responses_gateway.hosted.mcp.servers import HttpEndpoint, McpTool, StdioEndpoint
from responses_gateway.wire.mcp import McpServer
from tests.hosted.mcp_peers import (
    ENVIRONMENT,
    LIMITS,
    PEER,
    connections,
    failure_of,
    never,
    peer,
    sdk_over_http,
    small_program,
    text_result,
    tool,
    until_text,
)
from tests.ports import free_port
from tests.server.running_gateway import run
from tests.waiting import PATIENCE, until

PROGRAM = McpServer("program")


def gone(process: int) -> bool:
    try:
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it may end between any two looks at it
        return True


# Whose they are


def test_two_tenants_share_neither_connection_nor_list() -> None:
    async def test() -> None:
        async with peer() as served, connections({"peer": served.endpoint}) as servers:
            assert [found.name for found in await servers.list_tools("alice", PEER)] == ["echo"]
            served.tools = [tool("secret")]
            assert [found.name for found in await servers.list_tools("bob", PEER)] == ["secret"]
            assert [found.name for found in await servers.list_tools("alice", PEER)] == ["echo"]
            assert (served.count("initialize"), len(served.sessions)) == (2, 2)

    run(test())


def test_two_tenants_have_programs_of_their_own() -> None:
    async def test() -> None:
        async with connections({"program": small_program()}) as servers:
            processes = [(await servers.call_tool(name, PROGRAM, "process", {})).text for name in ("alice", "bob", "alice")]
            assert processes[0] == processes[2] != processes[1]

    run(test())


def test_other_credentials_are_another_connection() -> None:
    async def test() -> None:
        async with peer() as served, connections({"peer": served.endpoint}) as servers:
            for token in ("one", "two", "one"):
                server = McpServer("peer", None, (("authorization", f"Bearer {token}"),))
                await servers.call_tool("alice", server, "echo", {})
            used = {(headers["Authorization"], headers.get("Mcp-Session-Id")) for headers in served.headers[1:]}
            sessions = {session for _, session in used if session}
            assert len(sessions) == 2
            assert {token for token, _ in used} == {"Bearer one", "Bearer two"}

    run(test())


def test_the_headers_of_the_settings_are_sent() -> None:
    async def test() -> None:
        async with peer() as served:
            endpoint = HttpEndpoint(served.url, (("x-api-key", "secret"),), public_only=False)
            async with connections({"peer": endpoint}) as servers:
                await servers.list_tools("alice", PEER)
                assert {headers["X-Api-Key"] for headers in served.headers} == {"secret"}
                assert {headers["Accept-Encoding"] for headers in served.headers} == {"identity"}
        assert "secret" not in repr(endpoint)

    run(test())


# How long they last


def test_a_list_is_used_until_it_is_old() -> None:
    async def test() -> None:
        now = 0.0
        async with peer() as served:
            servers = connections({"peer": served.endpoint}, limits=replace(LIMITS, list_age=10), clock=lambda: now)
            async with servers as opened:
                await asyncio.gather(*(opened.list_tools("alice", PEER) for _ in range(5)))
                now = 9.0
                await opened.list_tools("alice", PEER)
                assert served.count("tools/list") == 1
                now = 11.0
                served.tools = [tool("b"), tool("a")]
                assert [found.name for found in await opened.list_tools("alice", PEER)] == ["b", "a"]
                assert served.count("initialize") == 1

    run(test())


def test_a_list_is_asked_for_again_when_the_server_says_that_it_changed() -> None:
    async def test() -> None:
        changed = asyncio.Event()

        async with peer() as served:

            async def handle(request: web.Request) -> web.StreamResponse:
                if request.method != "GET":
                    return await served.handle(request)
                response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                await response.prepare(request)
                await changed.wait()
                message = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
                await response.write(b"data: " + json.dumps(message).encode() + b"\n\n")
                await asyncio.Event().wait()
                return response

            served.instead = handle
            async with connections({"peer": served.endpoint}) as servers:
                await servers.list_tools("alice", PEER)
                served.tools = [tool("new")]
                changed.set()
                deadline = asyncio.get_running_loop().time() + PATIENCE
                while [found.name for found in await servers.list_tools("alice", PEER)] != ["new"]:
                    assert asyncio.get_running_loop().time() < deadline
                    await asyncio.sleep(0.01)
                assert served.count("tools/list") == 2

    run(test())


def test_an_unused_connection_is_closed() -> None:
    async def test() -> None:
        async with connections({"program": small_program()}, limits=replace(LIMITS, idle_timeout=0.2)) as servers:
            process = int((await servers.call_tool("alice", PROGRAM, "process", {})).text)
            await until(lambda: gone(process), "the end of the program")
            assert int((await servers.call_tool("alice", PROGRAM, "process", {})).text) != process

    run(test())


def test_a_connection_that_is_used_is_not_closed() -> None:
    async def test() -> None:
        async def slowly(_request: web.Request, _message: dict[str, Any]) -> Any:
            await asyncio.sleep(1)
            return text_result("at last")

        async with peer() as served:
            served.answers["tools/call"] = slowly
            limits = replace(LIMITS, idle_timeout=0.2)
            async with connections({"peer": served.endpoint}, limits=limits) as servers:
                assert (await servers.call_tool("alice", PEER, "echo", {})).text == "at last"

    run(test())


def test_there_are_only_so_many_connections() -> None:
    async def test() -> None:
        async with peer() as served:
            labels = [f"peer{number}" for number in range(4)]
            limits = replace(LIMITS, tenant_connections=2, connections=3)
            async with connections(dict.fromkeys(labels, served.endpoint), limits=limits) as servers:
                for label in labels:
                    await servers.list_tools("alice", McpServer(label))
                await until(lambda: len(servers.open) == 2, "the end of what was not used for the longest time")
                await servers.list_tools("bob", McpServer("peer0"))
                await servers.list_tools("carol", McpServer("peer0"))
                await until(lambda: len(servers.open) <= 3)

    run(test())


def test_a_tenant_that_uses_all_its_connections_is_told_so() -> None:
    async def test() -> None:
        async with peer() as served:
            served.answers["tools/call"] = never
            servers = {"peer": served.endpoint, "other": served.endpoint}
            async with connections(servers, limits=replace(LIMITS, tenant_connections=1)) as opened:
                busy = asyncio.create_task(opened.call_tool("alice", PEER, "echo", {}))
                await until(lambda: served.count("tools/call") == 1)
                failure = await failure_of(opened.list_tools("alice", McpServer("other")))
                assert str(failure) == "Too many MCP servers are in use at the moment."
                assert await opened.list_tools("bob", McpServer("other"))
                busy.cancel()
                await asyncio.gather(busy, return_exceptions=True)

    run(test())


def test_closing_ends_what_waits_and_every_program() -> None:
    async def test() -> None:
        async with connections({"program": small_program()}) as servers:
            process = int((await servers.call_tool("alice", PROGRAM, "process", {})).text)
            child = int((await servers.call_tool("alice", PROGRAM, "start_child", {})).text)
            waiting = asyncio.create_task(failure_of(servers.call_tool("alice", PROGRAM, "wait_for_ever", {})))
            await until_text(lambda: servers.call_tool("alice", PROGRAM, "running", {}), "1")
            await servers.close()
            assert "was lost" in str(await waiting)
            await until(lambda: gone(process) and gone(child), "the end of the program and its child")

    run(test())


def test_closing_that_is_cancelled_at_once_ends_every_program() -> None:
    async def test() -> None:
        async with connections({"program": small_program()}) as servers:
            process = int((await servers.call_tool("alice", PROGRAM, "process", {})).text)
            closing = asyncio.create_task(servers.close())
            await asyncio.sleep(0)  # it has begun, but none of the connections has begun to close
            closing.cancel()
            await until(lambda: gone(process) and not servers.open, "the end of the program")

    run(test())


def test_closing_ends_what_is_still_connecting() -> None:
    async def test() -> None:
        silent = StdioEndpoint("sleep", ("600",), ENVIRONMENT)
        async with peer() as served, connections({"peer": served.endpoint, "program": silent}) as servers:
            served.answers["initialize"] = never
            waiting = [asyncio.create_task(failure_of(servers.list_tools("alice", server))) for server in (PEER, PROGRAM)]
            await until(lambda: served.count("initialize") == 1)
            await servers.close()
            for task in waiting:
                assert "was lost" in str(await task)

    run(test())


def test_an_error_that_another_connection_does_not_mend_is_told() -> None:
    async def test() -> None:
        async def unknown(_request: web.Request, message: dict[str, Any]) -> Any:
            error = {"code": -32601, "message": "There are no tools here"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=404)

        async with peer() as served, connections({"peer": served.endpoint}) as servers:
            served.answers["tools/list"] = unknown
            failure = await failure_of(servers.list_tools("alice", PEER))
            assert str(failure) == "The MCP server 'peer' answered with an error: There are no tools here"
            assert served.count("tools/list") == 2

    run(test())


# What happens when they are lost


def test_a_forgotten_session_is_replaced_and_the_call_made_once() -> None:
    async def test() -> None:
        async with peer() as served, connections({"peer": served.endpoint}) as servers:
            await servers.call_tool("alice", PEER, "echo", {})
            served.sessions.clear()  # as after a restart of the server
            assert (await servers.call_tool("alice", PEER, "echo", {"a": 1})).text == '{"a": 1}'
            assert (served.count("initialize"), served.count("tools/list")) == (2, 1)

    run(test())


@pytest.mark.slow
def test_a_server_that_was_restarted_is_connected_to_again() -> None:
    async def test() -> None:
        port = free_port()
        endpoint = HttpEndpoint(f"http://127.0.0.1:{port}/mcp", public_only=False)
        async with connections({"program": endpoint}) as servers:
            async with sdk_over_http(port=port):
                before = (await servers.call_tool("alice", PROGRAM, "process", {})).text
            async with sdk_over_http(port=port):
                assert (await servers.call_tool("alice", PROGRAM, "process", {})).text != before

    run(test())


def test_a_call_that_may_have_been_made_is_not_made_again() -> None:
    async def test() -> None:
        async def hang_up(request: web.Request, _message: dict[str, Any]) -> Any:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

        async with peer() as served, connections({"peer": served.endpoint}) as servers:
            await servers.list_tools("alice", PEER)
            served.answers["tools/call"] = hang_up
            failure = await failure_of(servers.call_tool("alice", PEER, "echo", {}))
            assert str(failure) == "The connection to the MCP server 'peer' was lost before it answered."
            assert failure.item["error"]["type"] == "mcp_protocol_error"
            assert served.count("tools/call") == 1
            del served.answers["tools/call"]
            assert (await servers.call_tool("alice", PEER, "echo", {})).text == "{}"

    run(test())


@pytest.mark.parametrize("began", [True, False])
def test_a_call_whose_connection_is_lost_takes_no_other_along(began: bool) -> None:
    """Each call has a connection of HTTP for itself."""

    async def test() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def called(request: web.Request, message: dict[str, Any]) -> Any:
            if message["params"]["arguments"]:
                begun.set()
                await go_on.wait()
                return text_result("done")
            assert request.transport is not None
            answer = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "100"})
            if began:
                await answer.prepare(request)
                await answer.write(b'{"jsonrpc": ')
            request.transport.abort()
            return answer

        async with peer() as served, connections({"peer": served.endpoint}) as servers:
            served.answers["tools/call"] = called
            other = asyncio.create_task(servers.call_tool("alice", PEER, "echo", {"a": 1}))
            await begun.wait()
            lost = await failure_of(servers.call_tool("alice", PEER, "echo", {}))
            assert str(lost) == "The connection to the MCP server 'peer' was lost before it answered."
            go_on.set()
            assert (await other).text == "done"
            assert served.count("tools/call") == 2

    run(test())


def test_a_call_that_runs_is_not_made_again_because_the_server_takes_no_further_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that stops, and ends first what it has begun."""

    async def test() -> None:
        begun, refused = asyncio.Event(), asyncio.Event()
        send = httpx2.AsyncHTTPTransport.handle_async_request

        async def refuse_once(transport: httpx2.AsyncHTTPTransport, request: httpx2.Request) -> httpx2.Response:
            if begun.is_set() and not refused.is_set():
                refused.set()
                raise httpx2.ConnectError("refused", request=request)
            return await send(transport, request)

        async def called(_request: web.Request, message: dict[str, Any]) -> Any:
            if message["params"]["arguments"]:
                begun.set()
                await refused.wait()
                await asyncio.sleep(0.1)
            return text_result("done")

        monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", refuse_once)
        async with peer() as served, connections({"peer": served.endpoint}) as servers:
            served.answers["tools/call"] = called
            running = asyncio.create_task(servers.call_tool("alice", PEER, "echo", {"a": 1}))
            await begun.wait()
            assert (await servers.call_tool("alice", PEER, "echo", {})).text == "done"
            assert (await running).text == "done"
            assert served.count("tools/call") == 2

    run(test())


def test_a_program_that_crashed_is_started_again_but_not_for_ever() -> None:
    async def test() -> None:
        now = 0.0
        async with connections({"program": small_program()}, clock=lambda: now) as servers:

            async def crash() -> str:
                return str(await failure_of(servers.call_tool("alice", PROGRAM, "crash", {})))

            assert "was lost" in await crash()
            assert "was lost" in await crash()  # it was started again at once
            assert "ended unexpectedly" in await crash()
            assert (await servers.call_tool("bob", PROGRAM, "add", {"a": 1, "b": 1})).text == "2"  # it has its own
            now = 2.0
            assert (await servers.call_tool("alice", PROGRAM, "add", {"a": 1, "b": 1})).text == "2"

    run(test())


def test_a_program_that_is_killed_while_idle_is_started_again() -> None:
    async def test() -> None:
        async with connections({"program": small_program()}) as servers:
            process = int((await servers.call_tool("alice", PROGRAM, "process", {})).text)
            os.kill(process, signal.SIGKILL)
            await until(lambda: not servers.open)
            assert int((await servers.call_tool("alice", PROGRAM, "process", {})).text) != process

    run(test())


def test_a_program_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    async def test() -> None:
        limits = replace(LIMITS, call_timeout=3)
        async with connections({"program": small_program()}, limits=limits, lines=lines) as servers:

            async def process() -> int:
                while True:
                    with suppress(ToolFailure):
                        return int((await servers.call_tool("alice", PROGRAM, "process", {})).text)
                    await asyncio.sleep(0.01)

            first = await process()
            os.kill(first, signal.SIGSTOP)
            assert await asyncio.wait_for(process(), PATIENCE) != first
            assert any("does not answer any more" in line for line in lines)

    monkeypatch.setattr(connection, "STOP_TIMEOUT", 1.0)
    run(test())


def test_a_program_that_answers_is_kept_though_a_call_was_given_up() -> None:
    async def test() -> None:
        async with connections({"program": small_program()}) as servers:
            first = (await servers.call_tool("alice", PROGRAM, "process", {})).text
            (opened,) = servers.open
            call = asyncio.create_task(servers.call_tool("alice", PROGRAM, "wait_for_ever", {}))
            await until_text(lambda: servers.call_tool("alice", PROGRAM, "running", {}), "1")
            call.cancel()
            await asyncio.wait([call])
            assert opened.checking
            await until(lambda: not opened.checking)
            assert opened.usable
            assert (await servers.call_tool("alice", PROGRAM, "process", {})).text == first

    run(test())


# Programs


def test_a_program_has_the_environment_that_it_was_given() -> None:
    async def test() -> None:
        os.environ["GATEWAY_SECRET"] = "hunter2"
        try:
            async with connections({"program": small_program(TOKEN="for-it")}) as servers:
                found = json.loads((await servers.call_tool("alice", PROGRAM, "environment", {})).text)
        finally:
            del os.environ["GATEWAY_SECRET"]
        assert found["TOKEN"] == "for-it"
        assert found.keys() <= {"TOKEN", "PATH", "HOME", "LC_CTYPE"}

    run(test())


def test_what_a_program_writes_to_its_standard_error_is_logged_within_bounds() -> None:
    async def test() -> None:
        lines: list[str] = []
        async with connections({"program": small_program()}, lines=lines) as servers:
            assert (await servers.call_tool("alice", PROGRAM, "complain", {"lines": 1000})).text == "done"
            await until(lambda: len(lines) >= 200)
        assert lines[0].startswith("program: line 0 xxx")
        assert len(lines) == 200
        assert max(map(len, lines)) < 600

    run(test())


def test_a_program_that_does_not_exist_is_named_without_its_path() -> None:
    async def test() -> None:
        lines: list[str] = []
        async with connections({"program": StdioEndpoint("/opt/private/server")}, lines=lines) as servers:
            failure = await failure_of(servers.list_tools("alice", PROGRAM))
            assert str(failure) == "The MCP server 'program' cannot be started."
        reason = "command: there is no program /opt/private/server. Install it, or correct the path."
        assert lines == [f"program: connection failed: {reason}"]  # for the operator

    run(test())


def test_a_long_result_is_cut_and_this_is_on_record() -> None:
    async def test() -> None:
        async with connections({"program": small_program()}) as servers:
            tools = {found.name: found for found in await servers.list_tools("alice", PROGRAM)}
            shout = McpTool(servers, "alice", PROGRAM, tools["shout"], 1000)
            result = await shout.run({"size": 5000})
            assert len(result.text.encode()) <= 1000
            assert result.text.endswith("[cut: 5000 bytes are more than the 1000 that a result may have]")
            assert result.item == {"output": result.text}
            assert result.losses == ["mcp: the result of a tool was cut to 1000 bytes"]

    run(test())
