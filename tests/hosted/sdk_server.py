"""An MCP server made with the SDK, to be run as a program: `sdk_server.py stdio`, or `sdk_server.py http PORT`, `sse PORT`."""

from __future__ import annotations

import asyncio
import sys

import server_tools
from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("test", log_level="CRITICAL")
_running = 0

for function in server_tools.READ_ONLY:
    server.tool(annotations=ToolAnnotations(read_only_hint=True))(function)
for function in server_tools.OTHERS:
    server.tool()(function)


@server.tool()
async def wait_for_ever() -> str:
    """Wait until it is cancelled."""
    global _running  # noqa: PLW0603
    _running += 1
    try:
        await asyncio.Event().wait()
    finally:
        _running -= 1
    return "never"


@server.tool()
def running() -> int:
    """Count the calls of `wait_for_ever` that still run."""
    return _running


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        print("this line is no message")  # as some programs greet
        sys.stdout.flush()
        server.run("stdio")
    else:
        server.run("sse" if sys.argv[1] == "sse" else "streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
