"""Which pages of the web the gateway fetches: public ones, and those of private hosts that the operator allows.

An allowed host without a port stands for all of its ports."""

from __future__ import annotations

from yarl import URL

from responses_gateway.wire.hosts.allowed_hosts import AllowedHosts
from responses_gateway.wire.hosts.public_urls import not_public

# Ports of web servers: others belong to services that are not meant to be asked by strangers.
_WEB_PORTS = frozenset({80, 443, 8080, 8443})


def page_complaint(url: str, private_hosts: AllowedHosts) -> str | None:
    """Say why a page is not fetched; return None if it is."""
    try:
        parsed = URL(url)
        host = parsed.raw_host or ""  # as it is looked up
        port = parsed.port or 0
    except ValueError:
        return "it is not a valid URL"
    has_user = bool(parsed.user or parsed.password)
    if parsed.scheme in ("http", "https") and not has_user and may_be_private(host, port, private_hosts):
        return None
    # Where two parsers see different hosts, the one that connects counts.
    reason = not_public(url) or not_public(str(parsed))
    if reason is None and port not in _WEB_PORTS:
        return f"port {port} is not that of a web server"
    return reason


def may_be_private(host: str, port: int, private_hosts: AllowedHosts) -> bool:
    """Tell whether the addresses of a host may be private."""
    return private_hosts.lists(host, port) or private_hosts.lists(host)
