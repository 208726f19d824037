"""What the rest of the gateway uses of MCP servers. Nothing here imports the library, which is an extra and takes long to
import."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from proxy.wire.mcp import ListedTool, McpServer

ToolCaller = Callable[[Mapping[str, Any]], Awaitable[tuple[str, Any]]]
"""Calls one tool with its arguments; returns the text of the result and its structured content. Raises `ToolFailure`."""


class ToolResult(NamedTuple):
    """What a tool returned. `structured`: its structured content, None if there is none. `failed`: it says that it failed."""

    text: str
    structured: Any = None
    failed: bool = False


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
