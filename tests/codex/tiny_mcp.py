"""A small MCP server on stdin and stdout, for the client to start: one JSON-RPC message per line, two tools."""

from __future__ import annotations

import json
import sys
from typing import Any

_NUMBER = {"type": "integer"}
_TOOLS = [
    {
        "name": "add",
        "description": "Add two integers.",
        "inputSchema": {"type": "object", "properties": {"a": _NUMBER, "b": _NUMBER}, "required": ["a", "b"]},
    },
    {
        "name": "lookup-word",
        "description": "Explain a word.",
        "inputSchema": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request; None for a method that this server does not know."""
    if method == "initialize":
        server = {"name": "tiny", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        return {"tools": _TOOLS}
    if method == "tools/call":
        arguments = params.get("arguments") or {}
        sums = params["name"] == "add"
        text = f"the sum is {arguments['a'] + arguments['b']}" if sums else f"{arguments['word']}: a word"
        return {"content": [{"type": "text", "text": text}]}
    return {} if method == "ping" else None


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:  # a notification
            continue
        result = answer(message["method"], message.get("params") or {})
        outcome = {"error": {"code": -32601, "message": "unknown method"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)


if __name__ == "__main__":
    main()
