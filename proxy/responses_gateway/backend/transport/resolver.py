"""The addresses of backends, also while the DNS cannot be reached."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
from aiohttp.abc import ResolveResult

# What tells of an outage, and nothing of the name.
_FAILURES = (socket.EAI_AGAIN, socket.EAI_FAIL)
_PATIENCE = 1.0  # seconds for an answer, where the last one is known


class BackendResolver(aiohttp.ThreadedResolver):
    """Resolves names. An answer of the DNS is believed, also that there is no such name; while none comes, or it tells of a
    failure, the addresses are the last ones that it told."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, int, int], list[ResolveResult]] = {}

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[ResolveResult]:
        """Return the addresses. Raise `OSError`."""
        last = self._last.get((host, port, family))
        try:
            async with asyncio.timeout(_PATIENCE if last else None):
                addresses = await super().resolve(host, port, family)
        except (TimeoutError, socket.gaierror) as error:
            if not last or (isinstance(error, socket.gaierror) and error.errno not in _FAILURES):
                raise
            return last
        self._last[host, port, family] = addresses
        return addresses
