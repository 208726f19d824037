"""What operators and their machines ask: `/health`, `/ready`, `/metrics`."""

from __future__ import annotations

import asyncio

from aiohttp import web

from proxy.server.generation.gateway import GATEWAY
from proxy.telemetry.metrics import CONTENT_TYPE
from proxy.wire.errors import ApiError


def add_probes(router: web.UrlDispatcher) -> None:
    """What machines ask that send us requests: on every port."""
    router.add_get("/health", health)
    router.add_get("/ready", ready)


def add_operations(router: web.UrlDispatcher) -> None:
    """What operators alone need to see: on their port, if they have one."""
    router.add_get("/metrics", metrics)


async def health(request: web.Request) -> web.Response:
    """The process lives. `examining`: it is about to find out what its backend wants; an answer now may not be the best."""
    gateway = request.app[GATEWAY]
    examining = gateway.examination is not None and not gateway.examination.looked.is_set()
    return web.json_response({"status": "ok", "examining": True} if examining else {"status": "ok"})


async def ready(request: web.Request) -> web.Response:
    """The gateway takes requests, and one of its backends is well. A single one is asked now (any answer below 500 will do)."""
    gateway = request.app[GATEWAY]
    if gateway.leaving or gateway.draining:
        return web.json_response({"status": "draining"}, status=503)
    only = gateway.pool.members.only
    if only is None:
        well = gateway.pool.any_well
        return web.json_response({"status": "ok" if well else "no healthy backend"}, status=200 if well else 503)
    try:
        async with asyncio.timeout(gateway.settings.connect_timeout), await only.backend.request("GET", "models") as answer:
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
    gateway.metrics.settle()
    body = await asyncio.to_thread(gateway.metrics.text)  # with several workers it reads files: streams need not wait
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
