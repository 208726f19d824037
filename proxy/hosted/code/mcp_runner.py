"""Code that a tool of an MCP server runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from proxy.hosted.code.printed import plain_text
from proxy.hosted.code.runner import ContainerKey, Outcome
from proxy.hosted.mcp.interface import ToolCaller

_CODE = ("code", "python_code", "source", "script")
_SESSION = ("container_id", "session_id", "session")


class McpRunner:
    """Runs code with a tool of an MCP server, whose input schema tells the name of the argument for the code, and of the one
    for a session, if it has one. Whether variables are kept is the server's business."""

    def __init__(self, call_tool: ToolCaller, schema: Mapping[str, Any], output_bytes: int) -> None:
        self._call_tool = call_tool
        self._code = _argument(schema, _CODE) or _only_required(schema) or "code"
        self._session = _argument(schema, _SESSION)
        self._output_bytes = output_bytes

    async def has(self, container: ContainerKey) -> bool:
        """Return whether the server is told of sessions: then any id may name one of the tenant's."""
        return self._session is not None

    async def run(self, code: str, container: ContainerKey, files: Mapping[str, bytes]) -> Outcome:
        """Run code; see `CodeRunner`. The server learns no names of tenants, and cannot confuse their sessions."""
        arguments = {self._code: code}
        if self._session is not None:
            arguments[self._session] = hashlib.sha256("\0".join(container).encode()).hexdigest()[:32]
        text, _ = await self._call_tool(arguments)
        losses = ["code_interpreter: files, which an MCP tool does not take"] if files else []
        encoded = plain_text(text).encode()
        if len(encoded) > self._output_bytes:
            losses.append(f"code_interpreter: output beyond {self._output_bytes} bytes")
        return Outcome(encoded[: self._output_bytes].decode("utf-8", "ignore"), losses=losses)


def _argument(schema: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    return next((name for name in names if name in known), None)


def _only_required(schema: Mapping[str, Any]) -> str | None:
    required = schema.get("required")
    return required[0] if isinstance(required, list) and len(required) == 1 and isinstance(required[0], str) else None
