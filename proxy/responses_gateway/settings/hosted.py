"""Tools that the gateway runs itself."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated

from pydantic import AfterValidator, ByteSize, Field

from responses_gateway.settings.mcp_servers import McpServersByLabel
from responses_gateway.settings.section import OFF, HeaderKey, Section, TextList, each, only
from responses_gateway.wire.hosts.allowed_hosts import is_entry

SEARCH_SERVICES = ("searxng", "brave", "tavily", "exa")
SANDBOX = "sandbox"
_MCP_TOOL = r"mcp:[^/\s]+/\S+"
_PROVIDER = re.compile("|".join([*SEARCH_SERVICES, _MCP_TOOL]))
_INTERPRETER = re.compile(rf"off|{SANDBOX}(:\S.*)?|{_MCP_TOOL}")
_TOOL = re.compile(r"[^/\s]+/\S.*")
_SERVICE_URL = re.compile(r"https?://[^/?#@\s]+(/[^?#@\s]*)?", re.IGNORECASE)
_PrivateHosts = Annotated[
    TextList,
    each(
        partial(is_entry, ports=True, patterns=False),
        "a host is a name or an address, optionally with a port: wiki.example.lan, 10.1.2.3:8080",
    ),
    AfterValidator(lambda hosts: [host.lower() for host in hosts]),
]
_Provider = Annotated[str | None, only(_PROVIDER.fullmatch, f"expected one of {', '.join(SEARCH_SERVICES)}, or mcp:LABEL/TOOL")]
_ServiceUrl = Annotated[
    str | None,
    only(_SERVICE_URL.fullmatch, "expected a URL without user, query and fragment, such as http://searxng:8080"),
    AfterValidator(lambda url: url and url.rstrip("/")),
]
_FileSearchTools = Annotated[
    dict[str, str],
    only(
        lambda tools: all(map(_TOOL.fullmatch, tools.values())),
        "expected the label of an MCP server and the name of its tool, like docs/search",
    ),
]
_Interpreter = Annotated[str, only(_INTERPRETER.fullmatch, "expected off, sandbox, sandbox:PATH, or mcp:LABEL/TOOL"), OFF]


class Hosted(Section):
    """Tools that the gateway runs itself."""

    title = "Hosted tools"
    optional = True

    hosted_call_timeout: float = Field(default=60, gt=0, le=3600, allow_inf_nan=False)
    """Maximum time for one call of a hosted tool. After that, code in the sandbox is stopped, and loses its variables."""
    hosted_result_bytes: ByteSize = Field(default=ByteSize(64 * 1024), ge=1024)
    """Maximum size of a result as shown to the model; the rest is cut off."""
    web_search_provider: _Provider = None
    """`searxng`, `brave`, `tavily`, `exa`, or a tool of an MCP server as `mcp:LABEL/TOOL`. Default: `searxng` if
    `web_search_url` is set, else no web search. Requires the extra `web`. See [docs/hosted-tools.md](hosted-tools.md)."""
    web_search_url: _ServiceUrl = None
    """Base URL of the search service, for example `http://searxng:8080`, with the format `json` enabled; by default that of the
    provider."""
    web_search_api_key: HeaderKey = None
    """Key for Brave, Tavily or Exa; for SearXNG a bearer token. Prefer the environment to the flag."""
    web_fetch_private_hosts: _PrivateHosts = Field(default=[])
    """Hosts whose pages may be read although their addresses are private, such as `wiki.example.lan` or `10.1.2.3:8080`;
    without a port, all ports."""
    mcp_servers: McpServersByLabel = Field(default={})
    """MCP servers that requests may use by their label, each with `url` (and `headers`, `transport`) or `command` (and `args`,
    `env`, `cwd`), and optionally `require_approval`, `allowed_tools`, `description`, `forward_authorization`. Requires the
    extra `mcp`. See [docs/hosted-tools.md](hosted-tools.md)."""
    mcp_allowed_hosts: TextList = Field(default=[])
    """Hosts of MCP servers that requests may name with `server_url`: `mcp.example.com` (HTTPS), `*.example.com`, `*` for any
    public host, `tools.internal:9000` for one port, also plain HTTP and at a private address. None by default."""
    file_search_tools: _FileSearchTools = Field(default={})
    """The MCP tool that searches a vector store, as `label/tool`, by the store's id; `*` for all others: `{vs_manuals:
    docs/search, '*': wiki/search}`."""
    code_interpreter: _Interpreter = "off"
    """Where Python code of the model runs: `off`, `sandbox` (WebAssembly in a child process, needs Python 3.12 or later with
    the extra `sandbox`), `sandbox:PATH` to run it with another Python than the gateway's (with pyeryx), or a tool of an MCP
    server as `mcp:LABEL/TOOL`."""
    image_generation_model: str | None = None
    """The model that makes images for the tool `image_generation`: one of a backend that serves `/v1/images/generations`. By
    default the tool is not offered."""
    code_interpreter_memory_bytes: ByteSize = Field(default=ByteSize(256 * 1024**2), ge=64 * 1024**2, le=2 * 1024**3)
    """Maximum memory of a container: the code's variables and its files together."""
    code_interpreter_containers: int = Field(default=16, ge=1, le=1000)
    """Maximum containers of a gateway, in all workers together. One key may have half of them. A new one replaces the one that
    was unused for longest."""

    @property
    def searches_with(self) -> str | None:
        """The provider that is used, or None if there is no web search."""
        return self.web_search_provider or ("searxng" if self.web_search_url else None)
