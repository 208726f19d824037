"""Which MCP servers a request may name by their URL.

An allowed host without a port stands for its HTTPS port, at public addresses. With a port it is that port, and plain HTTP will
do; if it is not a pattern, its addresses may be private."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from responses_gateway.wire.hosts.allowed_hosts import AllowedHosts
from responses_gateway.wire.hosts.public_urls import not_public

_PORTS = {"http": 80, "https": 443}
# Printable ASCII without what some parsers drop or read as something else.
_PLAIN = re.compile(r"[!-\[\]-~]+")


class _Server(NamedTuple):
    scheme: str
    host: str
    port: int


def server_complaint(url: str, allowed: AllowedHosts) -> str | None:
    """Say why the gateway does not connect to a server; return None if it does."""
    server = _server(url)
    if server is None:
        return "it is not the URL of a server: https://mcp.example.com/mcp"
    if allowed.lists(server.host, server.port):
        return None
    is_https = (server.scheme, server.port) == ("https", _PORTS["https"])
    if not allowed.covers(server.host, server.port) and not (is_https and allowed.covers(server.host)):
        return "its host and port are not allowed"
    return not_public(url)


def may_be_private(url: str, allowed: AllowedHosts) -> bool:
    """Tell whether the addresses of a server may be private: an entry is its very host, with its port."""
    server = _server(url)
    return server is not None and allowed.lists(server.host, server.port)


def _server(url: str) -> _Server | None:
    """Return the parts of a URL by which it is judged; None if parsers might disagree about them."""
    if not _PLAIN.fullmatch(url):
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname or "@" in parts.netloc or "%" in parts.netloc:
        return None
    return _Server(parts.scheme, parts.hostname, _PORTS[parts.scheme] if port is None else port)
