"""Connections to public addresses, and to those private hosts that the operator allows.

A URL is judged twice: its text before anything is sent, and each address that its name resolves to when a connection is opened.
The second judgement is the one that counts against names that resolve to a private address, now or a moment later."""

from __future__ import annotations

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from responses_gateway.hosted.name_lookups import NameLookups
from responses_gateway.wire.hosts.addresses import is_public
from responses_gateway.wire.hosts.allowed_hosts import AllowedHosts
from responses_gateway.wire.hosts.public_urls import may_be_private


class PrivateAddressError(OSError):
    """A name resolves to private addresses only."""


class PublicResolver(AbstractResolver):
    """Resolves names to public addresses. Those of allowed private hosts may have others."""

    def __init__(self, private_hosts: AllowedHosts, resolver: AbstractResolver | None = None) -> None:
        """Create it inside the running event loop. `resolver` is the one that asks the DNS."""
        self._private_hosts = private_hosts
        self._resolver = resolver or NameLookups()

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[ResolveResult]:
        """Return the addresses that may be used. Raise `PrivateAddressError` if there are only others."""
        addresses = await self._resolver.resolve(host, port, family)
        if may_be_private(host, port, self._private_hosts):
            return addresses
        public = [address for address in addresses if is_public(address["host"])]
        if not public:
            raise PrivateAddressError("the name resolves to a private address")
        return public

    async def close(self) -> None:
        """Close the resolver behind this one."""
        await self._resolver.close()
