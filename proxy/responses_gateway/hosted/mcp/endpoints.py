"""Where MCP servers are, and what bounds the traffic with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

HttpTransport = Literal["auto", "http", "sse"]


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """A server that is reached over HTTP. `transport`: streamable HTTP, the older one with server-sent events, or whichever the
    server has. `public_only`: only public addresses are connected to, whatever the DNS answers."""

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    transport: HttpTransport = "auto"
    public_only: bool = True


@dataclass(frozen=True, slots=True)
class StdioEndpoint:
    """A server that is a program, run by the gateway. `env` is its environment, and all of it."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None


Endpoint = HttpEndpoint | StdioEndpoint


@dataclass(frozen=True, slots=True)
class McpLimits:
    """Bounds. Times in seconds, sizes in bytes.

    `connect_timeout`: for connecting to a server, and again for listing its tools. `call_timeout`: for one call. `list_age`:
    how long a list of tools is used. `idle_timeout`: after which an unused connection is closed. `message_bytes`: the largest
    message, and the most that a server may send in answer to one request. `connections`, `tenant_connections`: at the same
    time, of all tenants and of one. `tools`, `pages`, `list_bytes`: of one server. `contents`, `result_characters`:
    of the result of a call."""

    connect_timeout: float = 30
    call_timeout: float = 120
    list_age: float = 300
    idle_timeout: float = 300
    message_bytes: int = 8 * 1024 * 1024
    connections: int = 64
    tenant_connections: int = 16
    tools: int = 500
    pages: int = 50
    list_bytes: int = 1024 * 1024
    contents: int = 1000
    result_characters: int = 512 * 1024
