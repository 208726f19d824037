"""One backend: its URL, its connections, and the open answer to a chat request."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType

import aiohttp
from yarl import URL

from proxy.backend import push
from proxy.backend.push import BodyBroken, PushHandler, Sink
from proxy.wire.errors import server_error

_ERROR_BODY_LIMIT = 64 * 1024
_READ_SIZE = 256 * 1024


class Backend:
    """A chat server at `url` (which ends in `/v1`). Errors of the connection become `ApiError`s; nothing is retried."""

    def __init__(self, url: str, *, api_key: str | None, connect_timeout: float) -> None:
        """`connect_timeout` is in seconds. Create it inside the running event loop."""
        self.url = URL(url)
        self._chat = self.url / "chat" / "completions"
        self._api_key = api_key
        connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=30)
        push.install(connector)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent",),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def open_chat(self, body: bytes, headers: Mapping[str, str]) -> ChatStream:
        """Send a chat request; returns when the status line and headers are there. Raises `ApiError` (502)."""
        sent = {**headers, "Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}
        return ChatStream(await self._send("POST", self._chat, body, sent))

    async def request(
        self, method: str, path: str, *, query: str = "", body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> aiohttp.ClientResponse:
        """Any request below `/v1` (`path` is relative to it), its answer unread. Raises `ApiError` (502)."""
        url = URL(f"{self.url}/{path}", encoded=True)
        if query:
            url = URL(f"{url}?{query}", encoded=True)
        return await self._send(method, url, body, {"Accept-Encoding": "identity", **(headers or {})})

    async def _send(self, method: str, url: URL, body: bytes | None, headers: dict[str, str]) -> aiohttp.ClientResponse:
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        try:
            return await self._session.request(method, url, data=body, headers=headers, allow_redirects=False)
        except aiohttp.ConnectionTimeoutError:
            raise server_error("The backend did not accept the connection in time.", 504) from None
        except aiohttp.ClientConnectorError:
            raise server_error("The backend cannot be reached: is it running, and is its URL right?") from None
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise server_error(f"The backend closed the connection without an answer ({type(error).__name__}).") from None


class ChatStream:
    """The answer to a chat request: status and headers are there, the body is not read yet."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        protocol = response._protocol
        self._push = protocol if isinstance(protocol, PushHandler) and protocol.pushing else None
        self._flowing = asyncio.Event()
        self._flowing.set()

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._response.status

    @property
    def is_event_stream(self) -> bool:
        """The body is server-sent events (else one JSON object)."""
        return self._response.content_type == "text/event-stream"

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait, where the backend gave a number of them."""
        value = self._response.headers.get("Retry-After", "")
        return float(value) if value.isdigit() else None

    async def pump(self, sink: Sink) -> None:
        """Hand the body to `sink`, piece by piece as it comes, to its end. Raises `ApiError` if it breaks off."""
        try:
            if self._push is not None:
                await self._push.attach(sink)
                return
            content = self._response.content
            while data := await content.readany():
                sink(data)
                await self._flowing.wait()
        except (aiohttp.ClientError, BodyBroken, ConnectionError, TimeoutError):
            raise server_error("The connection to the backend broke in the middle of the answer.") from None

    async def read(self, limit: int = _ERROR_BODY_LIMIT) -> bytes:
        """The body, at most `limit` bytes of it. Raises `ApiError` if it breaks off."""
        pieces: list[bytes] = []
        size = 0
        try:
            while size < limit and (data := await self._response.content.read(min(_READ_SIZE, limit - size))):
                pieces.append(data)
                size += len(data)
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            raise server_error("The connection to the backend broke in the middle of the answer.") from None
        return b"".join(pieces)

    def pause(self) -> None:
        """Stop reading, so that the backend feels the client's pace."""
        if self._push is not None:
            self._push.pause()
        self._flowing.clear()

    def resume(self) -> None:
        """Read on."""
        if self._push is not None:
            self._push.resume()
        self._flowing.set()

    def close(self) -> None:
        """Drop the connection unless the body was read to its end: a backend takes that as the client's leaving."""
        self._response.close()

    async def __aenter__(self) -> ChatStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
