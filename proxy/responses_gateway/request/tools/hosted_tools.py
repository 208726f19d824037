"""The tools that the gateway runs itself, as functions a model can call.

Which of them can be run is known outside of this package (the settings, and the tools of MCP servers, which have to be asked);
here it is a value, `HostedTools`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from responses_gateway.request.fields import Object, optional_object, optional_text, quote, wrong_type
from responses_gateway.request.input.content import SandboxFiles
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.hosted_kinds import HOSTED, WEB_SEARCH, Schema
from responses_gateway.wire.tools import ToolTarget

MOST_DOMAINS = 100
_SIZES = ("low", "medium", "high")
_TEXTS = ("size", "quality", "background", "output_format")
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


def check_web_search(tool: Object, path: str) -> None:
    """Raise `ApiError` 400 for filters, a location or a size that are not what they should be."""
    filters = optional_object(tool, "filters", path) or {}
    for name in ("allowed_domains", "blocked_domains"):
        _check_domains(filters.get(name), f"{path}.filters.{name}")
    optional_object(tool, "user_location", path)
    size = tool.get("search_context_size")
    if size is not None and size not in _SIZES:
        param = f"{path}.search_context_size"
        supported = ", ".join(f"'{name}'" for name in _SIZES)
        raise invalid_request(f"Invalid value: {quote(size)}. Supported values are: {supported}.", param, "invalid_value")


def _check_domains(domains: object, param: str) -> None:
    if domains is None:
        return
    if not isinstance(domains, list):
        raise wrong_type(param, "a list of domains")
    if len(domains) > MOST_DOMAINS:
        raise invalid_request(f"'{param}' has more than {MOST_DOMAINS} domains.", param, "invalid_value")
    for index, domain in enumerate(domains):
        if not isinstance(domain, str) or not domain.strip():
            raise wrong_type(f"{param}[{index}]", "a domain, such as 'example.com'")


class ImageOptions(NamedTuple):
    """The options that are sent, and why others are not."""

    sent: dict[str, Any]
    losses: list[str]


def read_image_generation(tool: Object, path: str) -> ImageOptions:
    """Read the tool at `path`. Raise `ApiError` 400 for options of the wrong type."""
    sent: dict[str, Any] = {}
    for name in _TEXTS:
        value = optional_text(tool, name, path)
        if value not in (None, "auto"):
            sent[name] = value
    compression = tool.get("output_compression")
    if compression is not None:
        if not isinstance(compression, int) or isinstance(compression, bool):
            raise wrong_type(f"{path}.output_compression", "an integer")
        sent["output_compression"] = compression
    losses = [f"{name}: {reason}" for name, reason in _NOT_SENT.items() if tool.get(name)]
    if optional_text(tool, "action", path) == "edit":
        losses.append("action: images cannot be edited here")
    return ImageOptions(sent, losses)
