"""The addresses of a name, such as that of a headless Service: one member for each.

A resolver that says that there is no such name, or no address, is believed; one that cannot be reached is not."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import ClassVar

from responses_gateway.backend.discovery.interface import Report, SourceKind, Target, address_of

# What the resolver says of a name without addresses. `EAI_NODATA` and `EAI_ADDRFAMILY` are not everywhere.
_NONE = frozenset(getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if hasattr(socket, name))


@dataclass(frozen=True, slots=True)
class DnsSource:
    """Looks a name up every `interval` seconds. The system's resolver runs in a thread; it knows no ports."""

    kind: ClassVar[SourceKind] = "dns"
    host: str
    port: int
    interval: float

    async def watch(self, report: Report) -> None:
        while True:
            try:
                report(await self._look_up())
            except OSError as error:
                report(None, f"{self.host} cannot be looked up: {error.strerror or error}")
            except UnicodeError:
                report(None, f"{self.host} is no name that can be looked up")
            await asyncio.sleep(self.interval)

    async def _look_up(self) -> list[Target]:
        """Return the targets, none if there is no such name. Raises `OSError` for an outage."""
        loop = asyncio.get_running_loop()
        try:
            entries = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        except socket.gaierror as error:
            if error.errno in _NONE:
                return []
            raise
        # An address within the link has a zone, without which it cannot be reached.
        hosts = {str(place[0]) for _, _, _, _, place in entries}
        return [Target(address_of(host, self.port)) for host in sorted(hosts) if "%" not in host]
