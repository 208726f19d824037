"""What the rest of the gateway uses of MCP servers: their interface, and their tools as hosted tools. Nothing here imports the
library, which is an extra and takes long to import."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from responses_gateway.hosted.interface import HostedResult
from responses_gateway.hosted.result_text import truncate
from responses_gateway.wire.hosted import McpSession
from responses_gateway.wire.mcp import ListedTool, McpServer

# Before the message of a failure, here and where the item of a failed call is read again.
_ERROR = "Error: "

ToolCaller = Callable[[Mapping[str, Any]], Awaitable[tuple[str, Any]]]
"""Calls one tool with its arguments; returns the text of the result and its structured content. Raises `ToolFailure`."""
HttpTransport = Literal["auto", "http", "sse"]


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """A server that is reached over HTTP. `transport`: streamable HTTP, the older one with server-sent events, or whichever the
    server has. `public_only`: only public addresses are connected to, whatever the DNS answers."""

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    transport: HttpTransport = "auto"
    public_only: bool = True


@dataclass(frozen=True, slots=True)
class StdioEndpoint:
    """A server that is a program, run by the gateway. `env` is its environment, and all of it."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None


Endpoint = HttpEndpoint | StdioEndpoint


@dataclass(frozen=True, slots=True)
class McpLimits:
    """Bounds. Times in seconds, sizes in bytes.

    `connect_timeout`: for connecting to a server, and again for listing its tools. `call_timeout`: for one call. `list_age`:
    how long a list of tools is used. `idle_timeout`: after which an unused connection is closed. `message_bytes`: the largest
    message, and the most that a server may send in answer to one request. `connections`, `tenant_connections`: at the same
    time, of all tenants and of one. `tools`, `pages`, `list_bytes`: of one server. `contents`, `result_characters`:
    of the result of a call."""

    connect_timeout: float = 30
    call_timeout: float = 120
    list_age: float = 300
    idle_timeout: float = 300
    message_bytes: int = 8 * 1024 * 1024
    connections: int = 64
    tenant_connections: int = 16
    tools: int = 500
    pages: int = 50
    list_bytes: int = 1024 * 1024
    contents: int = 1000
    result_characters: int = 512 * 1024


class ToolResult(NamedTuple):
    """What a tool returned. `structured`: its structured content, None if there is none. `failed`: it says that it failed.
    `session`: over which it came."""

    text: str
    structured: Any
    failed: bool
    session: McpSession | None = None


class McpServers(Protocol):
    """The MCP servers that a gateway can use, for all tenants. Nothing is shared between tenants."""

    async def list_tools(self, tenant: str, server: McpServer) -> Sequence[ListedTool]:
        """Return the tools of a server, in its order; for a while from memory. Raises `ToolFailure`."""

    async def call_tool(self, tenant: str, server: McpServer, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool that the server lists. Raises `ToolFailure`. Cancelling tells the server."""

    def caller(self, tenant: str, name: str) -> ToolCaller:
        """Return what calls the tool `label/name` of one of the operator's servers. Raises `ValueError` if there is none."""

    async def close(self) -> None:
        """Close all connections."""


@dataclass(frozen=True, slots=True)
class McpTool:
    """One tool of a server. Its text has at most `result_bytes`."""

    servers: McpServers
    tenant: str
    server: McpServer
    tool: ListedTool
    result_bytes: int

    async def run(self, arguments: Mapping[str, Any]) -> HostedResult:
        """Call the tool. A result that says that it failed has the error of the item; other failures raise `ToolFailure`."""
        result = await self.servers.call_tool(self.tenant, self.server, self.tool.name, arguments)
        most = self.result_bytes - (len(_ERROR) if result.failed else 0)
        text, was_cut = truncate(result.text, most)
        losses = [f"mcp: the result of a tool was cut to {self.result_bytes} bytes"] if was_cut else []
        if not result.failed:
            return HostedResult(text, {"output": text}, losses=losses, session=result.session)
        reason = text or "The tool failed."
        error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": reason}]}
        return HostedResult(_ERROR + reason, {"error": error}, failed=True, losses=losses, session=result.session)
