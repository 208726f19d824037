"""Read the answers of a server: the list of its tools, page by page and within bounds, and the result of a tool as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from mcp import ClientSession
from mcp.types import CallToolResult, PaginatedRequestParams, TextContent, Tool

from responses_gateway.hosted.mcp.endpoints import McpLimits
from responses_gateway.hosted.mcp.servers import ToolResult
from responses_gateway.hosted.result_text import untrusted_text
from responses_gateway.wire.mcp import ListedTool


class Listing(NamedTuple):
    """The tools of a server, in its order. `left_out`: how many it lists that are not offered to the model."""

    tools: Sequence[ListedTool]
    left_out: int


async def read_listing(session: ClientSession, limits: McpLimits) -> Listing:
    """Ask a server for its tools. Pages beyond the limit are not read."""
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(limits.pages):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        found.extend(page.tools)
        cursor = page.next_cursor
        if cursor is None or len(found) > limits.tools:
            break
    return bounded(found, limits)


def bounded(tools: Iterable[Tool], limits: McpLimits) -> Listing:
    """Leave out tools whose name occurred before, and what exceeds the limits of a list."""
    found: dict[str, ListedTool] = {}
    left_out = 0
    room = limits.list_bytes
    for tool in tools:
        size = len(tool.description or "") + len(msgspec.json.encode(tool.input_schema))
        if tool.name in found or len(found) == limits.tools or size > room:
            left_out += 1
            continue
        room -= size
        annotations = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations is not None else None
        found[tool.name] = ListedTool(tool.name, tool.description, tool.input_schema, annotations or None)
    return Listing(tuple(found.values()), left_out)


def read_result(result: CallToolResult) -> ToolResult:
    """Return the text of a result, which `MessageReader` has made of its contents, and its structured content."""
    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    return ToolResult(untrusted_text(text), result.structured_content, result.is_error)
