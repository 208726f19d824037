"""An MCP server over standard input and output with the tools of `sdk_server.py`, for tests of what happens around a call: it
starts in a tenth of the time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import server_tools

TYPES = {"int": "integer", "str": "string"}
FUNCTIONS: dict[str, Callable[..., Any]] = {tool.__name__: tool for tool in (*server_tools.READ_ONLY, *server_tools.OTHERS)}
METHODS = {"initialize", "tools/list", "tools/call"}
#: What these answer depends on which calls wait.
OF_WAITING = {"wait_for_ever": "Wait until it is cancelled.", "running": "Count the calls of `wait_for_ever` that still run."}


class Server:
    """Answers one message after the other; `waiting` are the ids of the calls that have no answer."""

    def __init__(self) -> None:
        self.waiting: set[int] = set()

    def answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Return the result of a request; None where there is none."""
        method, params = message["method"], message.get("params", {})
        if method == "initialize":
            information = {"name": "small", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": information}
        if method == "notifications/cancelled":
            self.waiting.discard(params["requestId"])
        if method == "tools/list":
            return {"tools": listed()}
        return self.called(message["id"], params["name"], params.get("arguments") or {}) if method == "tools/call" else None

    def called(self, number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """Return the result of a call; None if it never ends."""
        if name == "wait_for_ever":
            self.waiting.add(number)
            return None
        if name not in FUNCTIONS and name not in OF_WAITING:
            return failed(f"Unknown tool: {name}")
        try:
            value = len(self.waiting) if name == "running" else FUNCTIONS[name](**arguments)
        except Exception:
            return failed(f"Error executing tool {name}")
        structured = value if isinstance(value, dict) else {"result": value}
        text = json.dumps(value, indent=2) if isinstance(value, dict) else str(value)
        return {"content": [{"type": "text", "text": text}], "isError": False, "structuredContent": structured}


def failed(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def listed() -> list[dict[str, Any]]:
    """Return the declarations of all tools."""
    nothing = {"type": "object", "properties": {}}
    tools = [declaration(function) for function in FUNCTIONS.values()]
    return tools + [{"name": name, "description": text, "inputSchema": nothing} for name, text in OF_WAITING.items()]


def declaration(function: Callable[..., Any]) -> dict[str, Any]:
    kinds = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
    required = list(kinds)[: len(kinds) - len(function.__defaults__ or ())]
    schema = {
        "type": "object",
        "properties": {name: {"type": TYPES[kind]} for name, kind in kinds.items()},
        "required": required,
    }
    tool = {"name": function.__name__, "description": function.__doc__, "inputSchema": schema}
    return {**tool, "annotations": {"readOnlyHint": True}} if function in server_tools.READ_ONLY else tool


def main() -> None:
    print("this line is no message", flush=True)  # as some programs greet
    server = Server()
    for line in sys.stdin:
        message = json.loads(line)
        result = server.answer(message)
        if message["method"] not in METHODS and "id" in message:  # a client asks what there is, and waits for long
            error = {"code": -32601, "message": "Method not found"}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
        elif result is not None:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
