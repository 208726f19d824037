"""Everything else under `/v1/` goes to the backend and back, byte for byte, streaming in both directions."""

from __future__ import annotations

import re
from urllib.parse import unquote

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from proxy.server.gateway import GATEWAY
from proxy.wire.errors import server_error

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
    return await _relay(request, request.rel_url.raw_path.removeprefix("/v1/"), None)


async def relay_unversioned(request: web.Request) -> web.StreamResponse:
    """A path that backends have beside `/v1/`."""
    return await _relay(request, request.rel_url.raw_path.removeprefix("/"), request.app[GATEWAY].backend.root)


async def _relay(request: web.Request, path: str, below: URL | None) -> web.StreamResponse:
    if any(segment in {".", ".."} for segment in re.split(r"[/\\]", unquote(path))):
        raise web.HTTPNotFound  # some servers would take it as a way out of /v1/
    backend = request.app[GATEWAY].backend
    headers = _passed_on(request)
    body = await _body(request, headers)
    query = request.rel_url.raw_query_string
    answer = await backend.request(request.method, path, below=below, query=query, body=body, headers=headers.items())
    async with answer:
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


def _passed_on(request: web.Request) -> CIMultiDict[str]:
    """The headers of the message, without those of the connection."""
    own = _OWN | {name.strip().lower() for name in request.headers.get("Connection", "").split(",")}
    headers = CIMultiDict((name, value) for name, value in request.headers.items() if name.lower() not in own)
    if not request.app[GATEWAY].settings.forward_authorization:
        headers.popall("Authorization", None)
    return headers


async def _body(request: web.Request, headers: CIMultiDict[str]) -> bytes | aiohttp.StreamReader | None:
    """The body: as a stream where its size is known, else read, and so measured, first."""
    if not request.can_read_body:
        return None
    size, limit = request.content_length, request.app[GATEWAY].settings.max_body_bytes
    if size is None or headers.popall("Content-Encoding", None) is not None:  # aiohttp has undone the encoding
        return await request.read()
    if size > limit:
        raise web.HTTPRequestEntityTooLarge(max_size=limit, actual_size=size)
    headers["Content-Length"] = str(size)
    return request.content
