"""Read the `mcp` tools of a request: servers, and which of their tools the model may call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from responses_gateway.request.fields import (
    Object,
    filled_text,
    missing,
    optional_flag,
    optional_object,
    optional_text,
    quote,
    wrong_type,
)
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.hosts.allowed_hosts import AllowedHosts
from responses_gateway.wire.hosts.mcp_servers import server_complaint
from responses_gateway.wire.mcp import ALL_TOOLS, LABEL, NO_TOOLS, ApprovalPolicy, McpServer, McpToolset, ToolFilter

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_HEADER_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")
# They belong to the connection or to the protocol. Another value would change where a message ends, or whose session it is.
_RESERVED_HEADERS = frozenset({
    "host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "keep-alive", "te",
    "trailer", "upgrade", "expect", "accept", "accept-encoding", "last-event-id", "forwarded", "via",
})  # fmt: skip
_RESERVED_PREFIXES = ("proxy-", "mcp-", "x-forwarded-")
_MOST_HEADERS = 32
_LONGEST_HEADERS = 16 * 1024
_LONGEST_URL = 2048
_MOST_NAMES = 1000
_MODES = {"always": ApprovalPolicy(always=ALL_TOOLS), "never": ApprovalPolicy(never=ALL_TOOLS)}


@dataclass(frozen=True, slots=True)
class ConfiguredServer:
    """What requests may do with one of the operator's servers. `allowed`: the tools that the operator offers, None for all.
    `approval`: what the operator demands, None if nothing. `forwards_authorization`: the request's `authorization` is sent."""

    description: str | None = None
    allowed: ToolFilter | None = None
    approval: ApprovalPolicy | None = None
    forwards_authorization: bool = False


@dataclass(frozen=True, slots=True)
class McpAccess:
    """Which MCP servers requests may use: the operator's, by label, and those at hosts that are allowed."""

    servers: Mapping[str, ConfiguredServer] = field(default_factory=dict)
    hosts: AllowedHosts = field(default_factory=AllowedHosts)


def read_mcp_tools(tools: Iterable[tuple[str, Object]], access: McpAccess) -> list[McpToolset]:
    """Read the `mcp` tools of a request, each with its path. Raises `ApiError` 400 for one that is malformed or not allowed,
    and for two of the same label."""
    toolsets: dict[str, McpToolset] = {}
    for path, tool in tools:
        toolset = read_mcp_tool(tool, path, access)
        label = toolset.server.label
        if label in toolsets:
            message = f"Duplicate server_label: {quote(label)}. Each MCP server of a request needs a label of its own."
            raise invalid_request(message, f"{path}.server_label", "invalid_value")
        toolsets[label] = toolset
    return list(toolsets.values())


def read_mcp_tool(tool: Object, path: str, access: McpAccess) -> McpToolset:
    """Read one `mcp` tool. Raises `ApiError` 400."""
    label = filled_text(tool, "server_label", path)
    if not LABEL.fullmatch(label):
        rule = "It begins with a letter and has at most 64 letters, digits, dashes and underscores."
        raise invalid_request(f"Invalid 'server_label': {quote(label)}. {rule}", f"{path}.server_label", "invalid_value")
    for name in ("connector_id", "tunnel_id"):
        if optional_text(tool, name, path) is not None:
            message = f"'{name}' names a service of OpenAI, which this gateway cannot reach. Use 'server_url' instead."
            raise invalid_request(message, f"{path}.{name}", "unsupported_value")
    url = optional_text(tool, "server_url", path)
    if url is not None:
        server = McpServer(label, _checked_url(url, f"{path}.server_url", access), _headers(tool, path))
        configured = ConfiguredServer()
    else:
        configured = _configured(label, path, access)
        server = McpServer(label, None, _forwarded(tool, path, configured))
    requested = read_allowed_tools(tool, path)
    return McpToolset(
        server=server,
        description=optional_text(tool, "server_description", path) or configured.description,
        allowed=tuple(allowed for allowed in (configured.allowed, requested) if allowed is not None),
        approval=read_approval(tool, path),
        configured_approval=configured.approval,
    )


def _checked_url(url: str, param: str, access: McpAccess) -> str:
    if not access.hosts.entries:
        complaint: str | None = "this gateway does not connect to MCP servers that a request names"
    elif len(url) > _LONGEST_URL:
        complaint = "it is too long"
    else:
        complaint = server_complaint(url, access.hosts)
    if complaint is not None:
        # The URL itself is not repeated: it may carry a secret.
        setting = "The setting mcp_allowed_hosts of the gateway lists the hosts that are allowed."
        raise invalid_request(f"Invalid value for '{param}': {complaint}. {setting}", param, "unsupported_value")
    return url.partition("#")[0]


def _configured(label: str, path: str, access: McpAccess) -> ConfiguredServer:
    server = access.servers.get(label)
    if server is not None:
        return server
    if access.servers:
        message = f"No MCP server {quote(label)} is configured, and there is no 'server_url'."
        raise invalid_request(message, f"{path}.server_label", "invalid_value")
    raise missing(f"{path}.server_url")


def _headers(tool: Object, path: str) -> tuple[tuple[str, str], ...]:
    """Return the headers for a server that the request names, in lower case, the authorization among them."""
    members = optional_object(tool, "headers", path) or {}
    param = f"{path}.headers"
    if len(members) > _MOST_HEADERS:
        raise invalid_request(f"'{param}' has more than {_MOST_HEADERS} headers.", param, "invalid_value")
    headers: dict[str, str] = {}
    for name, value in members.items():
        headers[_header_name(name, param)] = _header_value(value, f"{param}.{name[:64]}")
    if sum(len(name) + len(value) for name, value in headers.items()) > _LONGEST_HEADERS:
        raise invalid_request(f"'{param}' is too long.", param, "invalid_value")
    authorization = _authorization(tool, path)
    if authorization is not None:
        if "authorization" in headers:
            message = "Give either 'authorization' or a header 'Authorization', not both."
            raise invalid_request(message, f"{path}.authorization", "invalid_value")
        headers["authorization"] = authorization
    return tuple(sorted(headers.items()))


def _forwarded(tool: Object, path: str, configured: ConfiguredServer) -> tuple[tuple[str, str], ...]:
    """Return the headers that a request adds to those of an operator's server."""
    if optional_object(tool, "headers", path):
        message = "The headers of this MCP server are those of the gateway's settings."
        raise invalid_request(message, f"{path}.headers", "unsupported_value")
    authorization = _authorization(tool, path)
    if authorization is None:
        return ()
    if not configured.forwards_authorization:
        message = "The gateway has its own authorization for this MCP server (its setting forward_authorization changes that)."
        raise invalid_request(message, f"{path}.authorization", "unsupported_value")
    return (("authorization", authorization),)


def _authorization(tool: Object, path: str) -> str | None:
    token = optional_text(tool, "authorization", path)
    return None if not token else f"Bearer {_header_value(token.removeprefix('Bearer '), f'{path}.authorization')}"


def _header_name(name: str, param: str) -> str:
    lower = name.lower()
    if not _HEADER_NAME.fullmatch(name):
        raise invalid_request(f"{quote(name)} is not the name of a header.", param, "invalid_value")
    if lower in _RESERVED_HEADERS or lower.startswith(_RESERVED_PREFIXES):
        raise invalid_request(f"The header {quote(name)} cannot be set.", param, "unsupported_value")
    return lower


def _header_value(value: Any, param: str) -> str:
    if not isinstance(value, str):
        raise wrong_type(param, "a string")
    if len(value) > _LONGEST_HEADERS or not _HEADER_VALUE.fullmatch(value):
        raise invalid_request(f"'{param}' cannot be sent as the value of a header.", param, "invalid_value")
    return value


def read_allowed_tools(tool: Object, path: str) -> ToolFilter | None:
    """Return the tools that a request, or the operator, allows; None for all. Raises `ApiError` 400."""
    value = tool.get("allowed_tools")
    param = f"{path}.allowed_tools"
    if value is None:
        return None
    if isinstance(value, list):
        return ToolFilter(_names(value, param))
    if isinstance(value, dict):
        return _filter(value, param) if value else None
    raise wrong_type(param, "a list or an object")


def read_approval(tool: Object, path: str) -> ApprovalPolicy | None:
    """Return which calls need an approval; None without a rule. Raises `ApiError` 400."""
    value = tool.get("require_approval")
    param = f"{path}.require_approval"
    if value is None:
        return None
    if isinstance(value, dict):
        always = optional_object(value, "always", param)
        never = optional_object(value, "never", param)
        if always is None and never is None:
            raise missing(f"{param}.always")
        return ApprovalPolicy(
            None if always is None else _filter(always, f"{param}.always"),
            None if never is None else _filter(never, f"{param}.never"),
        )
    if not isinstance(value, str):
        raise wrong_type(param, "a string or an object")
    if value not in _MODES:
        message = f"Invalid value: {quote(value)}. Supported values are: 'always', 'never'."
        raise invalid_request(message, param, "invalid_value")
    return _MODES[value]


def _filter(value: Object, param: str) -> ToolFilter:
    """Read a filter. One that names nothing matches nothing, so that it allows nothing by accident."""
    names = value.get("tool_names")
    if names is not None and not isinstance(names, list):
        raise wrong_type(f"{param}.tool_names", "a list")
    read_only = optional_flag(value, "read_only", param)
    if names is None:
        return NO_TOOLS if read_only is None else ToolFilter(None, read_only)
    return ToolFilter(_names(names, f"{param}.tool_names"), read_only)


def _names(value: list[Any], param: str) -> frozenset[str]:
    if len(value) > _MOST_NAMES:
        raise invalid_request(f"'{param}' has more than {_MOST_NAMES} names.", param, "invalid_value")
    for index, name in enumerate(value):
        if not isinstance(name, str):
            raise wrong_type(f"{param}[{index}]", "a string")
    return frozenset(value)
