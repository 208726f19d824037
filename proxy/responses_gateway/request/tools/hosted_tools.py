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
from responses_gateway.wire.tools import ToolTarget

Schema = dict[str, Any]
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

# Prefix of the type of a declaration -> the kind of tool, and the setting without which it cannot be run.
HOSTED_SETTINGS: dict[str, str] = {
    "web_search": "web_search_url",
    "mcp": "mcp_servers",
    "file_search": "file_search_tools",
    "code_interpreter": "code_interpreter",
    "image_generation": "image_generation_model",
}

# Value of `include` -> the kind of tool whose items it completes.
INCLUDED: dict[str, str] = {
    "web_search_call.action.sources": "web_search",
    "file_search_call.results": "file_search",
    "code_interpreter_call.outputs": "code_interpreter",
}

SEARCH = ToolTarget("web_search", "web_search")
OPEN_PAGE = ToolTarget("web_search", "open_page")
FIND_IN_PAGE = ToolTarget("web_search", "find_in_page")
# What each tool of the web offers where they are declared one by one (`Policy.separate_web_tools`), by its type.
WEB_TOOLS = {"web_search": (SEARCH,), "web_fetch": (OPEN_PAGE, FIND_IN_PAGE)}
FILE_SEARCH = ToolTarget("file_search", "file_search")
PYTHON = ToolTarget("code_interpreter", "python")
GENERATE_IMAGE = ToolTarget("image_generation", "generate_image")


def _object(required: list[str], properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _string(description: str) -> Schema:
    return {"type": "string", "description": description}


_QUERIES = {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "What to search for."}

# kind -> its tools, each with the description and the parameters of its function
FUNCTIONS: dict[str, dict[ToolTarget, tuple[str, Schema]]] = {
    "web_search": {
        SEARCH: (
            "Searches the web. Returns titles, addresses and excerpts of pages, each with a number to cite it by.",
            _object(["queries"], {"queries": _QUERIES}),
        ),
        OPEN_PAGE: (
            "Opens a web page and returns its text.",
            _object(
                ["url"],
                {
                    "url": _string("The address of the page, as a search or the user gave it."),
                    "line": {"type": "integer", "description": "The line to begin at, to go on in a long page."},
                },
            ),
        ),
        FIND_IN_PAGE: (
            "Finds a text in a web page and returns the passages that contain it.",
            _object(
                ["url", "pattern"],
                {"url": _string("The address of the page."), "pattern": _string("The text to find.")},
            ),
        ),
    },
    "file_search": {
        FILE_SEARCH: (
            "Searches the user's files. Returns passages, each with a number to cite it by.",
            _object(["queries"], {"queries": _QUERIES}),
        ),
    },
    "code_interpreter": {
        PYTHON: (
            "Runs Python code in a sandbox and returns what it prints. There is the standard library alone, and no network. "
            "Variables and the files in /mnt/data are kept between calls; image files written there are shown to the user.",
            _object(["code"], {"code": _string("The code to run.")}),
        ),
    },
    "image_generation": {
        GENERATE_IMAGE: (
            "Generates an image and shows it to the user.",
            _object(["prompt"], {"prompt": _string("What the image shows, in detail.")}),
        ),
    },
}

# What gpt-oss calls the tools that it was trained with -> the same tools here.
MODEL_NAMES: dict[str, ToolTarget] = {
    "browser.search": SEARCH,
    "browser.open": OPEN_PAGE,
    "browser.find": FIND_IN_PAGE,
    "python": PYTHON,
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
