"""A request and its answer, as others need to know them than who reads and writes: its id, its body, its client.

The id is on the answer, which users quote, and in the log, where operators look for it. Bodies are unpacked, and counted
together, so that many large ones cannot take all memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from io import BytesIO
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from aiohttp import StreamReader, web

from responses_gateway.fair_queue import FairQueue
from responses_gateway.server.http.aiohttp_internals import arrived_body
from responses_gateway.telemetry.instruments import Gauge
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.json_text import quoted
from responses_gateway.wire.unpacking import DamagedBodyError, Unpacker, is_known

BODY_BYTES = Gauge("request_body_bytes", "Size of the bodies of all requests under way.")
# Bytes that are unpacked in the event loop; the rest of a larger body is unpacked in a thread.
_FIRST_STEP = 128 * 1024
_STEP = 1024 * 1024  # bytes that are unpacked in one step in a thread
# `Retry-After` in seconds where there is no room for a body.
_RETRY_AFTER = 1
_NO_ROOM = "The gateway is holding as many request bodies as it may. Please try again."
_R = TypeVar("_R")
_GIVEN = re.compile(r"[\x21-\x7e]{1,128}")
_ENCODING = "The request body has an unsupported encoding: send it uncompressed, or with gzip or deflate."
_NOT_JSON = "A browser has to send JSON with the header 'Content-Type: application/json'."
_UNREADABLE = (web.RequestPayloadError, UnicodeDecodeError, DamagedBodyError)


class NoRoomError(ApiError, TimeoutError):
    """503 for a body that was refused to make room for others. aiohttp takes it for a time-out, and closes the connection."""

    def __init__(self) -> None:
        super().__init__(503, _NO_ROOM, type="server_error", code="server_error", retry_after=_RETRY_AFTER)


@dataclass(eq=False)
class Bodies:
    """The bodies that one process holds."""

    largest: int  # the limit for one of them, in bytes
    _together: int  # the limit for all, in bytes
    _count_refusal: Callable[[], None]
    _show_size: Callable[[float], None]  # called by `report`
    _make_room: Callable[[], None]  # called when half of the room is taken

    def __post_init__(self) -> None:
        self.size = 0
        self._arriving: set[Body] = set()
        self._queue = FairQueue(1, 1)

    def open(self, content: StreamReader | None = None) -> Body:
        """Begin to count a body. `content` is the stream that it is read from, unless it has arrived already."""
        body = Body(self, content)
        if content is not None:
            self._arriving.add(body)
        return body

    def hold(self, data: bytes) -> Body:
        """Count a body that has arrived. Raise `ApiError` 413 and 503."""
        size = len(data)
        if size > self.largest:
            raise too_large(self.largest)
        body = Body(self, None)
        self.add(body, size)
        return body

    def add(self, body: Body, size: int) -> None:
        """Count more bytes of a body. When there is no room, the largest of those that still arrive is refused: otherwise a
        few clients that send large bodies slowly could shut out all others. Raise `ApiError` 503 if it is this one."""
        if body.refusal is not None:
            raise body.refusal.copy()
        body.size += size
        self.size += size
        if self.size > self._together // 2:
            self._make_room()
        while self.size > self._together:
            victim = max(self._arriving, key=attrgetter("size"), default=body)
            if victim.size <= body.size:
                victim = body
            self.remove(victim)
            self._count_refusal()
            victim.refuse(NoRoomError())
            if victim is body:
                raise NoRoomError

    def arrived(self, body: Body) -> None:
        """Note that a body is complete: it keeps its room until its request ends."""
        self._arriving.discard(body)

    def remove(self, body: Body) -> None:
        """Count a body no longer."""
        self.size -= body.size
        body.size = 0
        self._arriving.discard(body)

    def report(self) -> None:
        """Show the size of all bodies."""
        self._show_size(self.size)

    async def unpack(self, owner: str, body: Body, packed: bytes, encoding: str) -> bytes:
        """Return what a compressed body of `owner` contains. Raise `ApiError` 413 and 503, `DamagedBodyError`."""
        unpacker = Unpacker(packed, encoding)
        piece = unpacker.read(min(_FIRST_STEP, self.largest + 1))  # one byte more than allowed tells what is too large
        body.add(len(piece))
        if len(piece) > self.largest:
            raise too_large(self.largest)
        if unpacker.ended:
            return piece
        unpacked = BytesIO()
        unpacked.write(piece)
        while not unpacker.ended:
            room = self.largest - unpacked.tell() + 1
            piece = await self.in_thread(owner, unpacker.read, min(_STEP, room))
            body.add(len(piece))
            unpacked.write(piece)
            if unpacked.tell() > self.largest:
                raise too_large(self.largest)
        return unpacked.getvalue()

    async def in_thread(self, owner: str, work: Callable[..., _R], *arguments: object) -> _R:
        """Do work on a large body in a thread. One at a time, since several would keep the event loop from the interpreter's
        lock, one after the other. The owners of bodies are served in turn, however many one of them sends."""
        return await self._queue.in_thread(owner, work, *arguments)


class Body:
    """One body that is counted."""

    __slots__ = ("_bodies", "_content", "refusal", "size")

    def __init__(self, bodies: Bodies, content: StreamReader | None) -> None:
        self._bodies = bodies
        self._content = content
        self.size = 0
        self.refusal: ApiError | None = None  # to make room for others

    def add(self, size: int) -> None:
        """Count more bytes. Raise `ApiError` 503 if there is no room."""
        self._bodies.add(self, size)

    def refuse(self, error: ApiError) -> None:
        """End the reading of this body."""
        self.refusal = error
        if self._content is not None and not self._content.is_eof():
            self._content.set_exception(error)

    def close(self) -> None:
        """Count it no longer: its request has ended."""
        self._bodies.remove(self)
        self._content = None


def too_large(limit: int) -> ApiError:
    """Return the error for a body that is larger than the limit, in bytes."""
    message = f"The request body is larger than this gateway accepts: at most {limit} bytes."
    return ApiError(413, message, code="request_too_large")


class Exchange(msgspec.Struct, eq=False):
    """What is known of an HTTP request besides its answer: one value, because each key of aiohttp's request costs calls.

    `request_id` is the client's, or new; backends get a UUID that follows from it. `body` is that of the request, if it was
    read. `client` is the name of its key, None where the settings have none; `team` that of somebody who came without a key of
    the settings. `allows` tells the models that the client may use; None if it may use all. `has_log` and `report`: see
    `telemetry.logs.LoggedExchange`. `bytes_out`: of the events that were sent. `answered`: an answer has begun.
    `upgraded`: to a WebSocket. `address` is that of the client as a trusted proxy names it; None if none does. `rollout`: the
    one that the client's key or the path names (`request/rollout_names.py`). `origin`: who asks, where a request is relayed."""

    bodies: Bodies
    request_id: str
    body: Body | None = None
    client: str | None = None
    team: str | None = None
    allows: Callable[[str], bool] | None = None
    has_log: bool = False
    answered: bool = False
    upgraded: bool = False
    report: Callable[[Mapping[str, Any]], None] | None = None
    bytes_out: int | None = None
    address: str | None = None
    rollout: str | None = None
    origin: Mapping[str, str | None] = {}


EXCHANGE: web.RequestKey[Exchange] = web.RequestKey("exchange", Exchange)


def request_id_of(request: web.Request) -> str:
    """Return the id that the client gave to a request, or a new one."""
    header = request.headers.get("X-Request-Id")
    return header if header is not None and _GIVEN.fullmatch(header) else new_request_id()


def new_request_id() -> str:
    """Return an id for a request whose client gave none."""
    return f"req_{os.urandom(16).hex()}"


def name_answer(headers: MutableMapping[str, str], request_id: str) -> None:
    """Put the request id on an answer, and the name of this server."""
    headers["X-Request-Id"] = request_id
    headers["Server"] = "responses-gateway"


async def in_thread(request: web.Request, work: Callable[..., _R], *arguments: object) -> _R:
    """Do work on a large body in a thread, when it is its client's turn."""
    exchange = request[EXCHANGE]
    return await exchange.bodies.in_thread(exchange.client or "", work, *arguments)


async def read_body(request: web.Request) -> bytes:
    """Return the whole body, unpacked; it is counted until the request ends. Raise `ApiError` 400, 413, 415 and 503."""
    exchange = request[EXCHANGE]
    bodies = exchange.bodies
    content = request.content
    encoding = request.headers.get("Content-Encoding")
    if encoding is None:
        data = arrived_body(content)
        if data is not None:  # most often: else, and where it is compressed, it is read as it comes
            exchange.body = bodies.hold(data)
            return data
    if (request.content_length or 0) > bodies.largest:
        raise too_large(bodies.largest)
    body = bodies.open(content)
    exchange.body = body
    if encoding is not None and encoding.lower() == "identity":
        encoding = None
    if encoding is not None and not is_known(encoding):
        raise ApiError(415, _ENCODING, code="unsupported_content_encoding")
    try:
        data = await _read(content, body, bodies.largest)
        if encoding is not None:
            packed = len(data)
            data = await bodies.unpack(exchange.client or "", body, data, encoding)
            body.add(-packed)
    except ApiError as error:
        error.__traceback__ = None  # the reader keeps the error, whose frames would keep the body
        raise error.copy() from None
    except _UNREADABLE:
        raise unreadable() from None
    bodies.arrived(body)
    return data


def read_limit(request: web.Request, default: int, most: int) -> int:
    """Return `limit` of the query. Raise `ApiError` 400."""
    limit = request.query.get("limit", str(default))
    if not limit.isascii() or not limit.isdigit() or len(limit) > 9 or not 1 <= int(limit) <= most:
        raise invalid_request(f"Invalid value for 'limit': a number from 1 to {most} is expected.", "limit", "invalid_value")
    return int(limit)


def abort(request: web.Request) -> None:
    """Close the connection of a client, without an end of its answer."""
    if request.transport is not None:
        request.transport.abort()


def json_answer(value: Any, status: int = 200) -> web.Response:
    """Return plain data, or what `msgspec` can write, as an answer."""
    return web.Response(body=quoted(value), status=status, content_type="application/json")


async def read_json_body(request: web.Request) -> bytes:
    """Do as `read_body`. A browser has to say that the body is JSON: what a page may send without asking says something else.
    Raise `ApiError` 415, too."""
    says_browser = "Origin" in request.headers or "Sec-Fetch-Site" in request.headers
    if says_browser and request.content_type != "application/json" and request.can_read_body:
        raise ApiError(415, _NOT_JSON, code="unsupported_media_type")
    return await read_body(request)


async def _read(content: StreamReader, body: Body, largest: int) -> bytes:
    first = await content.readany()
    body.add(len(first))
    if content.at_eof():  # nearly always
        whole = first
    else:
        pieces = BytesIO()  # returns what was written without a copy
        pieces.write(first)
        del first
        while piece := await content.readany():
            body.add(len(piece))
            if body.size > largest:
                break
            pieces.write(piece)
        whole = pieces.getvalue()
    if body.size > largest:
        raise too_large(largest)
    return whole


def unreadable() -> ApiError:
    """Return the error for a body that ends early, or does not have the encoding that it names."""
    return invalid_request("The request body could not be read: it is truncated or wrongly encoded.")
