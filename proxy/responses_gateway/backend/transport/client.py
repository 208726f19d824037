"""The client of one backend: its URL, its connections, and the streamed answer to a chat request."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Literal
from uuid import NAMESPACE_URL, uuid4, uuid5

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from responses_gateway.backend.transport.aiohttp_internals import BodyInterrupted, DirectSender, NoHead, PushedAnswer, Sink
from responses_gateway.backend.transport.optional_fields import (
    ATTEMPTS,
    ChangedBody,
    Changes,
    LearnedChanges,
    changed,
    further_changes,
    refusals_of,
)
from responses_gateway.bounded_body import read_at_most
from responses_gateway.wire.added_fields import ALWAYS_ADDED, AddedFields
from responses_gateway.wire.chat import first_failure
from responses_gateway.wire.errors import ApiError, forget_frames, read_error_chunk, server_error, status_in_place
from responses_gateway.wire.json_text import quoted
from responses_gateway.wire.sse import SSEDecoder, SSETooLong

_ERROR_BODY_LIMIT = 64 * 1024
_BROKE = "The connection to the backend broke in the middle of the answer."
_LARGE = 256 * 1024  # size in bytes above which a server may close the connection because of the body
Answer = aiohttp.ClientResponse | PushedAnswer  # the answer to a chat request, its body unread
SOON = 2.0  # seconds after the head of an error in which its body is expected: servers send both together
_CREATED = 201  # what some servers and proxies answer in the place of 200
Body = bytes | aiohttp.StreamReader | None  # of a request
# Seconds that an idle connection is kept, because vLLM closes its own after five, and a request that meets such an end is lost;
# only chat requests and, by aiohttp, those without side effects (GET) are repeated.
_KEEPALIVE = 4
_CHAT_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}
# How requests fail that no backend answers: a name that cannot even be looked up has a label that is empty or too long.
_UNANSWERED = (aiohttp.ClientError, ConnectionError, TimeoutError, UnicodeError)
_LINGER = 1.0  # seconds that a backend may take to end the body after its last event
# Why a backend did not answer. `dns`: its name has no address; `tls`: no secure connection; `connect`: it refused, or its
# network cannot be reached; `dropped`: it closed the connection.
Unanswered = Literal["dns", "tls", "connect", "connect_timeout", "dropped", "silent"]
# How a backend fails that has begun to answer: the connection broke, or nothing came for too long.
Failure = Literal["broke", "silent"]
_LONGEST_WAIT = 24 * 3600  # the longest `Retry-After` in seconds that is taken seriously: a day
# The id of a request at a backend is a UUID: some servers (llama-cpp-python) refuse requests with any other id.
_REQUEST_ID = "X-Request-Id"
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# What the keys of a provider have in them ("OpenAI" in base64, in the middle), and the domain of its servers.
_PROVIDERS = (("T3BlbkFJ", "openai.com"), ("sk-ant-", "anthropic.com"))
_OWN = re.compile(r"req_[0-9a-f]{32}")  # an id that the gateway gave itself: the backend gets the same digits


class Unreachable(ApiError):
    """The backend did not answer: no connection, or it was closed before the first byte, or nothing came in time.

    `body_may_be_why` tells that the body was large: servers close the connection when a body is too large, or take longer."""

    def __init__(self, reason: Unanswered, message: str, status: int = 502, *, body_may_be_why: bool = False) -> None:
        super().__init__(status, message, type="server_error", code="server_error")
        self.reason: Unanswered = reason
        self.body_may_be_why = body_may_be_why


class Backend:
    """The client of a chat server. Connection errors become `ApiError`s.

    A chat request is sent a second time, on a new connection, only if it went out on one that had served another request,
    and that was closed without a byte of an answer. aiohttp sends idempotent requests (GET, PUT, …)
    twice at most, and POST once."""

    refuses_in_streams = False  # with status 200, and an error as the first event

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None,
        connect_timeout: float,
        answer_timeout: float | None = None,
        forward_authorization: bool = True,
        forward_provider_keys: bool = False,
        on_repeat: Callable[[], None] = lambda: None,
        on_refused_field: Callable[[str, str, str], None] = lambda _model, _path, _instead: None,
    ) -> None:
        """Create it inside the running event loop. `url` ends in `/v1`; times are in seconds.

        `answer_timeout` limits the wait for the head of the answer to a chat request. Without `forward_authorization` the
        backend never gets a client's `Authorization`, and without `forward_provider_keys` none that is the key of a provider
        whose server this is not. `on_repeat` is called when a chat request is sent a second time, `on_refused_field` with each
        field that the server turns out to refuse for a model: its path, and the name or limit that is sent instead, if any."""
        self.url = URL(url)
        self._api_key = api_key
        self._answer_timeout = answer_timeout
        self._forward_authorization = forward_authorization
        # Whether requests have the `Authorization` of their client, so that the client is responsible for it.
        self.takes_client_key = api_key is None and forward_authorization
        signs = () if forward_provider_keys else _PROVIDERS
        self._signs_of_foreign_keys = tuple(sign for sign, domain in signs if not f".{self.url.host}".endswith(f".{domain}"))
        # Two connection pools: nothing but a chat request can read from a connection that has pushed a body.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout)
        self.chats = DirectSender(self.url / "chat" / "completions", _CHAT_HEADERS, timeout, answer_timeout, on_repeat)
        self._session = aiohttp.ClientSession(
            connector=self.chats.new_connector(_KEEPALIVE),
            timeout=timeout,
            auto_decompress=False,  # bodies are passed on as they came
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent",),
        )
        self._lingering: set[Answer] = set()  # abandoned answers whose end may still come
        self.closed = False  # so that every request fails
        self.learned = LearnedChanges()
        self._on_refused_field = on_refused_field

    @property
    def root(self) -> URL:
        """The URL of endpoints without a version in their path, such as vLLM's `/tokenize`."""
        return self.url.parent

    async def close(self) -> None:
        """Close all connections."""
        self.closed = True
        for answer in self._lingering:
            answer.close()
        await self.chats.close()
        await self._session.close()

    async def open_chat(
        self, body: bytes, headers: Mapping[str, str], model: str = "", added: AddedFields = ALWAYS_ADDED
    ) -> ChatStream:
        """Send a chat request and return the answer when its head is there. If the server refuses a field that the gateway has
        `added`, the request is repeated without it, or with its other name, and so are later ones for the same `model` (see
        `optional_fields.py`). Raises `Unreachable` (502, 504)."""
        changes = self.learned.get(model) if self.learned else None
        sent = changed(body, changes, added) if changes else ChangedBody(body, {})
        chat = await self._send_chat(sent, headers)
        if chat.status == 200 or chat.status not in refusals_of(added):
            return chat
        return await self._without_refused(chat, body, headers, model, added)

    async def open_completion(self, body: bytes, headers: Mapping[str, str]) -> ChatStream:
        """Send a request for a text completion, which is to be streamed, and return the answer when its head is there. Raises
        `Unreachable` (502, 504)."""
        sent = [*_CHAT_HEADERS.items(), *headers.items()]
        try:
            async with asyncio.timeout(self._answer_timeout):
                answer = await self.request("POST", "completions", body=body, headers=sent)
        except TimeoutError:
            raise self._silent(large=False) from None
        return ChatStream(answer, self._lingering, False, self.takes_client_key)

    async def _without_refused(
        self, chat: ChatStream, body: bytes, headers: Mapping[str, str], model: str, added: AddedFields
    ) -> ChatStream:
        """Repeat a refused request without the fields of our own that the refusal names. Return the last answer."""
        known = self.learned.get(model, {})
        changes = known
        refused = chat.status
        try:
            for _ in range(ATTEMPTS):
                following = further_changes(await chat.early_refusal(), body, changes, added)
                if following == changes:
                    break
                changes = following
                refused = chat.status
                chat.close()
                chat = await self._send_chat(changed(body, changes, added), headers)
                if chat.status not in refusals_of(added):
                    break
        except BaseException:
            chat.close()
            raise
        if chat.status == 200 and refused != 402:  # the fields were the reason, and stay one; what is paid for changes
            self.learned.note(model, changes)
            for path, instead in sorted(changes.items() - known.items()):
                self._on_refused_field(model, path, instead)
        return chat

    async def _send_chat(self, body: ChangedBody, headers: Mapping[str, str]) -> ChatStream:
        sent = dict(headers)
        self._add_own(sent)
        large = len(body.data) > _LARGE
        try:
            answer = await self.chats.post(body.data, sent)
        except NoHead:
            raise self._silent(large=large) from None
        except _UNANSWERED as error:
            raise _unreachable(error, large=large) from None
        chat = ChatStream(answer, self._lingering, large, self.takes_client_key)
        chat.left_out = body.left_out
        if chat.status == 200 and (self.refuses_in_streams or not chat.is_event_stream):
            await chat.look()
        return chat

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
        """Send any other request and return the answer, its body unread and not decompressed. `path` and `query` are
        percent-encoded already; `path` is relative to `url`, or to `below`. Raises `Unreachable` (502, 504)."""
        base = str(self.url if below is None else below).rstrip("/")
        url = URL(f"{base}/{path}?{query}" if query else f"{base}/{path}", encoded=True)
        sent = CIMultiDict(headers)
        sent.setdefault("Accept-Encoding", "identity")
        self._add_own(sent)
        large = isinstance(body, aiohttp.StreamReader) or (isinstance(body, bytes) and len(body) > _LARGE)
        try:
            return await self._session.request(method, url, data=body, headers=sent, allow_redirects=False)
        except _UNANSWERED as error:
            raise _unreachable(error, large=large) from None

    def _add_own(self, headers: MutableMapping[str, str]) -> None:
        """Put the id of a request and the backend's own key in the place of the client's. Raise `Unreachable` once closed."""
        if self.closed:
            raise Unreachable("connect", "The backend was removed from the gateway.")
        request_id = headers.get(_REQUEST_ID)
        headers[_REQUEST_ID] = str(uuid4()) if request_id is None else backend_request_id(request_id)
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        elif "Authorization" in headers and (not self._forward_authorization or self._is_foreign(headers["Authorization"])):
            del headers["Authorization"]  # all of them
        if "X-Api-Key" in headers and self._is_foreign(headers["X-Api-Key"]):
            del headers["X-Api-Key"]

    def _is_foreign(self, key: str) -> bool:
        """Tell whether this is the key of a provider whose server this backend is not."""
        return any(sign in key for sign in self._signs_of_foreign_keys)

    def _silent(self, *, large: bool) -> Unreachable:
        """Return the error for an answer whose head did not come in time; `large` tells about the request's body."""
        message = f"The backend sent nothing for {self._answer_timeout:g} seconds."
        return Unreachable("silent", message, 504, body_may_be_why=large)


def _unreachable(error: Exception, *, large: bool) -> Unreachable:
    """Return the message about a backend that did not answer; `large` tells about the request's body."""
    forget_frames(error)  # because aiohttp keeps errors of connecting in variables of such frames
    match error:
        case aiohttp.ConnectionTimeoutError():
            return Unreachable("connect_timeout", "The backend did not accept the connection in time.", 504)
        case aiohttp.ClientConnectorDNSError() | UnicodeError():
            return Unreachable("dns", "The backend's name cannot be resolved: is its URL right?")
        case aiohttp.ClientSSLError():
            return Unreachable("tls", f"No TLS connection to the backend: {_tls_problem(error)}")
        case aiohttp.ClientConnectorError():
            return Unreachable("connect", "The backend cannot be reached: is it running, and is its URL right?")
        case aiohttp.ClientResponseError():
            message = "The backend's answer cannot be read: is it HTTP, and compressed with nothing but gzip or deflate?"
        case _:
            message = f"The backend closed the connection without an answer ({type(error).__name__})."
    return Unreachable("dropped", message, body_may_be_why=large)


def _tls_problem(error: aiohttp.ClientSSLError) -> str:
    """Return what is wrong, in words that name no address."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return (getattr(error.certificate_error, "verify_message", "") or "its certificate is not valid") + "."
    return "does it speak HTTPS at this port?"


class ChatStream:
    """The answer to a chat request: its head is there, its body is not read yet."""

    def __init__(self, response: Answer, lingering: set[Answer], large: bool, has_client_key: bool) -> None:
        """Keep an answer that is left before its end in `lingering`. `large` tells about the request's body, which went with
        the key of the client, or else with the gateway's own, or none."""
        self.backend = ""  # the name of the backend that answers
        self.pod = ""  # the server behind a router that answers, if it says so
        self.has_client_key = has_client_key
        # Called once, when the answer is read or dropped, with its status, and the reason if the backend failed.
        self.on_end: Callable[[int, Failure | None], None] | None = None
        self.status = 200 if response.status == _CREATED else response.status
        self._response = response
        self._lingering = lingering
        self._large = large
        self._push = response if type(response) is PushedAnswer else None
        self._sink: Sink = _no_sink
        self._finished: asyncio.Future[None] | None = None
        self._paused = False
        self._resumed: asyncio.Event | None = None  # awaited while a body that is not pushed is paused
        self._left = False
        self._refusal: bytes | None = None  # the body of an error, once it was read
        self._refusal_is_late = False
        self._early: list[bytes] = []  # what came of the body before there was a sink for it
        self.left_out: Changes = {}  # of fields of our own that the request had, and that were not sent as they were

    @property
    def is_event_stream(self) -> bool:
        """Whether the body is server-sent events and not one JSON object."""
        return self._response.content_type == "text/event-stream"

    @property
    def retry_after(self) -> float | None:
        """The seconds of the backend's `Retry-After`, if it sent one."""
        return seconds_to_wait(self.header("retry-after"), time.time())

    def header(self, name: str) -> str:
        """Return the value of a header, whose name is given in lower case; empty if there is none."""
        if isinstance(self._response, PushedAnswer):
            return self._response.header(name)
        return self._response.headers.get(name, "")

    @property
    def _content(self) -> aiohttp.StreamReader:
        """The body, unless it is pushed."""
        assert isinstance(self._response, aiohttp.ClientResponse)
        return self._response.content

    async def look(self) -> None:
        """Wait a moment for what an answer begins with: an error becomes the refusal that it is, with its status."""
        came = asyncio.Event()

        def take(data: bytes) -> None:
            self._early.append(data)
            came.set()

        self._sink = take
        if self._push is not None:
            self._finished = self._push.attach(self._pass_on)
            self._finished.add_done_callback(lambda _: came.set())
        failure = None
        decoder = SSEDecoder()
        read = 0  # pieces
        decided = ended = False
        try:
            async with asyncio.timeout(SOON):
                while not (decided or ended):
                    if self._finished is None:
                        take(await self._content.readany())
                        ended = self._content.at_eof() or self._content.total_bytes > _ERROR_BODY_LIMIT
                    else:
                        await came.wait()
                        came.clear()
                        ended = self._finished.done()
                    new = self._early[read:]
                    read += len(new)
                    whole = [b"".join(self._early)] if ended else []
                    decided, failure = first_failure(decoder.feed(b"".join(new)) if self.is_event_stream else whole)
        except (TimeoutError, SSETooLong, aiohttp.ClientError, ConnectionError):
            pass  # whoever reads the answer is told
        except BaseException:
            self.close()
            raise
        if failure is not None:
            self.status = status_in_place(read_error_chunk(failure))
            self._refusal = quoted({"error": failure})

    def _pass_on(self, data: bytes) -> None:
        self._sink(data)

    def attach(self, sink: Sink) -> None:
        """Pass the body to `sink`, piece by piece: at once what is there already, the rest during `finish`."""
        self._sink = sink
        for piece in self._early:
            sink(piece)
        self._early.clear()
        if self._push is not None:
            self._finished = self._finished or self._push.attach(sink)
            if self._left and not self._finished.done():  # a terminal event was there already
                self._finished.set_result(None)
            if self._paused:  # the client was slow before the answer came
                self._push.pause()

    async def finish(self) -> None:
        """Wait for the end of the body after `attach`. Raises `ApiError` if it breaks off."""
        try:
            if self._finished is not None:
                await self._finished
                return
            content = self._content
            while not self._left and (data := await content.readany()):
                self._sink(data)
                if self._paused:
                    self._resumed = asyncio.Event()
                    await self._resumed.wait()
        except (aiohttp.ClientError, BodyInterrupted, ConnectionError, TimeoutError):
            self._end("broke")
            raise server_error(_BROKE) from None
        finally:
            self._push = None  # the connection may serve another request now: `pause` and `resume` must not affect it
            # The sink refers to this stream, and a failed future to the frames that waited for it: such cycles would keep them
            # all in memory.
            self._sink = _ignore_data  # which may come behind the end that the translation has seen
            self._finished = None
            self._end()  # does nothing if it broke

    async def read(self, limit: int = _ERROR_BODY_LIMIT) -> bytes:
        """Return the body, at most `limit` bytes of it. Raises `ApiError` if it breaks off."""
        try:
            return b"".join(self._early) + await read_at_most(self._content, limit)
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            raise server_error(_BROKE) from None

    async def read_refusal(self) -> bytes:
        """Return the body of an error, or nothing if it breaks off: the status says enough."""
        if self._refusal is None:
            try:
                self._refusal = await self.read()
            except ApiError:
                self._refusal = b""
        return self._refusal

    async def early_refusal(self) -> bytes:
        """Return the body of an error if it comes soon after its head, else nothing: a request is not asked again for a reason
        that may never come. `read_refusal` waits for the rest, which the limit of silence ends."""
        if self._refusal_is_late:
            return b""
        try:
            async with asyncio.timeout(SOON):
                return await self.read_refusal()
        except TimeoutError:
            self._refusal_is_late = True
            return b""

    def pause(self) -> None:
        """Stop reading: the backend is to be no faster than the client."""
        if self._push is not None:
            self._push.pause()
        self._paused = True

    def resume(self) -> None:
        """Continue to read."""
        if self._push is not None:
            self._push.resume()
        self._paused = False
        if self._resumed is not None:
            self._resumed.set()

    def leave(self) -> None:
        """Ignore the rest of the body. `finish` returns; the connection is kept if the body ends within a second."""
        if self._response.connection is None:
            return  # the body has ended
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
        """Close the connection unless the body was read to its end, so that the backend stops generating."""
        if not self._left and self._response.connection is not None:
            self._response.close()
        if self._finished is not None:
            self._finished.add_done_callback(_ignore_exception)
        self._end()

    def drop(self) -> None:
        """Close the connection of a backend that has been silent for too long; `finish` raises. That counts as a failure of the
        backend, unless the request was so large that it may be the reason."""
        self._response.close()
        if self._finished is not None:
            self._finished.add_done_callback(_ignore_exception)
        self._end(None if self._large else "silent")

    def _end(self, failure: Failure | None = None) -> None:
        on_end = self.on_end
        self.on_end = None
        if on_end is not None:
            on_end(self.status, failure)

    async def __aenter__(self) -> ChatStream:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()


def seconds_to_wait(value: str, now: float) -> float | None:
    """Parse a `Retry-After`, a number of seconds or a date; return None if it is invalid. `now` is a Unix time."""
    try:
        seconds = float(value) if value[:1].isdecimal() else parsedate_to_datetime(value).timestamp() - now
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if seconds <= _LONGEST_WAIT else None


def _ignore_exception(finished: asyncio.Future[None]) -> None:
    """Mark the exception as retrieved: nobody awaits `finish` if the client left before."""
    if not finished.cancelled():
        finished.exception()


def _no_sink(_data: bytes) -> None:
    raise RuntimeError("finish before attach")


def _ignore_data(_data: bytes) -> None:
    pass


@lru_cache(maxsize=1024)  # the backend gets it, and later the log
def backend_request_id(request_id: str) -> str:
    """Return the UUID for the id of a request: the id itself if it is one, otherwise one that is always the same for it."""
    if _OWN.fullmatch(request_id):
        digits = request_id.removeprefix("req_")
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return request_id if _UUID.fullmatch(request_id) else str(uuid5(NAMESPACE_URL, f"request:{request_id}"))
