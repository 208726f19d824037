"""A request and its answer, as others need to know them than who reads and writes: its id, its body, its client.

The id is on the answer, which users quote, and in the log, where operators look for it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, MutableMapping
from io import BytesIO
from typing import Any, TypeVar

import msgspec
from aiohttp import StreamReader, web

from responses_gateway.server.http.aiohttp_internals import arrived_body
from responses_gateway.server.http.bodies import Bodies, Body, too_large
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.unpacking import DamagedBodyError, is_known

_GIVEN = re.compile(r"[\x21-\x7e]{1,128}")
_ENCODING = "The request body has an unsupported encoding: send it uncompressed, or with gzip or deflate."
_NOT_JSON = "A browser has to send JSON with the header 'Content-Type: application/json'."
_UNREADABLE = (web.RequestPayloadError, UnicodeDecodeError, DamagedBodyError)
_R = TypeVar("_R")


class Exchange(msgspec.Struct, eq=False):
    """What is known of an HTTP request besides its answer: one value, because each key of aiohttp's request costs calls.

    `request_id` is the client's, or new; backends get a UUID that follows from it. `body` is that of the request, if it was
    read. `client` is the name of its key, None where the settings have none; `team` that of somebody who came without a key of
    the settings. `allows` tells the models that the client may use; None if it may use all. `has_log` and `report`: see
    `telemetry.logs.LoggedExchange`. `bytes_out`: of the events that were sent.
    `address` is that of the client as a trusted proxy names it; None if none does. `rollout`: the one that the client's key or
    the path names (`request/rollouts/names.py`)."""

    bodies: Bodies
    request_id: str
    body: Body | None = None
    client: str | None = None
    team: str | None = None
    allows: Callable[[str], bool] | None = None
    has_log: bool = False
    report: Callable[[Mapping[str, Any]], None] | None = None
    bytes_out: int | None = None
    address: str | None = None
    rollout: str | None = None


EXCHANGE: web.RequestKey[Exchange] = web.RequestKey("exchange", Exchange)


def request_id_of(request: web.Request) -> str:
    """Return the id that the client gave to a request, or a new one."""
    given = request.headers.get("X-Request-Id")
    return given if given is not None and _GIVEN.fullmatch(given) else new_request_id()


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
    if (request.content_length or 0) > bodies.largest:
        raise too_large(bodies.largest)
    encoding = request.headers.get("Content-Encoding")
    if encoding is None:
        data = arrived_body(content)
        if data is not None:  # most often: else, and where it is compressed, it is read as it comes
            exchange.body = bodies.hold(data)
            return data
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
