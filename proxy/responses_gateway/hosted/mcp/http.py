"""The HTTP client for MCP servers, which are not trusted: only checked addresses, bounded answers, nothing unpacked."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import cache, partial
from typing import NamedTuple

import httpx2
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter

from responses_gateway.bounded_memory import BoundedDict
from responses_gateway.hosted.mcp.bodies import EVENT_STREAM, read_body
from responses_gateway.hosted.mcp.messages import MessageReader
from responses_gateway.hosted.mcp.servers import HttpEndpoint
from responses_gateway.wire.hosts.addresses import is_public

Resolve = Callable[[str, int], Awaitable[list[str]]]  # the addresses of a host; raises `OSError`

_TIMEOUT = 30.0  # for writing, and for getting one of the connections
# For reading: a server may hold a stream open. Calls have limits of their own.
_READ_TIMEOUT = 600.0
# For ending a session, which the server may have forgotten.
_CLOSE_TIMEOUTS = {"connect": 2.0, "read": 2.0, "write": 2.0, "pool": 2.0}
# How often a server may end the stream that stays open, between two requests. Some do so on purpose, every second or so.
_MOST_STREAMS = 1000
_MOST_ERRORS = 100  # answers with the status of an error that are remembered until their requests end
# Headers that are not true of a body that was read.
_OF_THE_BODY = frozenset({b"content-encoding", b"content-length", b"content-type"})
_LIMITS = httpx2.Limits(max_connections=20, max_keepalive_connections=4, keepalive_expiry=30)


@cache
def tls_context() -> ssl.SSLContext:
    """Return the context of all connections; the first time in a thread, because reading the certificates takes long."""
    return httpx2.create_ssl_context()


class PrivateAddress(httpx2.ConnectError):
    """A host that a request names has an address that is not public."""


class HttpErrorAnswer(NamedTuple):
    """An HTTP answer with the status of an error. `explained`: its body is an error of the protocol; otherwise the library
    makes one of the status."""

    status: int
    explained: bool


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends the requests of one connection.

    With `public_only` the host is resolved once, every address has to be public, and only these are connected to: later answers
    of the DNS change nothing. An answer has at most as many bytes as a message may have; a stream that stays open has so much
    after each request. Compressed bodies are refused, since their size is not known. Each message is read by `reader`, and the
    library gets what that makes of it.

    Redirects to other servers are refused.

    `status`: the last status that was an error; `problem`: what was last refused of an answer; None if there was none yet.
    `errors`: the answers with such a status, by the id of the request. `pending`: messages of ours that were not answered yet.
    `lost`: the ids of requests whose connection was lost. The library gets an error for each, whose data tells whether it may
    have been sent: an exception would end all other requests, too. `session_id`: the server's id for the session."""

    def __init__(self, endpoint: HttpEndpoint, reader: MessageReader, find: Resolve) -> None:
        self.status: int | None = None
        self.problem: str | None = None
        self.errors: BoundedDict[str | int, HttpErrorAnswer] = BoundedDict(_MOST_ERRORS)
        self.pending: set[httpx2.Request] = set()
        self.lost: set[str | int] = set()
        self.session_id: str | None = None
        self._public_only = endpoint.public_only
        self._reader = reader
        self._most_bytes = reader.limits.message_bytes
        self._find = find
        self._inner = httpx2.AsyncHTTPTransport(verify=tls_context(), limits=_LIMITS)
        self._addresses: dict[tuple[str, int], list[str]] = {}
        self._requests = 0
        self._streams = 0
        self._timeout = httpx2.Timeout(_TIMEOUT, connect=reader.limits.connect_timeout, read=_READ_TIMEOUT)

    def client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,  # noqa: ARG002  (the library names it)
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        """Return a client that uses this transport and no proxy."""
        plain = {**(headers or {}), "accept-encoding": "identity"}
        return httpx2.AsyncClient(transport=self, headers=plain, timeout=self._timeout, auth=auth, trust_env=False)

    def begin(self) -> None:
        """Begin a request of ours, which renews the bounds of the open stream. Requests of the server do not renew them."""
        self._requests += 1
        self._streams = 0
        self.status = None
        self.problem = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return the answer with its bounds."""
        if request.method == "GET":
            self._streams += 1
            if self._streams > _MOST_STREAMS:  # it ends each one at once, and has it opened again
                return httpx2.Response(httpx2.codes.METHOD_NOT_ALLOWED)
        if request.method == "DELETE":
            request.extensions["timeout"] = _CLOSE_TIMEOUTS
        if request.method != "POST":
            return await self._sent(request, None)
        self.session_id = request.headers.get("mcp-session-id")
        message = jsonrpc_message_adapter.validate_json(await request.aread(), by_name=False)
        request_id = message.id if isinstance(message, JSONRPCRequest) else None
        self.pending.add(request)
        try:
            answer = await self._sent(request, request_id)
        except BaseException as error:
            self.pending.discard(request)
            if not self._requests or not isinstance(error, httpx2.TransportError):
                raise
            content = b"" if request_id is None else self._loss(request_id, error)
            return httpx2.Response(httpx2.codes.OK, headers={"content-type": "application/json"}, content=content)
        if answer.status_code >= httpx2.codes.BAD_REQUEST and request_id is not None:
            try:
                await self._note_error(request_id, answer)
            except BaseException:
                await answer.aclose()
                raise
        return answer

    def _loss(self, request_id: str | int, error: httpx2.TransportError) -> bytes:
        """Return what stands for the answer to a request whose connection was lost."""
        self.lost.add(request_id)
        failure = ErrorData(code=CONNECTION_CLOSED, message="", data=not isinstance(error, httpx2.ConnectError))
        return JSONRPCError(jsonrpc="2.0", id=request_id, error=failure).model_dump_json().encode()

    async def _unless_lost(self, parts: AsyncIterator[bytes], request_id: str | int) -> AsyncIterator[bytes]:
        """Yield a body that is whole, or the error of a request whose connection was lost."""
        try:
            async for part in parts:
                yield part
        except httpx2.TransportError as error:
            yield self._loss(request_id, error)

    async def _note_error(self, request_id: str | int, answer: httpx2.Response) -> None:
        """Note that a request was answered with the status of an error."""
        explained = False
        if answer.headers.get("content-type", "").lower().startswith("application/json"):
            with suppress(httpx2.StreamError, ValueError):
                body = jsonrpc_message_adapter.validate_json(await answer.aread(), by_name=False)
                explained = isinstance(body, JSONRPCError)
        self.errors[request_id] = HttpErrorAnswer(answer.status_code, explained)

    async def _sent(self, request: httpx2.Request, request_id: str | int | None) -> httpx2.Response:
        """Send a request, until whose answer is closed it is pending. `request_id` is the id of what is asked with it."""
        response = await (self._to_public(request) if self._public_only else self._inner.handle_async_request(request))
        if _leads_elsewhere(request, response):
            await response.aclose()
            self.problem = "a redirect to another server"
            response = httpx2.Response(httpx2.codes.BAD_GATEWAY, stream=httpx2.ByteStream(b""))
        if response.status_code >= httpx2.codes.BAD_REQUEST:
            self.status = response.status_code
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        content_type = response.headers.get("content-type", "").lower()
        parts = read_body(self._bounded(request, response), content_type, self._reader, request_id)
        if request_id is not None and self._requests and not content_type.startswith(EVENT_STREAM):
            parts = self._unless_lost(parts, request_id)
        stream = _Body(parts, response.stream, partial(self.pending.discard, request))
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _OF_THE_BODY]
        # Without the server's charset: there are decoders that may take for ever, and messages are UTF-8.
        headers.append(
            (b"content-type", EVENT_STREAM.encode() if content_type.startswith(EVENT_STREAM) else content_type.encode())
        )
        return httpx2.Response(response.status_code, headers=headers, stream=stream, extensions=response.extensions)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _bounded(self, request: httpx2.Request, response: httpx2.Response) -> AsyncIterator[bytes]:
        """Yield the parts of a body. Raise `StreamError` for too many bytes; a stream that stays open may have so many for each
        of our requests."""
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        compressed = response.headers.get("content-encoding", "identity").strip().lower() != "identity"
        received = 0
        requests = self._requests
        async for part in response.stream:
            if request.method == "GET" and self._requests != requests:
                requests = self._requests
                received = 0
            received += len(part)
            if compressed or received > self._most_bytes:
                self.problem = "compressed, which it must not be" if compressed else f"longer than {self._most_bytes} bytes"
                raise httpx2.StreamError(f"the answer is {self.problem}")
            yield part

    async def _to_public(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to an address that was checked. The name stays in its `Host` and in the check of the certificate."""
        host = request.url.host
        failure: httpx2.ConnectError | None = None
        for address in await self._checked(request, host):
            pinned = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await self._inner.handle_async_request(pinned)
            except httpx2.ConnectError as error:  # nothing was sent yet
                failure = error
        raise failure or httpx2.ConnectError("the host has no address", request=request)

    async def _checked(self, request: httpx2.Request, host: str) -> list[str]:
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        if (host, port) not in self._addresses:
            try:
                addresses = await self._find(host, port)
            except (OSError, UnicodeError):
                raise httpx2.ConnectError("the host is not known", request=request) from None
            if not all(map(is_public, addresses)):
                raise PrivateAddress("the host has a private or special address", request=request)
            self._addresses[host, port] = addresses
        return self._addresses[host, port]


def _leads_elsewhere(request: httpx2.Request, response: httpx2.Response) -> bool:
    """Tell whether an answer redirects to another origin, or to none."""
    if not httpx2.codes.is_redirect(response.status_code) or "location" not in response.headers:
        return False
    try:
        target = request.url.join(response.headers["location"])
    except httpx2.InvalidURL:
        return True
    return (target.scheme, target.host, target.port) != (request.url.scheme, request.url.host, request.url.port)


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, which is made of a stream. `closed` is called at its end."""

    def __init__(self, parts: AsyncIterator[bytes], stream: httpx2.AsyncByteStream, closed: Callable[[], None]) -> None:
        self._parts = parts
        self._stream = stream
        self._closed = closed

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._parts

    async def aclose(self) -> None:
        self._closed()
        await self._stream.aclose()
