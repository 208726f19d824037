"""The tools that the gateway runs itself, as functions a model can call.

Which of them can be run is known outside of this package (the settings, and the tools of MCP servers, which have to be asked);
here it is a value, `HostedTools`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field

from responses_gateway.request.fields import Object
from responses_gateway.wire.hosted import SandboxFiles
from responses_gateway.wire.hosted_kinds import HOSTED, WEB_SEARCH, Schema
from responses_gateway.wire.requests import Open, TypedPart
from responses_gateway.wire.tools import ToolTarget

MOST_DOMAINS = 100
# Options that are not sent -> why.
_NOT_SENT = {
    "model": "the setting image_generation_model names the model",
    "partial_images": "images are sent when they are complete",
    "input_fidelity": "images cannot be edited here",
    "input_image_mask": "images cannot be edited here",
    "moderation": "the server of images decides",
    "complexity": "servers of images do not support it",
    "frame_count": "servers of images do not support it",
    "frame_duration_ms": "servers of images do not support it",
}


class OfferedTool(NamedTuple):
    """A tool of an MCP server, as a request offers it. `needs_approval`: the client decides about each call."""

    name: str
    description: str
    parameters: Schema
    needs_approval: bool = False


@dataclass(frozen=True, slots=True)
class HostedTools:
    """The hosted tools that can be run for one request: the kinds, and the tools of MCP servers by the path of the declaration
    (`tools[0]`). `container_id` is that of the request's code, `files` are those that it can read."""

    kinds: frozenset[str] = frozenset()
    mcp: Mapping[str, Sequence[OfferedTool]] = field(default_factory=dict)
    container_id: str | None = None
    files: SandboxFiles = field(default_factory=dict)


NO_HOSTED_TOOLS = HostedTools()

SEARCH, OPEN_PAGE, FIND_IN_PAGE = (ToolTarget(WEB_SEARCH.name, function.name) for function in WEB_SEARCH.functions)
# What each tool of the web offers where they are declared one by one (`Policy.separate_web_tools`), by its type.
WEB_TOOLS = {"web_search": (SEARCH,), "web_fetch": (OPEN_PAGE, FIND_IN_PAGE)}
# What gpt-oss calls the tools that it was trained with -> the same tools here.
MODEL_NAMES: dict[str, ToolTarget] = {
    function.trained_name: ToolTarget(kind.name, function.name)
    for kind in HOSTED.values()
    for function in kind.functions
    if function.trained_name
}


def _domain(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a domain, such as 'example.com'")
    return text


Domain = Annotated[str, AfterValidator(_domain)]


class _Domains(TypedPart):
    allowed_domains: Annotated[list[Domain], Field(max_length=MOST_DOMAINS)] | None = None
    blocked_domains: Annotated[list[Domain], Field(max_length=MOST_DOMAINS)] | None = None


class _WebSearch(TypedPart):
    filters: _Domains | None = None
    user_location: Open | None = None
    search_context_size: Literal["low", "medium", "high"] | None = None


def check_web_search(tool: Object, path: str) -> None:
    """Raise `ApiError` 400 for filters, a location or a size that are not what they should be."""
    _WebSearch.read(tool, path)


class _ImageGeneration(TypedPart):
    size: str | None = None
    quality: str | None = None
    background: str | None = None
    output_format: str | None = None
    output_compression: int | None = None
    action: str | None = None


class ImageOptions(NamedTuple):
    """The options that are sent, and why others are not."""

    sent: dict[str, Any]
    losses: list[str]


def read_image_generation(tool: Object, path: str) -> ImageOptions:
    """Read the tool at `path`. Raise `ApiError` 400 for options of the wrong type."""
    declared = _ImageGeneration.read(tool, path)
    sent = {name: value for name, value in declared if name != "action" and value not in (None, "auto")}
    losses = [f"{name}: {reason}" for name, reason in _NOT_SENT.items() if tool.get(name)]
    if declared.action == "edit":
        losses.append("action: images cannot be edited here")
    return ImageOptions(sent, losses)
