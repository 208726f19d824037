"""Everything else under `/v1/` goes to the backend and back, byte for byte, streaming in both directions."""

from __future__ import annotations

import aiohttp
from aiohttp import web

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
    """Any method on any path below `/v1/` that is not ours."""
    gateway = request.app[GATEWAY]
    headers = {name: value for name, value in request.headers.items() if name.lower() not in _OWN}
    if not gateway.settings.forward_authorization:
        headers.pop("Authorization", None)
    body = await request.read() if request.can_read_body else None
    path = request.rel_url.raw_path.removeprefix("/v1/")
    answer = await gateway.backend.request(
        request.method, path, query=request.rel_url.raw_query_string, body=body, headers=headers
    )
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
