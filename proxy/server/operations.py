"""What operators and their machines ask: `/health`, `/ready`, `/metrics`."""

from __future__ import annotations

import asyncio

from aiohttp import web

from proxy.server.gateway import GATEWAY
from proxy.telemetry.metrics import CONTENT_TYPE
from proxy.wire.errors import ApiError


async def health(request: web.Request) -> web.Response:
    """The process lives."""
    return web.json_response({"status": "ok"})


async def ready(request: web.Request) -> web.Response:
    """The gateway takes requests, and its backend answers (any answer below 500 will do)."""
    gateway = request.app[GATEWAY]
    if gateway.draining:
        return web.json_response({"status": "draining"}, status=503)
    try:
        async with asyncio.timeout(gateway.settings.connect_timeout), await gateway.backend.request("GET", "models") as answer:
            reachable = answer.status < 500
    except TimeoutError:
        return web.json_response({"status": "backend silent"}, status=503)
    except ApiError as error:
        return web.json_response({"status": "backend unreachable", "message": error.message}, status=503)
    if not reachable:
        return web.json_response({"status": "backend unhealthy"}, status=503)
    return web.json_response({"status": "ok"})


async def metrics(request: web.Request) -> web.Response:
    """The Prometheus text format."""
    gateway = request.app[GATEWAY]
    if not gateway.settings.metrics:
        raise web.HTTPNotFound
    return web.Response(body=gateway.metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})
