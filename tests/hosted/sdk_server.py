"""An MCP server made with the SDK, to be run as a program: `sdk_server.py stdio`, or `sdk_server.py http PORT`, `sse PORT`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("test", log_level="CRITICAL")
_running = 0
_paid = 0


@server.tool(description="Add two numbers", annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
def pay() -> str:
    """Pay, and tell how often that was done."""
    global _paid  # noqa: PLW0603
    _paid += 1
    return f"paid {_paid} times"


@server.tool()
def process() -> str:
    """Tell the id of the process."""
    return str(os.getpid())


@server.tool()
def environment() -> str:
    """Tell the whole environment."""
    return json.dumps(dict(os.environ))


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


@server.tool()
def crash() -> str:
    """End the process at once."""
    os._exit(3)


@server.tool()
def start_child() -> str:
    """Start a process that outlives this one."""
    return str(subprocess.Popen(["sleep", "600"]).pid)


@server.tool()
def complain(lines: int) -> str:
    """Write lines to the standard error."""
    for number in range(lines):
        print(f"line {number} " + "x" * 2000, file=sys.stderr, flush=True)
    return "done"


@server.tool()
def shout(size: int) -> str:
    """Return a long text."""
    return "x" * size


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("this went wrong")


@server.tool()
def search(query: str, limit: int = 3) -> dict[str, Any]:
    """Search the manuals."""
    found = [{"id": f"doc-{number}", "title": f"Manual {number}", "text": f"{query} {number}"} for number in range(limit)]
    return {"results": found}


@server.tool()
def search_the_web(query: str) -> str:
    """Find one page, whose address tells the id of the process."""
    return f"https://example.com/process/{os.getpid()}"


@server.tool()
def shout_code(code: str) -> str:
    """Tell the code that would be run."""
    return f"ran: {code}"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        print("this line is no message")  # as some programs greet
        sys.stdout.flush()
        server.run("stdio")
    else:
        server.run("sse" if sys.argv[1] == "sse" else "streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
