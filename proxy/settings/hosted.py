"""Tools that the gateway runs itself."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from proxy.settings.mcp_servers import McpServerDetails, check_label
from proxy.settings.section import Seconds, Section, TextList

_TOOL = re.compile(r"[^/\s]+/\S.*")


class Hosted(Section):
    """Tools that the gateway runs itself."""

    title = "Hosted tools"

    mcp_servers: dict[str, McpServerDetails] = Field(
        default={},
        description="MCP servers that requests may use by their label, each with `url` (and `headers`, `transport`) or "
        "`command` (and `args`, `env`, `cwd`), and optionally `require_approval`, `allowed_tools`, `description`, "
        "`forward_authorization`. `${NAME}` in headers and env stands for an environment variable. Requires "
        "`pip install 'responses-gateway[mcp]'`. See [docs/hosted-tools.md](hosted-tools.md).",
    )
    mcp_allowed_hosts: TextList = Field(
        default=[],
        description="Hosts of MCP servers that requests may name with `server_url`: `mcp.example.com` (HTTPS), "
        "`*.example.com` for all names below, `*` for any public host, `tools.internal:9000` for one port, which may be plain "
        "HTTP and at a private address. None by default.",
    )
    mcp_list_age: Seconds = Field(
        default=300, ge=0, description="How long the list of an MCP server's tools is used before it is asked again."
    )
    mcp_connect_timeout: Seconds = Field(
        default=30, gt=0, description="Maximum time for connecting to an MCP server, and again for listing its tools."
    )
    file_search_tools: dict[str, str] = Field(
        default={},
        description="The MCP tool that searches a vector store, as `label/tool`, by the store's id; `*` for all others: "
        "`{vs_manuals: docs/search, '*': wiki/search}`. Stores that are not listed are not searched.",
    )

    @field_validator("mcp_servers")
    @classmethod
    def _check_labels(cls, value: dict[str, McpServerDetails]) -> dict[str, McpServerDetails]:
        for label in value:
            check_label(label)
        return value

    @field_validator("file_search_tools")
    @classmethod
    def _check_tools(cls, value: dict[str, str]) -> dict[str, str]:
        for tool in value.values():
            if not _TOOL.fullmatch(tool):
                raise ValueError("a tool is named by the label of its MCP server and its own name: docs/search")
        return value
