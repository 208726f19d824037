"""The tools of the MCP servers of the tests: of `sdk_server.py`, which is made with the SDK, and of `small_server.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

_paid = 0


def add(a: int, b: int) -> int:
    """Add two numbers"""
    return a + b


def pay() -> str:
    """Pay, and tell how often that was done."""
    global _paid  # noqa: PLW0603
    _paid += 1
    return f"paid {_paid} times"


def process() -> str:
    """Tell the id of the process."""
    return str(os.getpid())


def environment() -> str:
    """Tell the whole environment."""
    return json.dumps(dict(os.environ))


def crash() -> str:
    """End the process at once."""
    os._exit(3)


def start_child() -> str:
    """Start a process that outlives this one."""
    return str(subprocess.Popen(["sleep", "600"]).pid)


def complain(lines: int) -> str:
    """Write lines to the standard error."""
    for number in range(lines):
        print(f"line {number} " + "x" * 2000, file=sys.stderr, flush=True)
    return "done"


def shout(size: int) -> str:
    """Return a long text."""
    return "x" * size


def fail() -> str:
    """Fail."""
    raise ValueError("this went wrong")


def search(query: str, limit: int = 3) -> dict[str, Any]:
    """Search the manuals."""
    found = [{"id": f"doc-{number}", "title": f"Manual {number}", "text": f"{query} {number}"} for number in range(limit)]
    return {"results": found}


def search_the_web(query: str) -> str:
    """Find one page, whose address tells the id of the process."""
    return f"https://example.com/process/{os.getpid()}"


def shout_code(code: str) -> str:
    """Tell the code that would be run."""
    return f"ran: {code}"


READ_ONLY = (add,)
OTHERS = (
    pay,
    process,
    environment,
    crash,
    start_child,
    complain,
    shout,
    fail,
    search,
    search_the_web,
    shout_code,
)
