"""Fetches pages of the web for a model: from public addresses only, within bounds of size and time.

Whoever chooses the URL may be an attacker (a page that the model has read), and so may the server that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from responses_gateway.bounded_body import read_at_most
from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.hosted.public_connections import PrivateAddressError, PublicResolver
from responses_gateway.wire.hosts.allowed_hosts import AllowedHosts
from responses_gateway.wire.hosts.public_urls import page_complaint
from responses_gateway.wire.unpacking import DamagedBodyError, Unpacker, is_known

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5
_LONGEST_URL = 4096
_STEP = 16 * 1024  # bytes that are unpacked in one step
# Connections at the same time, in all and to one host.
_CONNECTIONS = 64
_CONNECTIONS_OF_HOST = 8
_HEADERS = {
    "User-Agent": "responses-gateway (fetches pages on request of a user)",
    "Accept": "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.9,*/*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
}


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page as it came. `url` is its address after redirects, `body` its beginning if it is `cut`."""

    url: str
    content_type: str
    charset: str | None
    body: bytes
    cut: bool


class Fetcher:
    """Fetches pages. Create it inside the running event loop, and close it."""

    def __init__(
        self, *, timeout: float, max_bytes: int, private_hosts: Collection[str] = (), resolver: AbstractResolver | None = None
    ) -> None:
        """`timeout` in seconds for a page with its redirects; `private_hosts` may be fetched though they are not public;
        `resolver` asks the DNS."""
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._private_hosts = AllowedHosts.read(private_hosts)
        connector = aiohttp.TCPConnector(
            resolver=PublicResolver(self._private_hosts, resolver),
            use_dns_cache=False,  # so that each connection is to addresses that were judged for it
            limit=_CONNECTIONS,
            limit_per_host=_CONNECTIONS_OF_HOST,
            force_close=True,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            headers=_HEADERS,
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def fetch(self, url: str) -> Fetched:
        """Return a page. Raise `ToolFailure`, whose message reveals nothing of a private address."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._follow(url)
        except TimeoutError:
            raise ToolFailure(f"The page did not arrive within {self._timeout:g} seconds. Try another one.") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ToolFailure(_failure(error)) from None

    async def _follow(self, url: str) -> Fetched:
        for _ in range(_MOST_REDIRECTS + 1):
            self._check(url)
            async with self._session.get(URL(url), allow_redirects=False) as answer:
                location = answer.headers.get("Location")
                if answer.status in _REDIRECTS and location is not None:
                    url = str(answer.url.join(URL(location)))
                    continue
                if answer.status != 200:
                    raise ToolFailure(f"The server answered with status {answer.status}: the page cannot be read.")
                return await self._read(answer)
        raise ToolFailure(f"The page redirects more than {_MOST_REDIRECTS} times. Try another one.")

    def _check(self, url: str) -> None:
        if len(url) > _LONGEST_URL:
            raise ToolFailure(f"The URL is longer than {_LONGEST_URL} characters: it is not fetched.")
        reason = page_complaint(url, self._private_hosts)
        if reason is not None:
            raise ToolFailure(f"This URL cannot be fetched: {reason}. Only public pages can be read.")

    async def _read(self, answer: aiohttp.ClientResponse) -> Fetched:
        body, cut = await read_bounded(answer, self._max_bytes)
        return Fetched(str(answer.url), answer.content_type, _charset(answer), body, cut)


async def read_bounded(answer: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool]:
    """Return the beginning of a body, at most `limit` bytes, packed or not, and whether there is more. The rest is not read.
    Raise `ToolFailure`."""
    encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding != "identity" and not is_known(encoding):
        raise ToolFailure("The answer is compressed in a way that cannot be read here.")
    body = await read_at_most(answer.content, limit + 1)
    cut = len(body) > limit
    body = body[:limit]
    if encoding != "identity":
        body, longer = await asyncio.to_thread(_unpack, body, encoding, limit, cut)
        cut = cut or longer
    return body, cut


def _unpack(packed: bytes, encoding: str, limit: int, cut: bool) -> tuple[bytes, bool]:
    """Return what compressed data contains, at most `limit` bytes, and whether there is more. Raise `ToolFailure`."""
    unpacker = Unpacker(packed, encoding)
    pieces = bytearray()
    try:
        while len(pieces) <= limit and (piece := unpacker.read(min(limit + 1 - len(pieces), _STEP))):
            pieces += piece
    except DamagedBodyError:
        if not cut or not pieces:  # the end is missing where only the beginning was read
            raise ToolFailure("The answer is damaged: it cannot be unpacked.") from None
    return bytes(pieces[:limit]), len(pieces) > limit


def _charset(answer: aiohttp.ClientResponse) -> str | None:
    try:
        return answer.charset
    except (LookupError, ValueError):
        return None


def _failure(error: Exception) -> str:
    """Return words for the model, with nothing of the addresses behind a name."""
    if isinstance(getattr(error, "os_error", None), PrivateAddressError):
        return "This URL cannot be fetched: its host is a private or special address. Only public pages can be read."
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "The host of the page is not known. Check the URL."
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return "The certificate of the server is not valid: the page is not read."
    if isinstance(error, aiohttp.ClientConnectorError):
        return "The server of the page cannot be reached. Try another one."
    return "The page cannot be fetched: the connection broke, or the server does not answer as a web server does."
