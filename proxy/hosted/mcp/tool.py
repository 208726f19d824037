"""A tool of an MCP server, as a hosted tool of one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxy.hosted.calls import HostedResult
from proxy.hosted.cut import cut
from proxy.hosted.mcp.interface import McpServers
from proxy.wire.mcp import ListedTool, McpServer

# Before what the model is told of a failure, here and where the item of a failed call is read again.
_ERROR = "Error: "


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
        text, was_cut = cut(result.text, most)
        losses = [f"mcp: the result of a tool was cut to {self.result_bytes} bytes"] if was_cut else []
        if not result.failed:
            return HostedResult(text, {"output": text}, losses=losses)
        said = text or "The tool failed."
        error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": said}]}
        return HostedResult(_ERROR + said, {"error": error}, failed=True, losses=losses)
