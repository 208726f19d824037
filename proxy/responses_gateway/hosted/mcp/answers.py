"""Read what a server answers: the list of its tools, page by page and within bounds, and the result of a tool as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from mcp import ClientSession
from mcp.types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    PaginatedRequestParams,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from responses_gateway.hosted.mcp.endpoints import McpLimits
from responses_gateway.hosted.mcp.servers import ToolResult
from responses_gateway.hosted.result_text import untrusted_text
from responses_gateway.wire.mcp import ListedTool

# The version of the protocol that says most about schemas; later ones allow the same.
_STRICTEST = "2025-11-25"
# Characters of what a server says of a tool, as it is offered to the model.
_LONGEST_NAME = 128
_LONGEST_DESCRIPTION = 16 * 1024
_LONGEST_SCHEMA = 64 * 1024
_LONGEST_ANNOTATIONS = 4 * 1024
# Characters of a name in the words for a content that the model cannot be shown.
_LONGEST_WORD = 200


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


def mend_result(result: dict[str, Any], limits: McpLimits) -> int:
    """Change the result of a request to what the library accepts, before it validates each tool or content, which takes long:
    leave out the tools for which it would refuse the whole list, and what exceeds the limits. Return how many tools are left
    out."""
    content = result.get("content")
    if isinstance(content, list) and len(content) > limits.contents:
        note = f"[{len(content) - limits.contents} more contents: not shown]"
        result["content"] = [*content[: limits.contents], {"type": "text", "text": note}]
    tools = result.get("tools")
    if not isinstance(tools, list):
        return 0
    result["tools"] = found = _readable(tools[: limits.tools])
    return len(tools) - len(found)


def _readable(tools: Sequence[object]) -> list[dict[str, Any]]:
    """Return the tools of a list that the library accepts. A schema may lack its type, and PHP writes an empty object as an
    empty list. Output schemas are not needed."""
    found: list[dict[str, Any]] = []
    for tool in tools:
        schema = (tool.get("inputSchema") or {}) if isinstance(tool, dict) else None
        if not isinstance(tool, dict) or not isinstance(schema, dict):
            continue
        schema = {"type": "object", **schema}
        if schema.get("properties") == []:
            schema["properties"] = {}
        mended = {**tool, "inputSchema": schema}
        mended.pop("outputSchema", None)
        if schema["type"] == "object" and isinstance(schema.get("properties", {}), dict) and _is_tool(mended):
            found.append(mended)
    return found


def _is_tool(value: dict[str, Any]) -> bool:
    """Tell whether the library accepts a tool: it validates a list twice, as the protocol's version has it and as its own."""
    try:
        validate_server_result("tools/list", _STRICTEST, {"tools": [value]})
        Tool.model_validate(value)
    except ValidationError:
        return False
    return True


def bounded(tools: Iterable[Tool], limits: McpLimits) -> Listing:
    """Leave out tools that cannot be offered: a name that occurred before, that is empty, too long or not printable; a schema
    that is too long or not JSON; what exceeds the limits of a list. Long descriptions are cut."""
    found: dict[str, ListedTool] = {}
    left_out = 0
    room = limits.list_bytes
    for tool in tools:
        listed = _listed(tool)
        size = 0 if listed is None else len(listed.description or "") + len(json.dumps(listed.input_schema))
        if listed is None or listed.name in found or len(found) == limits.tools or size > room:
            left_out += 1
            continue
        room -= size
        found[listed.name] = listed
    return Listing(tuple(found.values()), left_out)


def _listed(tool: Tool) -> ListedTool | None:
    if not tool.name or len(tool.name) > _LONGEST_NAME or not tool.name.isprintable():
        return None
    if not _is_json(tool.input_schema, _LONGEST_SCHEMA):
        return None
    description = tool.description[:_LONGEST_DESCRIPTION] if tool.description else None
    annotations: dict[str, Any] | None = None
    if tool.annotations is not None:
        annotations = tool.annotations.model_dump(by_alias=True, mode="json", exclude_none=True)
    if not annotations or not _is_json(annotations, _LONGEST_ANNOTATIONS):
        annotations = None
    return ListedTool(tool.name, description, tool.input_schema, annotations)


def _is_json(value: Any, longest: int) -> bool:
    """Tell whether a value is at most so long as JSON, and JSON at all: parsers let NaN pass."""
    try:
        return len(json.dumps(value, allow_nan=False)) <= longest
    except (ValueError, RecursionError):
        return False


def read_result(result: CallToolResult) -> ToolResult:
    """Join the contents of a result. Structured content takes their place if there are none."""
    text = "\n".join(_parts(result.content))
    if not text and result.structured_content is not None:
        text = _as_json(result.structured_content)
    return ToolResult(untrusted_text(text), result.structured_content, result.is_error)


def _as_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()  # megabytes in a moment
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(value)


def _parts(content: Sequence[Any]) -> list[str]:
    return [part for part in map(_words, content) if part]


def _words(block: Any) -> str:
    """Return the text of a content, or a note about what the model cannot be shown."""
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ImageContent | AudioContent):
        return f"[{block.type}, {_short(block.mime_type)}, {len(block.data) * 3 // 4} bytes: not shown]"
    if isinstance(block, ResourceLink):
        return f"[resource: {_short(block.title or block.name)}, {_short(block.uri)}]"
    if isinstance(block, EmbeddedResource):
        resource = block.resource
        if isinstance(resource, TextResourceContents):
            return resource.text
        return f"[resource: {_short(resource.uri)}, {len(resource.blob) * 3 // 4} bytes: not shown]"
    return ""


def _short(word: object) -> str:
    return " ".join(str(word).split())[:_LONGEST_WORD]
