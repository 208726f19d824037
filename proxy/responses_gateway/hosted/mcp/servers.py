"""What the rest of the gateway uses of MCP servers: their interface, and their tools as hosted tools. Nothing here imports the
library, which is an extra and takes long to import."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from responses_gateway.hosted.interface import HostedResult, McpSession
from responses_gateway.hosted.result_text import truncate
from responses_gateway.wire.mcp import ListedTool, McpServer

# Before the message of a failure, here and where the item of a failed call is read again.
_ERROR = "Error: "

ToolCaller = Callable[[Mapping[str, Any]], Awaitable[tuple[str, Any]]]
"""Calls one tool with its arguments; returns the text of the result and its structured content. Raises `ToolFailure`."""


class ToolResult(NamedTuple):
    """What a tool returned. `structured`: its structured content, None if there is none. `failed`: it says that it failed.
    `session`: over which it came."""

    text: str
    structured: Any = None
    failed: bool = False
    session: McpSession | None = None


class McpServers(Protocol):
    """The MCP servers that a gateway can use, for all tenants. Nothing is shared between tenants."""

    async def list_tools(self, tenant: str, server: McpServer) -> Sequence[ListedTool]:
        """Return the tools of a server, in its order; for a while from memory. Raises `ToolFailure`."""

    async def call_tool(self, tenant: str, server: McpServer, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool that the server lists. Raises `ToolFailure`. Cancelling tells the server."""

    def caller(self, tenant: str, name: str) -> ToolCaller:
        """Return what calls the tool `label/name` of one of the operator's servers. Raises `ValueError` for an unknown
        label."""

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
        said = text or "The tool failed."
        error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": said}]}
        return HostedResult(_ERROR + said, {"error": error}, failed=True, losses=losses, session=result.session)
