"""Everything else under `/v1/` goes to the backend and back, byte for byte, streaming in both directions.

Which of several backends: one that serves the `model` of a JSON body, which is read first then; else any.
"""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from urllib.parse import unquote

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict

from proxy.backend.pool import ANY
from proxy.backend.served_models import Route
from proxy.server.access.api_keys import KEY_HEADERS, forwards_authorization
from proxy.server.generation.gateway import GATEWAY
from proxy.wire.errors import ApiError, server_error


class _Named(msgspec.Struct):
    """What is of interest in a body: the rest is skipped."""

    model: str = ""


#: Headers of one connection, not of the message (RFC 9110, 7.6.1), and those that each side sets for itself.
_OWN = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "host",
        "content-length",
        "expect",
    }
)
#: A backend's headers that say something about the body; no other one leaves (codex acts on some, others tell secrets).
_PASSED_BACK = frozenset({"content-type", "content-encoding", "content-length", "content-disposition", "retry-after"})


async def relay(request: web.Request) -> web.StreamResponse:
    """Any method on any path below `/v1/` that is not ours. Raises `HTTPNotFound` for a path that would lead out of it."""
    return await _relay(request, request.rel_url.raw_path.removeprefix("/v1/"), below_root=False)


async def relay_unversioned(request: web.Request) -> web.StreamResponse:
    """A path that backends have beside `/v1/`."""
    return await _relay(request, request.rel_url.raw_path.removeprefix("/"), below_root=True)


async def _relay(request: web.Request, path: str, *, below_root: bool) -> web.StreamResponse:
    segments = re.split(r"[/\\]", unquote(path))
    if any(segment in {".", ".."} for segment in segments):
        raise web.HTTPNotFound  # some servers would take it as a way out of /v1/
    if "" in segments and next(filter(None, segments), "") == "responses":
        raise web.HTTPNotFound  # a slash too many must not lead past the gateway, to a backend's own Responses API
    pool = request.app[GATEWAY].pool
    headers = _passed_on(request)
    body, route = await _body(request, headers), ANY
    if isinstance(body, bytes) and pool.reads_models:
        route = _route_of(body)
    query = request.rel_url.raw_query_string
    sending = pool.request(request.method, path, route, below_root=below_root, query=query, body=body, headers=headers.items())
    async with AsyncExitStack() as stack:
        try:
            answer = await stack.enter_async_context(sending)
        except ApiError as error:
            raise _whose_fault(request, error) from None
        response = web.StreamResponse(status=answer.status)
        for name, value in answer.headers.items():
            if name.lower() in _PASSED_BACK:
                response.headers[name] = value
        await response.prepare(request)
        try:
            async for data in answer.content.iter_any():
                await response.write(data)
        except aiohttp.ClientError:
            # The head is out: all that is left to say the body is broken is to break it.
            if request.transport is not None:
                request.transport.abort()
            raise server_error("The backend's answer broke off.") from None
        await response.write_eof()
    return response


def _whose_fault(request: web.Request, error: ApiError) -> ApiError:
    """A body that did not come to its end looks like a backend that closed the connection."""
    found = request.content.exception()
    return found if isinstance(found, ApiError) else error


def _passed_on(request: web.Request) -> CIMultiDict[str]:
    """The headers of the message, without those of the connection."""
    own = _OWN | {name.strip().lower() for name in request.headers.get("Connection", "").split(",")}
    headers = CIMultiDict((name, value) for name, value in request.headers.items() if name.lower() not in own)
    settings = request.app[GATEWAY].settings
    if not forwards_authorization(settings):
        headers.popall("Authorization", None)
    if settings.api_keys:
        for name in KEY_HEADERS:
            headers.popall(name, None)
    return headers


async def _body(request: web.Request, headers: CIMultiDict[str]) -> bytes | aiohttp.StreamReader | None:
    """The body: as a stream where its size is known and its model of no interest, else read, and so measured, first."""
    if not request.can_read_body:
        return None
    size, limit = request.content_length, request.app[GATEWAY].settings.max_body_bytes
    if size is None or headers.popall("Content-Encoding", None) is not None:  # aiohttp has undone the encoding
        return await request.read()
    if size > limit:
        raise web.HTTPRequestEntityTooLarge(max_size=limit, actual_size=size)
    if request.content_type == "application/json" and request.app[GATEWAY].pool.reads_models:
        return await request.read()
    headers["Content-Length"] = str(size)
    return request.content


def _route_of(body: bytes) -> Route:
    """To whoever serves the model; a body that names none may go anywhere."""
    try:
        return Route(msgspec.json.decode(body, type=_Named).model)
    except msgspec.DecodeError:
        return ANY
