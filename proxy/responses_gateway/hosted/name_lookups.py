"""Look-ups of names that clients, models and pages choose.

They have threads of their own. A name server that never answers holds one for up to half a minute, and the event loop has two
for all other names, also those of backends (uvloop; asyncio looks them up where all other work in threads is done)."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from threading import Thread
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

_AT_ONCE = 32


class NameLookups(AbstractResolver):
    """Looks so many names up at the same time; others wait."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        """Return the addresses of a host. Raise `OSError`."""
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        addresses: asyncio.Future[Any] = loop.create_future()

        def look_up() -> None:
            answer: object
            try:
                answer = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
            except OSError as error:
                answer = error
            except UnicodeError as error:  # a name that cannot be written in DNS
                answer = OSError(str(error))
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._end, addresses, answer)

        try:
            Thread(target=look_up, daemon=True).start()  # for which the end of the process does not wait
        except RuntimeError as error:  # the system allows no more threads
            self._places.release()
            raise OSError(str(error)) from error
        return [
            ResolveResult(
                hostname=host, host=address[0], port=address[1], family=kind, proto=proto, flags=socket.AI_NUMERICHOST
            )
            for kind, _, proto, _, address in await addresses
        ]

    async def close(self) -> None:
        """Do nothing: each thread ends by itself."""

    def _end(self, addresses: asyncio.Future[Any], answer: object) -> None:
        """Give the place back, which a look-up has until its thread ends, also if nobody waits for it any longer."""
        self._places.release()
        if addresses.done():
            return
        if isinstance(answer, OSError):
            addresses.set_exception(answer)
        else:
            addresses.set_result(answer)
