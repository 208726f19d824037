"""Chat requests over aiohttp, with private parts of its client.

`DirectSender` writes a request as one prepared block of bytes, where `ClientSession` builds a request object, a timer, header
maps and a task that writes the body. `PushProtocol` reads event streams: it passes the body to a callback from within
`data_received`, where `StreamReader` costs a future, a task step and several coroutines per read. Connections, their pool, and
all other answers remain aiohttp's.

This is the only file of the client side that uses private parts of aiohttp: its minor version is pinned for that."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import SimpleNamespace

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.helpers import _EXC_SENTINEL
from yarl import URL

from responses_gateway.backend.transport.keepalive import open_socket
from responses_gateway.backend.transport.resolver import BackendResolver
from responses_gateway.wire.chat import first_failure
from responses_gateway.wire.sse import SSEDecoder

# Takes the bytes that one read brought.
Sink = Callable[[bytes], None]

_HEAD_LIMIT = 64 * 1024
_SIZE_LINE_LIMIT = 1024
_EARLY_LIMIT = 256 * 1024  # bytes of a body that are kept until there is a sink for them
_WRITE_SIZE = 256 * 1024  # bytes that are written at once
# Seconds that an idle connection is kept. A backend may close it in the same moment: `DirectSender` repeats a request once.
_KEEPALIVE = 15
# Bytes of a refusal that is looked at before it is relayed, and seconds until all of it is here.
_REFUSAL_LIMIT = 64 * 1024
_REFUSAL_TIME = 2.0
# Stands in for the writer of a request that has been written already.
_SENT_REQUEST = SimpleNamespace(output_size=0)


class NoHead(TimeoutError):
    """The head of an answer did not come in time."""


class DirectSender:
    """POSTs JSON bodies to one URL. Create it inside the running event loop."""

    def __init__(
        self,
        url: URL,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
        answer_timeout: float | None,
        on_repeat: Callable[[], None],
    ) -> None:
        """`headers` go with every request. `answer_timeout`: within so many seconds a connection has to be made, and then the
        head of an answer to come. `on_repeat` is called before a request is sent a second time."""
        self._loop = asyncio.get_running_loop()
        self._url = url
        self._timeout = timeout
        self._answer_timeout = answer_timeout
        self._on_repeat = on_repeat
        self.connector = self.new_connector(_KEEPALIVE)
        # For the second attempt: never a connection of the pool, which the backend may have closed with the first one.
        self._fresh_connector = self.new_connector(None)
        # Those that brought event streams, each with the loop's time since which it waits; the one used last is at the end. To
        # ask the connector for one, and to give it back, takes thirty calls.
        self._idle: deque[tuple[Connection, PushProtocol, float]] = deque()
        self._closing_old: asyncio.TimerHandle | None = None
        self._template = aiohttp.ClientRequest("POST", url, loop=self._loop)
        host = self._template.headers["Host"]
        self._head = f"POST {url.raw_path_qs} HTTP/1.1\r\nHost: {host}\r\n{_header_lines(headers)}".encode()

    @staticmethod
    def new_connector(keepalive: float | None) -> aiohttp.TCPConnector:
        """Return a connector that keeps idle connections for so many seconds, or not at all, and addresses for 30."""
        connector = aiohttp.TCPConnector(
            limit=0,
            ttl_dns_cache=30,
            keepalive_timeout=keepalive,
            force_close=keepalive is None,
            resolver=BackendResolver(),
            socket_factory=open_socket,
        )
        connector._factory = functools.partial(PushProtocol, loop=asyncio.get_running_loop())  # type: ignore[assignment]
        return connector

    async def post(self, body: bytes, headers: Mapping[str, str]) -> aiohttp.ClientResponse | PushedAnswer:
        """Send a body and return the answer, its body unread. Raises what `ClientSession.post` raises, `NoHead`, and ValueError
        for a malformed header."""
        fields = _header_lines(headers).encode("utf-8", "surrogateescape")
        head = b"%b%bContent-Length: %d\r\n\r\n" % (self._head, fields, len(body))
        connection, protocol = self._take_idle() or await self._connect()
        try:
            return await self._send(connection, protocol, head, body)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError):
            if not protocol.reused_without_answer:
                raise
        # Most likely the backend closed the idle connection before it saw the request.
        self._on_repeat()
        connection, protocol = await self._connect_to(self._fresh_connector)
        return await self._send(connection, protocol, head, body)

    async def close(self) -> None:
        """Close all connections."""
        if self._closing_old is not None:
            self._closing_old.cancel()
        while self._idle:
            self._idle.pop()[0].close()
        await self.connector.close()
        await self._fresh_connector.close()

    async def _send(
        self, connection: Connection, protocol: PushProtocol, head: bytes, body: bytes
    ) -> aiohttp.ClientResponse | PushedAnswer:
        timer = None
        try:
            if protocol.transport is None:
                raise aiohttp.ServerDisconnectedError
            is_pushed = protocol.expect_answer()
            writer = None
            if len(body) <= _WRITE_SIZE:
                protocol.transport.write(head + body)
            else:  # the rest beside the wait for the answer: a backend may refuse a body before it has all of it
                rest = memoryview(body)
                protocol.transport.writelines((head, rest[:_WRITE_SIZE]))
                writer = self._loop.create_task(_write(protocol, rest[_WRITE_SIZE:]))
            if self._answer_timeout is not None:  # `asyncio.timeout` takes three times as many calls
                timer = self._loop.call_later(self._answer_timeout, _give_up, is_pushed)
            if await is_pushed:
                return PushedAnswer(connection, protocol, writer, self._keep)
            return await self._other_answer(connection, writer)
        except BaseException:
            connection.close()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    async def _other_answer(self, connection: Connection, writer: asyncio.Task[None] | None) -> aiohttp.ClientResponse:
        """Have aiohttp read an answer."""
        response = aiohttp.ClientResponse(
            "POST",
            self._url,
            writer=writer,
            continue100=None,
            timer=None,  # type: ignore[arg-type]
            request_info=self._template.request_info,
            traces=[],
            loop=self._loop,
            session=None,  # type: ignore[arg-type]
            stream_writer=_SENT_REQUEST,  # type: ignore[arg-type]
        )
        try:
            async with asyncio.timeout(self._answer_timeout):
                return await response.start(connection)
        except TimeoutError:
            raise NoHead from None

    def _take_idle(self) -> tuple[Connection, PushProtocol] | None:
        while self._idle:
            connection, protocol, _ = self._idle.pop()
            if protocol.is_connected() and not protocol.should_close:
                return connection, protocol
            connection.close()  # by the backend, or it sent bytes after its last answer
        return None

    def _keep(self, connection: Connection, protocol: PushProtocol) -> None:
        """Keep a connection whose answer has ended for another request."""
        if protocol.should_close:
            connection.close()
            return
        now = self._loop.time()
        self._idle.append((connection, protocol, now))
        if self._closing_old is None:
            self._closing_old = self._loop.call_at(now + _KEEPALIVE, self._close_old)

    def _close_old(self) -> None:
        oldest = self._loop.time() - _KEEPALIVE
        while self._idle and self._idle[0][2] <= oldest:
            self._idle.popleft()[0].close()
        self._closing_old = self._loop.call_at(self._idle[0][2] + _KEEPALIVE, self._close_old) if self._idle else None

    async def _connect(self) -> tuple[Connection, PushProtocol]:
        while True:
            connection, protocol = await self._connect_to(self.connector)
            if not protocol.should_close:
                return connection, protocol
            connection.close()  # the backend sent bytes after its last answer: the next answer could begin with them

    async def _connect_to(self, connector: aiohttp.TCPConnector) -> tuple[Connection, PushProtocol]:
        try:
            async with asyncio.timeout(self._answer_timeout):
                connection = await connector.connect(self._template, [], self._timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(f"no connection to {self._url.host} in time") from error
        assert isinstance(connection.protocol, PushProtocol)
        return connection, connection.protocol


def _give_up(is_pushed: asyncio.Future[bool]) -> None:
    """Wait no longer for the head of an answer."""
    if not is_pushed.done():
        is_pushed.set_exception(NoHead())


async def _write(protocol: ResponseHandler, body: memoryview) -> None:
    """Write the rest of a body in pieces, so that other streams get their turn in between."""
    with suppress(ConnectionError):  # reading the answer reports it
        for begin in range(0, len(body), _WRITE_SIZE):
            await protocol._drain_helper()
            if protocol.transport is None:
                return
            protocol.transport.write(body[begin : begin + _WRITE_SIZE])


def _header_lines(headers: Mapping[str, str]) -> str:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    count = len(headers)
    if lines.count("\r") > count or lines.count("\n") > count or "\0" in lines:
        raise ValueError("a header contains a line break")
    return lines


async def whole_refusal(answer: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer, which can still be read, if all of it is here soon; else nothing. One that is compressed or
    long does not say why a request was refused."""
    content = answer.content
    if "Content-Encoding" in answer.headers or (answer.content_length or 0) > _REFUSAL_LIMIT:
        return b""
    with suppress(TimeoutError, aiohttp.ClientError, ConnectionError):
        async with asyncio.timeout(_REFUSAL_TIME):
            await content.wait_eof()
    is_whole = content.is_eof() and 0 < content.total_bytes <= _REFUSAL_LIMIT
    return b"".join(content._buffer) if is_whole else b""


async def begins_with_error(answer: aiohttp.ClientResponse) -> bool:
    """Tell whether an answer, which can still be read, is an event stream whose first event is an error, if that comes soon."""
    content = answer.content
    with suppress(TimeoutError, aiohttp.ClientError, ConnectionError):
        async with asyncio.timeout(_REFUSAL_TIME):
            if not content.total_bytes and not content.is_eof() and content.exception() is None:
                await content._wait("begins_with_error")
    return first_failure(SSEDecoder().feed(b"".join(content._buffer)))[1] is not None


class BodyInterrupted(ConnectionError):
    """The connection ended before the body did."""


class PushedAnswer:
    """An event stream with status 200, whose body is pushed to a sink."""

    __slots__ = ("_head", "_keep", "_protocol", "_writer", "connection")

    status = 200
    content_type = "text/event-stream"

    def __init__(
        self,
        connection: Connection,
        protocol: PushProtocol,
        writer: asyncio.Task[None] | None,
        keep: Callable[[Connection, PushProtocol], None],
    ) -> None:
        """`writer` writes the request, unless that is done; `keep` takes the connection for another request."""
        self.connection: Connection | None = connection  # until the body has ended
        self._head = protocol.head
        self._protocol = protocol
        self._writer = writer
        self._keep = keep
        protocol.on_body_end = self._release

    def header(self, name: str) -> str:
        """Return the value of a header, whose name is given in lower case; empty if there is none."""
        at = self._head.lower().find(f"\r\n{name}:".encode())
        return "" if at < 0 else self._head[at + len(name) + 3 :].partition(b"\r\n")[0].decode("latin-1").strip()

    def attach(self, sink: Sink) -> asyncio.Future[None]:
        """Push the body to `sink` from now on. The future ends with the body, or with `BodyInterrupted`."""
        return self._protocol.attach(sink)

    def pause(self) -> None:
        """Stop reading while the client is slower than the model."""
        if self.connection is not None:  # else another answer may use the protocol
            self._protocol.pause()

    def resume(self) -> None:
        """Continue to read."""
        if self.connection is not None:
            self._protocol.resume()

    def close(self) -> None:
        """Close the connection, unless the body has ended."""
        connection = self._detach()
        if connection is not None:
            connection.close()

    def _release(self) -> None:
        """Give the connection back: the body has ended."""
        unsent = self._writer is not None and not self._writer.done()
        connection = self._detach()
        if connection is None:
            return
        if unsent:  # what is left of the request would be read as the next one
            connection.close()
        else:
            self._keep(connection, self._protocol)

    def _detach(self) -> Connection | None:
        if self._writer is not None:
            self._writer.cancel()
        connection = self.connection
        self.connection = None
        return connection


class PushProtocol(ResponseHandler):
    """A client protocol that pushes the body of a chunked event stream to a sink.

    It reads the answers that are chunked event streams itself. All others are parsed by aiohttp."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._requests = 0
        self._is_pushed: asyncio.Future[bool] | None = None  # whether the answer is one to be pushed; until its head is there
        # Called when the body that is pushed has ended.
        self.on_body_end: Callable[[], None] | None = None
        self.head = b""  # of the answer that is pushed
        self.pushing = False  # the current response is an event stream whose body has to be taken with `attach`
        self._reset_body()

    def _reset_body(self) -> None:
        self._lost = False
        self._sink: Sink | None = None
        self._ready: Sink | None = None  # the sink, while the next byte is the first of a chunk
        self._finished: asyncio.Future[None] | None = None
        self._early = b""  # what came before there was a sink
        self._line = b""  # a size line, or trailers, cut by the end of a read
        self._left = 0  # bytes of the current chunk still to come, its line end included

    @property
    def reused_without_answer(self) -> bool:
        """Whether the connection had served a request before, and brought nothing at all for the last one."""
        return self._requests > 1 and self._is_pushed is not None

    def expect_answer(self) -> asyncio.Future[bool]:
        """Prepare for the answer to a request that is about to be sent. The future tells, once its head is there, whether it is
        a `PushedAnswer`; otherwise aiohttp has it, or the failure of the connection."""
        self._requests += 1
        self._is_pushed = self._loop.create_future()
        return self._is_pushed

    def attach(self, sink: Sink) -> asyncio.Future[None]:
        """Push the body to `sink` from now on. The future ends with the body, or with `BodyInterrupted`."""
        finished = self._loop.create_future()
        self._finished = finished
        self._sink = sink
        early = self._early
        self._early = b""
        if len(early) > _EARLY_LIMIT:
            self.resume()
        self._receive(early)
        if self._lost:
            self._finish()
        return finished

    def pause(self) -> None:
        """Stop reading while the client is slower than the model. Do nothing once the body is over: the connection is in the
        pool then, and a paused one would never deliver the next answer."""
        if self.pushing and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self) -> None:
        """Continue to read."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Handle the bytes of one read; called by the event loop."""
        sink = self._ready
        if sink is not None:
            end = data.find(b"\r\n", 0, 16)
            size = len(data) - end - 4
            if size > 0 and data[:end] == b"%x" % size:
                sink(data[end + 2 : -2])  # the usual case: one read is one chunk
            else:
                self._receive(data)
        elif self.pushing:
            if self._sink is not None:
                self._receive(data)
                return
            self._early += data
            if len(self._early) > _EARLY_LIMIT:
                self.pause()
        elif self._is_pushed is not None and data:
            is_pushed = self._is_pushed
            self._is_pushed = None
            self._begin(data, is_pushed)
        else:
            super().data_received(data)

    def _begin(self, data: bytes, is_pushed: asyncio.Future[bool]) -> None:
        """Handle the first bytes of an answer."""
        end = data.find(b"\r\n\r\n", 0, _HEAD_LIMIT) + 4
        head = data[:end].lower() if end >= 4 else b""
        pushing = _is_pushable(head)
        if pushing:
            self._reset_body()
            self.pushing = True
            self._early = data[end:]
            self.head = data[:end]
            if head.find(b"\r\nconnection:") >= 0 > head.find(b"\r\nconnection: keep-alive\r\n"):
                self.force_close()
        else:
            # Some servers compress whatever the request says, and the translation needs text.
            self.set_response_params(read_until_eof=True, auto_decompress=True)
            super().data_received(data)
        if not is_pushed.done():  # nobody waits any more
            is_pushed.set_result(pushing)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End the body as interrupted; called by the event loop."""
        self._lost = True
        self._finish()
        if self._is_pushed is not None and not self._is_pushed.done():
            self._is_pushed.set_result(False)
        # aiohttp's objects refer to each other, and to this one: what they hold stays until the garbage collector comes.
        self._sink = None
        self._ready = None
        self.on_body_end = None
        super().connection_lost(exc)

    def set_exception(self, exc: BaseException, exc_cause: BaseException = _EXC_SENTINEL) -> None:
        """Fail the body, too: of a malformed one aiohttp tells whoever waits for a head, and who reads the body waits on."""
        super().set_exception(exc, exc_cause)
        body = self._payload
        if body is not None and body.exception() is None and not body.is_eof():
            body.set_exception(aiohttp.ClientPayloadError(str(exc)))

    def _receive(self, data: bytes) -> None:
        sink = self._sink
        assert sink is not None
        body = self._remove_framing(data)
        self._ready = sink if self.pushing and not self._left and not self._line else None
        if body:
            sink(body)
        if not self.pushing:
            self._sink = None  # the connection may wait long for its next request
            self._finish()

    def _finish(self) -> None:
        if self._finished is None or self._finished.done():
            return
        if self._lost:
            self._finished.set_exception(BodyInterrupted())
        else:
            self._finished.set_result(None)

    def _remove_framing(self, data: bytes) -> bytes:
        """Return the payload in `data`, where chunks may be cut anywhere."""
        if self._line:
            data = self._line + data
            self._line = b""
        out: list[bytes] = []
        at = 0
        length = len(data)
        left = self._left
        while at < length:
            if left:  # the rest of a chunk, as much of it as is here
                end = at + left - 2
                out.append(data[at : max(at, end)])
                at = min(length, end + 2)
                left = max(0, end + 2 - length)
                continue
            end = data.find(b"\r\n", at, at + _SIZE_LINE_LIMIT)
            if end < 0 and length - at < _SIZE_LINE_LIMIT:
                self._line = data[at:]
                break
            size = _size(data[at:end]) if end >= 0 else -1
            if size < 0:
                self._break_off()
                break
            if size == 0:
                self._end_body(data[at:], end - at)
                break
            at = end + 2 + size
            if at + 2 <= length:
                out.append(data[end + 2 : at])  # a whole chunk
                at += 2
            else:
                at = end + 2
                left = size + 2
        self._left = left
        return b"".join(out)

    def _end_body(self, last: bytes, size_end: int) -> None:
        """Handle the last chunk, whose size line ends at `size_end`, and its trailers, which nobody reads."""
        end = last.find(b"\r\n\r\n", size_end) + 4
        if end < 4:
            self._line = last
            if len(last) > _HEAD_LIMIT:
                self._break_off()
            return
        self.pushing = False
        if len(last) > end:  # the next answer could not be distinguished from what came after this one
            self.force_close()
        on_body_end = self.on_body_end
        self.on_body_end = None
        if on_body_end is not None:
            on_body_end()

    def _break_off(self) -> None:
        """End a malformed body as interrupted."""
        self.pushing = False
        self._lost = True
        self.force_close()
        if self.transport is not None:
            self.transport.close()


def _is_pushable(head: bytes) -> bool:
    """Tell whether a response has status 200 and a chunked event stream in no other encoding. Its head is in lower case."""
    find = head.find  # `in` would make and catch an error each time
    return (
        head.startswith((b"http/1.1 200 ", b"http/1.1 200\r\n"))
        and find(b"\r\ncontent-type: text/event-stream") >= 0
        and find(b"\r\ntransfer-encoding: chunked\r\n") >= 0
        and find(b"\r\ncontent-encoding:") < 0
        and find(b"\r\ncontent-length:") < 0
    )


def _size(line: bytes) -> int:
    """Return the size in the first line of a chunk, which may have extensions; -1 if there is none."""
    try:
        return int(line if b";" not in line else line.partition(b";")[0], 16)
    except ValueError:
        return -1
