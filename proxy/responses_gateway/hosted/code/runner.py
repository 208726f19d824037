"""What runs code: the interface, what a run returns, and the runner that calls a tool of an MCP server."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from responses_gateway.hosted.mcp.servers import ToolCaller
from responses_gateway.hosted.result_text import plain_text

# Names of the arguments for the code and for a session, the more usual first.
_CODE = ("code", "python_code", "source", "script")
_SESSION = ("container_id", "session_id", "session")


class ContainerKey(NamedTuple):
    """A container, and whose it is. Another tenant's container of the same id is another container."""

    tenant: str
    id: str


@dataclass(frozen=True, slots=True)
class CodeOutcome:
    """The result of a run.

    `logs`: what the code printed, the value of its last expression, the traceback of an exception. `images`: `data:` URLs of
    the images that it wrote. `files`: the paths of all files that it wrote. `error`: what ended it, unless it ended by itself
    or with an exception; words for the model. `losses`: what was left out, in words for the log."""

    logs: str
    images: Sequence[str] = ()
    files: Sequence[str] = ()
    error: str | None = None
    losses: Sequence[str] = ()


class CodeRunner(Protocol):
    """Runs code in containers, which keep variables and files between runs."""

    async def has(self, container: ContainerKey) -> bool:
        """Return whether a request may name this container."""

    async def run(self, code: str, container: ContainerKey, files: Mapping[str, bytes]) -> CodeOutcome:
        """Run code in a container, which is made if there is none yet. Of the files, by name, it gets those that it was not
        given before. Raise `ToolFailure` if the code was not run. Cancelling stops it."""


class McpRunner:
    """Runs code with a tool of an MCP server, whose input schema names the argument for the code, and the one for a
    session, if it has one. Whether variables are kept is the server's business."""

    def __init__(self, call_tool: ToolCaller, schema: Mapping[str, Any], output_bytes: int) -> None:
        self._call_tool = call_tool
        self._code = _argument(schema, _CODE) or _only_required(schema) or "code"
        self._session = _argument(schema, _SESSION)
        self._output_bytes = output_bytes

    async def has(self, _container: ContainerKey) -> bool:
        """Return whether the tool takes a session: then any id may name one of the tenant's."""
        return self._session is not None

    async def run(self, code: str, container: ContainerKey, files: Mapping[str, bytes]) -> CodeOutcome:
        """Run code; see `CodeRunner`. The server learns no names of tenants, and cannot confuse their sessions."""
        arguments = {self._code: code}
        if self._session is not None:
            arguments[self._session] = hashlib.sha256("\0".join(container).encode()).hexdigest()[:32]
        text, _ = await self._call_tool(arguments)
        losses = ["code_interpreter: files, which an MCP tool does not take"] if files else []
        encoded = plain_text(text).encode()
        if len(encoded) > self._output_bytes:
            losses.append(f"code_interpreter: output beyond {self._output_bytes} bytes")
        return CodeOutcome(encoded[: self._output_bytes].decode("utf-8", "ignore"), losses=losses)


def _argument(schema: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    return next((name for name in names if name in known), None)


def _only_required(schema: Mapping[str, Any]) -> str | None:
    required = schema.get("required")
    return required[0] if isinstance(required, list) and len(required) == 1 and isinstance(required[0], str) else None
