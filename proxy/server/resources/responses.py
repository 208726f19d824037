"""`/v1/responses`."""

from __future__ import annotations

from aiohttp import web

from proxy.server.generation.gateway import GATEWAY
from proxy.server.resources import websocket
from proxy.server.resources.exchange import Exchange
from proxy.wire.errors import ApiError


async def create(request: web.Request) -> web.StreamResponse:
    """`POST /v1/responses`: a response, streamed or whole."""
    gateway = request.app[GATEWAY]
    if gateway.draining:
        raise ApiError(
            503,
            "The gateway is shutting down. Please try again.",
            type="server_error",
            code="server_error",
            retry_after=1,
        )
    return await Exchange(gateway, request).run()


async def upgrade(request: web.Request) -> web.StreamResponse:
    """`GET /v1/responses`: a WebSocket. Where there is none, 426 makes Codex go on over HTTP without a word."""
    wanted = request.headers.get("Upgrade", "").lower() == "websocket"
    if wanted and request.app[GATEWAY].settings.websocket:
        return await websocket.serve(request.app[GATEWAY], request)
    raise ApiError(426, "This gateway speaks HTTP only: POST to /v1/responses.", code="websocket_not_supported")


async def refuse_method(request: web.Request) -> web.StreamResponse:
    """Any other method."""
    raise web.HTTPMethodNotAllowed(request.method, ["GET", "POST"])
