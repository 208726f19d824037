"""Middleware: CORS, API keys, rate limits; only those that the settings require."""

from __future__ import annotations

import time

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from responses_gateway.server.access import cors
from responses_gateway.server.access.api_keys import KEY_NAME, KEYS, InForce, Needs, needs_of, require_key
from responses_gateway.server.access.counter_table import Table
from responses_gateway.server.access.fleet import Fleet
from responses_gateway.server.access.rate_limits import LIMITS, RESERVATION, RateLimits
from responses_gateway.server.http.errors import REQUEST_ID, error_response, speaks_messages
from responses_gateway.settings import Settings
from responses_gateway.settings.access import has_limits
from responses_gateway.settings.keys import given_key
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.wire.errors import ApiError


def access_middlewares(
    in_force: InForce, metrics: Metrics, table: Table | None = None, fleet: Fleet | None = None
) -> list[Middleware]:
    """Return the middlewares that the settings in force now require, outermost first; usually none. `table` has the counts of
    several workers, `fleet` those of several gateways."""
    settings = in_force()
    found: list[Middleware] = []
    if settings.cors_origins:
        found.append(_preflight(cors.allowed_origins(settings)))
    if settings.api_keys:
        found.append(_keys(in_force, metrics))
    if settings.api_keys or has_limits(settings):
        found.append(_limits(in_force, metrics, table, fleet))
    return found


def add_access_headers(app: web.Application, settings: Settings) -> None:
    """Add headers about access to all answers, errors included."""
    if settings.cors_origins:
        origins = cors.allowed_origins(settings)

        async def add_cors_headers(request: web.Request, response: web.StreamResponse) -> None:
            cors.add_headers(request, response, origins)

        app.on_response_prepare.append(add_cors_headers)
    if has_limits(settings):
        app.on_response_prepare.append(_add_limit_headers)


def _preflight(origins: frozenset[str]) -> Middleware:
    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        return cors.preflight(request, origins) if cors.is_preflight(request) else await handler(request)

    return answer


def _keys(in_force: InForce, metrics: Metrics) -> Middleware:
    needing_key = Needs.KEY | Needs.KEY_IF_METRICS_DO if in_force().metrics_need_key else Needs.KEY

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not needs_of(request.match_info.handler) & needing_key:
            return await handler(request)
        try:
            request[KEY_NAME] = require_key(request.app[KEYS], request.headers)
        except ApiError as error:
            reason = "wrong_key" if given_key(request.headers) else "missing_key"
            metrics.count(metrics.access_refusals, reason)
            logs.logger().debug("not admitted", extra=logs.fields(request_id=request[REQUEST_ID], reason=reason))
            response = error_response(error, request)
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        return await handler(request)

    return check


def _limits(in_force: InForce, metrics: Metrics, table: Table | None, fleet: Fleet | None) -> Middleware:
    rate_limits = RateLimits(in_force, time.monotonic, metrics, table, fleet)

    @web.middleware
    async def reserve(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not needs_of(request.match_info.handler) & Needs.RESERVATION:
            return await handler(request)
        limits = rate_limits.of(request)
        request[LIMITS] = limits
        if request.method != "POST":  # each message of a WebSocket makes a reservation of its own
            return await handler(request)
        reservation = await limits.reserve_in_fleet()
        request[RESERVATION] = reservation
        try:
            return await handler(request)
        finally:
            if not reservation.kept:
                reservation.end()

    return reserve


async def _add_limit_headers(request: web.Request, response: web.StreamResponse) -> None:
    limits = request.get(LIMITS)
    if limits is not None:
        response.headers.update(limits.messages_headers() if speaks_messages(request) else limits.headers())
