"""Servers for the tests of MCP: real ones, as programs, and one inside the test that answers whatever a test wants."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.hosted.mcp.connections import McpConnections
from responses_gateway.hosted.mcp.http import Resolve
from responses_gateway.hosted.mcp.servers import Endpoint, HttpEndpoint, McpLimits, StdioEndpoint, ToolResult
from responses_gateway.wire.hosts.allowed_hosts import AllowedHosts
from responses_gateway.wire.mcp import McpServer
from tests.ports import free_port
from tests.waiting import PATIENCE, until

ROOT = Path(__file__).parents[2]
EVERYTHING = ROOT / ".cache/clients/mcp/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
SDK_SERVER = Path(__file__).parent / "sdk_server.py"
SMALL_SERVER = Path(__file__).parent / "small_server.py"
# What programs need to start.
ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
# Long enough that only a defect exceeds them.
LIMITS = McpLimits(connect_timeout=60, call_timeout=60)
Tools = list[dict[str, Any]]


def absence() -> str | None:
    """Return why the server from npm cannot run here; None if it can."""
    there = shutil.which("node") is not None and EVERYTHING.exists()
    return None if there else "the MCP server is not installed: run scripts/install-clients"


def sdk_program(**env: str) -> StdioEndpoint:
    """Return the server made with the SDK, over standard input and output."""
    return StdioEndpoint(sys.executable, (str(SDK_SERVER), "stdio"), {**ENVIRONMENT, **env})


def small_program(**env: str) -> StdioEndpoint:
    """Return the server with the same tools that starts quickly, over standard input and output."""
    return StdioEndpoint(sys.executable, (str(SMALL_SERVER),), {**ENVIRONMENT, **env})


@asynccontextmanager
async def connections(
    servers: Mapping[str, Endpoint] | None = None,
    *,
    limits: McpLimits = LIMITS,
    hosts: tuple[str, ...] = (),
    clock: Callable[[], float] | None = None,
    find: Resolve | None = None,
    lines: list[str] | None = None,
) -> AsyncIterator[McpConnections]:
    """Open connections that leave no task behind."""
    loop = asyncio.get_running_loop()
    before = asyncio.all_tasks()
    log = lines if lines is not None else []
    opened = McpConnections(
        servers or {},
        AllowedHosts.read(hosts),
        limits,
        lambda label, line: log.append(f"{label}: {line}"),
        clock=clock or loop.time,
        find=find,
    )
    try:
        yield opened
    finally:
        await opened.close()
    await until(lambda: asyncio.all_tasks() <= before, "the end of all tasks of the connections")


@asynccontextmanager
async def program(*command: str, port: int, **env: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a server as a program, until it listens on its port."""
    process = await asyncio.create_subprocess_exec(
        *command, env={**ENVIRONMENT, **env}, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await until_listening(port)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def sdk_over_http(kind: str = "http", port: int | None = None) -> AsyncIterator[HttpEndpoint]:
    """Run the server made with the SDK over HTTP."""
    port = port or free_port()
    async with program(sys.executable, str(SDK_SERVER), kind, str(port), port=port):
        yield HttpEndpoint(f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}", public_only=False)


async def until_listening(port: int) -> None:
    """Wait until something listens on a port."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            assert loop.time() < deadline, f"nothing listens on port {port}"
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return


async def failure_of(attempt: Awaitable[object]) -> ToolFailure:
    """Return the failure that something ends with."""
    try:
        await attempt
    except ToolFailure as failure:
        return failure
    raise AssertionError("it did not fail")


async def until_text(ask: Callable[[], Awaitable[ToolResult]], text: str) -> None:
    """Call a tool until its result is a text."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    while (found := (await ask()).text) != text:
        assert loop.time() < deadline, f"it is {found!r}, not {text!r}"
        await asyncio.sleep(0.01)


def tool(name: str, **members: Any) -> dict[str, Any]:
    """Return a tool as a server lists it."""
    return {"name": name, "inputSchema": {"type": "object"}, **members}


def text_result(text: str) -> dict[str, Any]:
    """Return the result of a tool that is a text."""
    return {"content": [{"type": "text", "text": text}]}


class Peer:
    """An MCP server over streamable HTTP that a test rules. `answers` replaces the result of a method by what a function
    returns: a result, or a whole HTTP response. `instead` answers everything. `requests` has what was received, `headers` those
    of each request."""

    def __init__(self) -> None:
        self.tools: Tools = [tool("echo")]
        self.answers: dict[str, Callable[[web.Request, dict[str, Any]], Awaitable[Any]]] = {}
        self.instead: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
        self.requests: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.sessions: set[str] = set()
        self.url = ""

    @property
    def endpoint(self) -> HttpEndpoint:
        return HttpEndpoint(self.url, public_only=False)

    def count(self, method: str) -> int:
        """Return how often a method was called."""
        return self.requests.count(method)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a request as the test wants it."""
        return await (self.instead or self.handle)(request)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request of the protocol."""
        if request.method != "POST":
            return web.Response(status=405)
        message = json.loads(await request.read())
        method = message.get("method", "")
        self.requests.append(method)
        self.headers.append(request.headers)
        if "id" not in message:
            return web.Response(status=202)
        if method in self.answers:
            result = await self.answers[method](request, message)
            if isinstance(result, web.StreamResponse):
                return result
            return self.reply(message, result)
        if method == "initialize":
            return self._initialized(message)
        if request.headers.get("mcp-session-id") not in self.sessions:
            return web.Response(status=404)
        if method == "tools/list":
            return self.reply(message, {"tools": self.tools})
        if method == "tools/call":
            return self.reply(message, text_result(json.dumps(message["params"]["arguments"])))
        return self.reply(message, None)

    def reply(self, message: dict[str, Any], result: Any, **headers: str) -> web.Response:
        """Return the response with a result; None is a method that does not exist."""
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        body |= {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
        return web.Response(text=json.dumps(body), content_type="application/json", headers=headers)

    def _initialized(self, message: dict[str, Any]) -> web.Response:
        session = f"session-{len(self.requests)}"
        self.sessions.add(session)
        result = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "peer", "version": "1"},
        }
        return self.reply(message, result, **{"mcp-session-id": session})


async def never(_request: web.Request, _message: dict[str, Any]) -> Any:
    """Hang: an answer of a `Peer`."""
    await asyncio.Event().wait()


@asynccontextmanager
async def peer() -> AsyncIterator[Peer]:
    """Serve a `Peer` on a loopback port."""
    served = Peer()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", served.serve)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    served.url = f"http://127.0.0.1:{port}/mcp"
    try:
        yield served
    finally:
        await runner.cleanup()


PEER = McpServer("peer")
