"""One backend: its URL, its connections, and the open answer to a chat request."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterable, Mapping
from types import TracebackType

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from proxy.backend import push
from proxy.backend.push import BodyBroken, PushHandler, Sink
from proxy.wire.errors import ApiError, server_error

_ERROR_BODY_LIMIT = 64 * 1024
_READ_SIZE = 256 * 1024
#: Bodies larger than this are written in pieces, so that other streams get their turn in between.
_WRITE_SIZE = 256 * 1024
#: A request body.
Body = bytes | io.BytesIO | aiohttp.StreamReader | None
#: Longest time that an idle connection is kept, in seconds. vLLM closes its own after five: a request that is sent while
#: the server closes is lost, so we go first.
_KEEP_ALIVE = 4


class Backend:
    """A chat server at `url` (which ends in `/v1`). Errors of the connection become `ApiError`s; nothing is retried."""

    def __init__(self, url: str, *, api_key: str | None, connect_timeout: float) -> None:
        """`connect_timeout` is in seconds. Create it inside the running event loop."""
        self.url = URL(url)
        self._chat = self.url / "chat" / "completions"
        self._api_key = api_key
        # Two pools: on the connections of the first, bodies of event streams are pushed and nobody else can read them.
        # Some servers compress whatever they are told, and the translation needs text; the relay passes on what it gets.
        connector = _connector()
        push.install(connector)
        self._chats = _session(connector, connect_timeout, decompress=True)
        self._others = _session(_connector(), connect_timeout, decompress=False)

    @property
    def root(self) -> URL:
        """Where the endpoints are that have no version in their path (vLLM's `/tokenize`)."""
        return self.url.parent

    async def close(self) -> None:
        """Close all connections."""
        await self._chats.close()
        await self._others.close()

    async def open_chat(self, body: bytes, headers: Mapping[str, str]) -> ChatStream:
        """Send a chat request; returns when the status line and headers are there. Raises `ApiError` (502)."""
        sent = CIMultiDict(headers)
        sent.update({"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"})
        large = len(body) > _WRITE_SIZE
        return ChatStream(await self._send(self._chats, "POST", self._chat, io.BytesIO(body) if large else body, sent))

    async def request(
        self,
        method: str,
        path: str,
        *,
        below: URL | None = None,
        query: str = "",
        body: Body = None,
        headers: Iterable[tuple[str, str]] = (),
    ) -> aiohttp.ClientResponse:
        """Any other request, its answer unread and as it came. Path and query are encoded already; the path is relative to
        `url`, or to `below`. Raises `ApiError` (502)."""
        base = str(self.url if below is None else below).rstrip("/")
        url = URL(f"{base}/{path}?{query}" if query else f"{base}/{path}", encoded=True)
        sent = CIMultiDict(headers)
        sent.setdefault("Accept-Encoding", "identity")
        return await self._send(self._others, method, url, body, sent)

    async def _send(
        self, session: aiohttp.ClientSession, method: str, url: URL, body: Body, headers: CIMultiDict[str]
    ) -> aiohttp.ClientResponse:
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        try:
            return await session.request(method, url, data=body, headers=headers, allow_redirects=False)
        except aiohttp.ConnectionTimeoutError:
            raise server_error("The backend did not accept the connection in time.", 504) from None
        except aiohttp.ClientConnectorError:
            raise server_error("The backend cannot be reached: is it running, and is its URL right?") from None
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise server_error(f"The backend closed the connection without an answer ({type(error).__name__}).") from None


def _connector() -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(limit=0, ttl_dns_cache=30, keepalive_timeout=_KEEP_ALIVE)


def _session(connector: aiohttp.TCPConnector, connect_timeout: float, *, decompress: bool) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout),
        auto_decompress=decompress,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent",),
    )


class ChatStream:
    """The answer to a chat request: status and headers are there, the body is not read yet."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        protocol = response._protocol
        self._push = protocol if isinstance(protocol, PushHandler) and protocol.pushing else None
        self._sink: Sink = _no_sink
        self._finished: asyncio.Future[None] | None = None
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

    def attach(self, sink: Sink) -> None:
        """Hand the body to `sink`, piece by piece as it comes: what is there already now, the rest during `finish`."""
        self._sink = sink
        if self._push is not None:
            self._finished = self._push.attach(sink)
            if not self._flowing.is_set():  # the client was slow before the answer came
                self._push.pause()

    async def finish(self) -> None:
        """Wait for the end of the body that `attach` began to take. Raises `ApiError` if it breaks off."""
        try:
            if self._finished is not None:
                await self._finished
                return
            content = self._response.content
            while data := await content.readany():
                self._sink(data)
                await self._flowing.wait()
        except (aiohttp.ClientError, BodyBroken, ConnectionError, TimeoutError):
            raise server_error("The connection to the backend broke in the middle of the answer.") from None
        finally:
            self._push = None  # the connection may serve another request now: `pause` and `resume` must not touch it

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

    async def read_refusal(self) -> bytes:
        """The body of a refusal, or nothing if it breaks off: the status is there, and says enough."""
        try:
            return await self.read()
        except ApiError:
            return b""

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


def _no_sink(data: bytes) -> None:
    raise RuntimeError("finish before attach")
