"""Read the result of a tool: text for the model, and the rest in words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mcp.types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from proxy.hosted.mcp.interface import ToolResult

_LONGEST_WORD = 200


def read_result(result: CallToolResult) -> ToolResult:
    """Join the contents of a result. Structured content takes their place if there are none."""
    text = "\n".join(_parts(result.content))
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    return ToolResult(text, result.structured_content, result.is_error)


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
