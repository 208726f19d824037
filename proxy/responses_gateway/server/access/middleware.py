"""Middleware: what each request goes through; CORS, API keys and rate limits only where the settings require them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from responses_gateway.server.access import cors
from responses_gateway.server.access.access_log import AccessLog
from responses_gateway.server.access.api_keys import InForce, Needs, allowed_models, needs_of
from responses_gateway.server.access.clients import LIMITS, RESERVATION, Clients
from responses_gateway.server.access.errors import answer_for, error_response, protocol_of
from responses_gateway.server.access.identities import IDENTITIES
from responses_gateway.server.http.bodies import Bodies
from responses_gateway.server.http.exchange import EXCHANGE, Exchange, request_id_of
from responses_gateway.server.http.foreign_pages import HostCheck, OriginCheck
from responses_gateway.server.http.forwarded import forwarded_address
from responses_gateway.settings import Settings
from responses_gateway.settings.access import has_limits
from responses_gateway.settings.keys import given_key
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import ACCESS_REFUSALS
from responses_gateway.telemetry.logs import CLIENT_LEFT
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosts.addresses import Networks

# Tells of soft limits that are exceeded.
_WARNING_HEADER = "x-responses-gateway-quota-warning"


def exchanges(
    bodies: Bodies,
    log: AccessLog,
    host_check: HostCheck,
    origin_check: OriginCheck | None,
    count_defect: Callable[[], None],
    note_refusal: Callable[[web.Request, web.StreamResponse, float], None],
    proxies: Networks | None,
) -> Middleware:
    """Return the outermost middleware, which makes each `Exchange`. `proxies` are those that are trusted."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.monotonic()
        exchange = Exchange(bodies, request_id_of(request))
        exchange.address = None if proxies is None else forwarded_address(request, proxies)
        request[EXCHANGE] = exchange
        response: web.StreamResponse | None = None
        status = 500
        try:
            try:
                headers = request.headers
                if headers.get("Host") not in host_check.known or "Sec-Fetch-Site" in headers or "Origin" in headers:
                    _check_sender(request, host_check, origin_check)
                response = await handler(request)
            except Exception as error:
                response = answer_for(request, error, count_defect)
            status = response.status
            if status >= 400:
                note_refusal(request, response, time.monotonic() - began)
            return response
        except asyncio.CancelledError:
            status = CLIENT_LEFT
            raise
        finally:
            if exchange.body is not None:
                exchange.body.close()
            log.ended(request, response, exchange, status, time.monotonic() - began)

    return answer


def _check_sender(request: web.Request, host_check: HostCheck, origin_check: OriginCheck | None) -> None:
    """Refuse what a foreign web page may have sent: under a name of its own, or openly from elsewhere."""
    host_check.check(request)
    if origin_check is not None:
        origin_check.check(request)


def access_middlewares(in_force: InForce, metrics: Metrics, clients: Clients) -> list[Middleware]:
    """Return the middlewares that the settings in force now require, outermost first; usually none."""
    settings = in_force()
    found: list[Middleware] = []
    if settings.cors_origins:
        found.append(_preflight(cors.allowed_origins(settings)))
    if settings.identifies_clients:
        found.append(_keys(in_force, metrics))
    if settings.identifies_clients or has_limits(settings):
        found.append(_limits(clients))
    return found


def add_access_headers(app: web.Application, settings: Settings) -> None:
    """Add headers about access to all answers, errors included."""
    if settings.cors_origins:
        origins = cors.allowed_origins(settings)

        async def add_cors_headers(request: web.Request, response: web.StreamResponse) -> None:
            cors.add_headers(request, response, origins)

        app.on_response_prepare.append(add_cors_headers)
    if settings.identifies_clients or has_limits(settings):
        app.on_response_prepare.append(_add_limit_headers)


def _preflight(origins: frozenset[str]) -> Middleware:
    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        return cors.preflight(request, origins) if cors.is_preflight(request) else await handler(request)

    return answer


def _is_unknown_path_of_operators(request: web.Request) -> bool:
    """Tell whether the answer is that there is no such path: to ask an operator for a client's key would mislead."""
    return request.path.startswith("/admin") and request.match_info.route.resource is None


def _keys(in_force: InForce, metrics: Metrics) -> Middleware:
    needing_key = Needs.KEY | Needs.KEY_IF_METRICS_DO if in_force().metrics == "key" else Needs.KEY

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not needs_of(request.match_info.handler) & needing_key or _is_unknown_path_of_operators(request):
            return await handler(request)
        try:
            await request.app[IDENTITIES].identify(request)
            exchange = request[EXCHANGE]
            exchange.allows = allowed_models(exchange, in_force())
        except ApiError as error:
            if error.status != 401:
                raise
            reason = "wrong_key" if given_key(request.headers) else "missing_key"
            metrics.count(ACCESS_REFUSALS, reason)
            logs.logger().debug("not admitted", extra=logs.fields(request_id=request[EXCHANGE].request_id, reason=reason))
            response = error_response(error, request)
            challenge = 'Bearer error="invalid_token"' if error.code == "invalid_token" else "Bearer"
            response.headers["WWW-Authenticate"] = challenge
            return response
        return await handler(request)

    return check


def _limits(clients: Clients) -> Middleware:
    @web.middleware
    async def reserve(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not needs_of(request.match_info.handler) & Needs.RESERVATION:
            return await handler(request)
        limits = clients.of(request)
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
        response.headers.update(protocol_of(request).limit_headers(limits.counts()))
        if limits.warning:
            response.headers[_WARNING_HEADER] = limits.warning
