"""Connections to public addresses, and to those private hosts that the operator allows.

A URL is judged twice: its text before anything is sent, and each address that its name resolves to when a connection is opened.
The second judgement is the one that counts against names that resolve to a private address, now or a moment later."""

from __future__ import annotations

import socket
from collections.abc import Collection

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from proxy.wire.public_urls import address_complaint, not_public

# Ports of web servers: others belong to services that are not meant to be asked by strangers.
_WEB_PORTS = frozenset({80, 443, 8080, 8443})


class PrivateAddressError(OSError):
    """A name resolves to private addresses only."""


class PrivateHosts:
    """Private hosts that the operator allows: names or addresses, each with a port or for all of its ports."""

    def __init__(self, hosts: Collection[str]) -> None:
        self._hosts = frozenset(hosts)

    def __contains__(self, place: tuple[str, int]) -> bool:
        host, port = place
        name = f"[{host}]" if ":" in host else host
        return name.lower() in self._hosts or f"{name.lower()}:{port}" in self._hosts


def complaint(url: str, allowed: PrivateHosts) -> str | None:
    """Say why a URL is not fetched; return None if it is."""
    try:
        parsed = URL(url)
        host = parsed.host or ""
        port = parsed.port or 0
        named = (host, port) in allowed and parsed.scheme in ("http", "https") and not (parsed.user or parsed.password)
    except ValueError:
        return "it is not a valid URL"
    if named:
        return None
    reason = not_public(url)
    if reason is not None:
        # Its words concern inputs, where `data:` is possible.
        return reason.replace("http://, https:// and data: are", "http:// and https:// are")
    # Where two parsers see different hosts, the one that connects counts.
    reason = not_public(str(parsed))
    if reason is None and port not in _WEB_PORTS:
        return f"port {port} is not that of a web server"
    return reason


class PublicResolver(AbstractResolver):
    """Resolves names to public addresses. Those of allowed private hosts may have others."""

    def __init__(self, allowed: PrivateHosts, resolver: AbstractResolver | None = None) -> None:
        """Create it inside the running event loop. `resolver` is the one that asks the DNS, by default aiohttp's."""
        self._allowed = allowed
        self._resolver = aiohttp.DefaultResolver() if resolver is None else resolver

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[ResolveResult]:
        """Return the addresses that may be used. Raise `PrivateAddressError` if there are only others."""
        found = await self._resolver.resolve(host, port, family)
        if (host, port) in self._allowed:
            return found
        public = [address for address in found if address_complaint(address["host"]) is None]
        if not public:
            raise PrivateAddressError("the name resolves to a private address")
        return public

    async def close(self) -> None:
        """Close the resolver behind this one."""
        await self._resolver.close()
