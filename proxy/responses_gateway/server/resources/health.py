"""What operators and their machines ask: `/health`, `/ready`, `/metrics`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiohttp import web

from responses_gateway.backend.pool import Pool
from responses_gateway.probing.autoconfiguration import Autoconfiguration
from responses_gateway.server.access.api_keys import Needs, needs
from responses_gateway.server.generation.in_flight import InFlight, State
from responses_gateway.settings import Settings
from responses_gateway.telemetry.metrics import CONTENT_TYPE, Metrics
from responses_gateway.wire.errors import ApiError


@dataclass(frozen=True, slots=True)
class Health:
    """Serves the paths."""

    _pool: Pool
    _in_flight: InFlight
    _autoconfiguration: Autoconfiguration
    _metrics: Metrics
    _settings: Settings

    @needs(Needs.NOTHING)
    async def health(self, _request: web.Request) -> web.Response:
        """Answer that the process lives. `examining`: it is finding out what its backend wants, so answers may get better."""
        examining = {"examining": True} if self._autoconfiguration.pending else {}
        return web.json_response({"status": "ok", **examining})

    @needs(Needs.NOTHING)
    async def ready(self, _request: web.Request) -> web.Response:
        """Tell whether requests are taken and a backend is healthy. A single one is asked now, and noted: below 500 will do."""
        if self._in_flight.state >= State.LEAVING:
            return web.json_response({"status": "draining"}, status=503)
        only = self._pool.members.only
        if only is None:
            healthy = self._pool.places.any_healthy
            return web.json_response({"status": "ok" if healthy else "no healthy backend"}, status=200 if healthy else 503)
        status = {"status": "backend unhealthy"}
        try:
            async with asyncio.timeout(self._settings.connect_timeout), await only.backend.request("GET", "models") as answer:
                if answer.status < 500:
                    self._pool.places.answered(only)
                    return web.json_response({"status": "ok"})
        except TimeoutError:
            status = {"status": "backend silent"}
        except ApiError as error:
            status = {"status": "backend unreachable", "message": error.message}
        self._pool.places.failed(only, "connect")
        return web.json_response(status, status=503)

    @needs(Needs.KEY_IF_METRICS_DO)
    async def metrics(self, _request: web.Request) -> web.Response:
        """Answer in the Prometheus text format."""
        if self._settings.metrics == "off":
            raise web.HTTPNotFound
        self._metrics.flush()
        # In a thread: with several workers it reads files, which streams need not wait for.
        body = await asyncio.to_thread(self._metrics.text)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
