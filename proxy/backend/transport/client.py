"""One backend: its URL, its connections, and the open answer to a chat request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Literal

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from proxy.backend.transport import body_push as push
from proxy.backend.transport.body_push import BodyBroken, PushHandler, Sink
from proxy.backend.transport.keepalive import open_socket
from proxy.backend.transport.request_writer import Posting
from proxy.wire.errors import ApiError, server_error

_ERROR_BODY_LIMIT = 64 * 1024
_READ_SIZE = 256 * 1024
#: Bodies larger than this, in bytes, are what many a server hangs up on.
_LARGE = 256 * 1024
#: A request body.
Body = bytes | aiohttp.StreamReader | None
#: Longest time that an idle connection is kept, in seconds. vLLM closes its own after five. A chat request that meets such
#: an end is sent again (`posting.py`), any other is lost: so connections for those are closed before.
_KEEP_CHATS = 15
_KEEP_OTHERS = 4
_CHAT_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}
#: How long a backend may take to end the body behind its last event, in seconds.
_LINGER = 1.0
#: A `Retry-After` of more seconds than this is none: a day.
_LONGEST_WAIT = 24 * 3600


class Unreachable(ApiError):
    """No answer came: the connection could not be made (in time), it was dropped before the first byte, or none came.

    `body_may_be_why`: the body was large, and many a server hangs up on one that is too large, or takes its time.
    """

    def __init__(
        self,
        reason: Literal["connect", "connect_timeout", "dropped", "silent"],
        message: str,
        status: int = 502,
        *,
        body_may_be_why: bool = False,
    ) -> None:
        super().__init__(status, message, type="server_error", code="server_error")
        self.reason = reason
        self.body_may_be_why = body_may_be_why


class Backend:
    """A chat server at `url` (which ends in `/v1`). Errors of the connection become `ApiError`s; nothing is retried."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None,
        connect_timeout: float,
        answer_timeout: float | None = None,
        forward_authorization: bool = True,
    ) -> None:
        """Times are in seconds; `answer_timeout` is for the head of the answer to a chat request. Without
        `forward_authorization` this backend never gets a client's `Authorization`. Create it inside the running event loop."""
        self.url = URL(url)
        self._api_key = api_key
        self._answer_timeout = answer_timeout
        self._forward_authorization = forward_authorization
        # Two pools: on the connections of the first, bodies of event streams are pushed and nobody else can read them.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout)
        self._chats = _connector(_KEEP_CHATS)
        push.install(self._chats)
        self._posting = Posting(self.url / "chat" / "completions", self._chats, timeout, _CHAT_HEADERS)
        self._others = aiohttp.ClientSession(
            connector=_connector(_KEEP_OTHERS),
            timeout=timeout,
            auto_decompress=False,  # the relay passes on what it gets
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent",),
        )
        self._lingering: set[aiohttp.ClientResponse] = set()  # whose end may still come

    @property
    def root(self) -> URL:
        """Where the endpoints are that have no version in their path (vLLM's `/tokenize`)."""
        return self.url.parent

    @property
    def closed(self) -> bool:
        """It is gone: every request fails."""
        return self._others.closed

    async def close(self) -> None:
        """Close all connections."""
        for answer in self._lingering:
            answer.close()
        await self._chats.close()
        await self._others.close()

    async def open_chat(self, body: bytes, headers: Mapping[str, str]) -> ChatStream:
        """Send a chat request; returns when the status line and headers are there. Raises `Unreachable` (502, 504)."""
        self._require_open()
        sent = headers
        if self._api_key is not None:
            sent = {**headers, "Authorization": f"Bearer {self._api_key}"}
        elif not self._forward_authorization:
            sent = {name: value for name, value in headers.items() if name != "Authorization"}
        large = len(body) > _LARGE
        try:
            async with asyncio.timeout(self._answer_timeout):
                answer = await _answered(self._posting.post(body, sent), large)
        except TimeoutError:
            message = f"The backend sent nothing for {self._answer_timeout:g} seconds."
            raise Unreachable("silent", message, 504, body_may_be_why=large) from None
        return ChatStream(answer, self._lingering, large)

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
        `url`, or to `below`. Raises `Unreachable` (502, 504)."""
        self._require_open()
        base = str(self.url if below is None else below).rstrip("/")
        url = URL(f"{base}/{path}?{query}" if query else f"{base}/{path}", encoded=True)
        sent = CIMultiDict(headers)
        sent.setdefault("Accept-Encoding", "identity")
        if self._api_key is not None:
            sent["Authorization"] = f"Bearer {self._api_key}"
        elif not self._forward_authorization:
            sent.popall("Authorization", None)
        large = isinstance(body, aiohttp.StreamReader) or (isinstance(body, bytes) and len(body) > _LARGE)
        return await _answered(self._others.request(method, url, data=body, headers=sent, allow_redirects=False), large)

    def _require_open(self) -> None:
        if self.closed:
            raise Unreachable("connect", "The backend was taken out of the gateway.")


async def _answered(answer: Awaitable[aiohttp.ClientResponse], large: bool) -> aiohttp.ClientResponse:
    """The answer to a request, whose body was perhaps a large one. Raises `Unreachable` where there is none."""
    try:
        return await answer
    except aiohttp.ConnectionTimeoutError:
        raise Unreachable("connect_timeout", "The backend did not accept the connection in time.", 504) from None
    except aiohttp.ClientConnectorError:
        raise Unreachable("connect", "The backend cannot be reached: is it running, and is its URL right?") from None
    except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
        message = f"The backend closed the connection without an answer ({type(error).__name__})."
        raise Unreachable("dropped", message, body_may_be_why=large) from None


def _connector(kept: float) -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(limit=0, ttl_dns_cache=30, keepalive_timeout=kept, socket_factory=open_socket)


class ChatStream:
    """The answer to a chat request: status and headers are there, the body is not read yet."""

    def __init__(self, response: aiohttp.ClientResponse, lingering: set[aiohttp.ClientResponse], large: bool) -> None:
        """`lingering` holds the answers that were left before their end; `large`: the request was."""
        self.backend = ""  # the name of the one that answers
        #: Called once, when the answer is read or dropped: whether it broke off.
        self.on_end: Callable[[bool], None] | None = None
        self._response = response
        self._lingering = lingering
        self._large = large
        protocol = response._protocol
        self._push = protocol if isinstance(protocol, PushHandler) and protocol.pushing else None
        self._sink: Sink = _no_sink
        self._finished: asyncio.Future[None] | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._left = False

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
        """Seconds to wait, where the backend said so."""
        return seconds_to_wait(self._response.headers.get("Retry-After", ""), time.time())

    def attach(self, sink: Sink) -> None:
        """Hand the body to `sink`, piece by piece as it comes: what is there already now, the rest during `finish`."""
        self._sink = sink
        if self._push is not None:
            self._finished = self._push.attach(sink)
            self._finished.add_done_callback(_seen)
            if self._left and not self._finished.done():  # what was there already was all that is wanted
                self._finished.set_result(None)
            if not self._flowing.is_set():  # the client was slow before the answer came
                self._push.pause()

    async def finish(self) -> None:
        """Wait for the end of the body that `attach` began to take. Raises `ApiError` if it breaks off."""
        try:
            if self._finished is not None:
                await self._finished
                return
            content = self._response.content
            while not self._left and (data := await content.readany()):
                self._sink(data)
                await self._flowing.wait()
        except (aiohttp.ClientError, BodyBroken, ConnectionError, TimeoutError):
            self._end(broke=True)
            raise server_error("The connection to the backend broke in the middle of the answer.") from None
        finally:
            self._push = None  # the connection may serve another request now: `pause` and `resume` must not touch it
            self._sink = _no_sink  # it knows this stream, and neither would be freed
            self._end(broke=False)  # unless it broke: that was told already

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

    def leave(self) -> None:
        """Nothing more is wanted. `finish` returns; the connection is kept if the body ends within a second."""
        if self._response.connection is None:
            return  # it has ended
        self._left = True
        self.resume()
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(None)
        self._lingering.add(self._response)
        asyncio.get_running_loop().call_later(_LINGER, self._give_up)

    def _give_up(self) -> None:
        self._lingering.discard(self._response)
        self._response.close()

    def close(self) -> None:
        """Drop the connection unless the body was read to its end: a backend takes that as the client's leaving."""
        if not self._left:
            self._response.close()
        self._end(broke=False)

    def drop(self) -> None:
        """The backend has been silent for too long: close the connection, which whoever reads the body sees as a break. That is
        a failure of the backend, unless the request was large and may be why."""
        self._response.close()
        self._end(broke=not self._large)

    def _end(self, *, broke: bool) -> None:
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(broke)

    async def __aenter__(self) -> ChatStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def seconds_to_wait(value: str, now: float) -> float | None:
    """What a `Retry-After` says, a number of seconds or a date; None if it makes no sense. `now` is a Unix time."""
    try:
        seconds = float(value) if value[:1].isdecimal() else parsedate_to_datetime(value).timestamp() - now
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if seconds <= _LONGEST_WAIT else None


def _seen(finished: asyncio.Future[None]) -> None:
    """A body may break when nobody waits for its end any more: its client left before `finish`."""
    if not finished.cancelled():
        finished.exception()


def _no_sink(data: bytes) -> None:
    raise RuntimeError("finish before attach")
