"""What each request goes through: its exchange, errors as answers (a JSON body in OpenAI's format with a request id; stack
traces are only logged), one log line and one count whatever its outcome; CORS, API keys and rate limits only where the
settings require them. A response and its request share a line."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from pydantic import ValidationError

from responses_gateway.server.access import cors
from responses_gateway.server.access.api_keys import InForce, Needs, allowed_models, needs_of
from responses_gateway.server.access.clients import LIMITS, RESERVATION, Clients
from responses_gateway.server.access.identities import IDENTITIES
from responses_gateway.server.http.exchange import EXCHANGE, Bodies, Exchange, name_answer, request_id_of, unreadable
from responses_gateway.server.http.foreign_pages import HostCheck, OriginCheck
from responses_gateway.server.http.forwarded import forwarded_address
from responses_gateway.server.protocols.interface import ClientProtocol
from responses_gateway.server.protocols.responses import RESPONSES
from responses_gateway.server.protocols.standard import PROTOCOLS
from responses_gateway.settings import Settings, first_problem
from responses_gateway.settings.access import has_limits
from responses_gateway.settings.keys import given_key
from responses_gateway.state import EventsUnavailable, StoreUnavailable
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import ACCESS_REFUSALS, LATENCY_BUCKETS, Counter, Histogram
from responses_gateway.telemetry.logs import CLIENT_LEFT, REFUSALS
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.wire.errors import ApiError, invalid_request, server_error
from responses_gateway.wire.hosts.addresses import Networks

# Tells of soft limits that are exceeded.
_WARNING_HEADER = "x-responses-gateway-quota-warning"
HTTP_REQUESTS = Counter(
    "http_requests_total",
    "HTTP requests of all kinds, by pattern of the path (`/v1/{path}`: relayed to a backend).",
    ("method", "route", "status"),
)
HTTP_DURATION = Histogram(
    "http_request_duration_seconds",
    "From the head of an HTTP request to the end of its answer, for all kinds of requests.",
    LATENCY_BUCKETS,
    ("route",),
)
# Paths that monitoring requests all the time, and the window, which asks for a dozen files and then for ever: logged at level
# `debug`; those of the window unless they are refused.
_PROBES = frozenset({"/health", "/ready", "/metrics"})
_WINDOW = "/ui"
# All others, which clients may invent, are counted as one.
_METHODS = frozenset({*hdrs.METH_ALL} - {hdrs.METH_ANY})
_LONGEST_PATH = 200
# The code of the error that an answer tells, for the log.
ERROR_CODE: web.ResponseKey[str] = web.ResponseKey("error_code", str)
_NO_EVENTS = (
    "The log of running responses cannot be reached: they run, but cannot be followed, and none can begin in the background. "
    "GET /v1/responses/{id} without 'stream' tells how one stands. Please try again."
)
# Those of which a client says something, where it speaks one.
_OTHERS = [protocol for protocol in PROTOCOLS.values() if protocol is not RESPONSES]
# The first part of the paths that clients ask for if their base URL lacks `/v1`.
UNVERSIONED = frozenset({"responses", "conversations", "models", "chat", "completions", "embeddings"})


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
            status = 101 if exchange.upgraded else CLIENT_LEFT  # that of the handshake, whoever ends a WebSocket
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
    middlewares: list[Middleware] = []
    if settings.cors_origins:
        middlewares.append(_preflight(cors.allowed_origins(settings)))
    if settings.identifies_clients:
        middlewares.append(_keys(in_force, metrics))
    if settings.identifies_clients or has_limits(settings):
        middlewares.append(_limits(clients))
    return middlewares


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


def _keys(in_force: InForce, metrics: Metrics) -> Middleware:
    needing_key = Needs.KEY | Needs.KEY_IF_METRICS_DO if in_force().metrics == "key" else Needs.KEY

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        needed = needs_of(request.match_info.handler) & needing_key
        # To ask an operator for a client's key would mislead where there is no such path.
        if not needed or (request.path.startswith("/admin") and request.match_info.route.resource is None):
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


class AccessLog:
    """Counts each request, and logs a line for it if `logs_lines`, unless the line of a response tells of it."""

    def __init__(self, metrics: Metrics, *, logs_lines: bool) -> None:
        self._metrics = metrics
        self._logs_lines = logs_lines
        self._logger = logs.logger()
        # Method, route, status and seconds of those that are not counted yet.
        self._ended: list[tuple[str, str, int, float]] = []
        metrics.samplers.append(self._count)

    def _count(self) -> None:
        metrics = self._metrics
        for method, route, status, _ in self._ended:
            metrics.counted[HTTP_REQUESTS, (method, route, str(status))] += 1
        metrics.observe_each(HTTP_DURATION, [(route, seconds) for _, route, _, seconds in self._ended])
        self._ended.clear()

    def ended(
        self, request: web.Request, response: web.StreamResponse | None, exchange: Exchange, status: int, seconds: float
    ) -> None:
        """Note a request that took so long and ended with a status; there is no response if its client has left."""
        route = _route_of(request)
        self._ended.append((request.method if request.method in _METHODS else "other", route, status, seconds))
        level = _level(route, status)
        is_logged = self._logs_lines and self._logger.isEnabledFor(level)
        fields = _fields(request, response, exchange, status) if is_logged else {"status": status}
        if exchange.report is not None:
            exchange.report(fields)
        elif is_logged:
            log_request(level, exchange, fields, seconds)


def _level(route: str, status: int) -> int:
    if route in _PROBES:
        return logging.DEBUG
    if status in REFUSALS:
        return logging.WARNING
    return logging.DEBUG if route.startswith(_WINDOW) else logging.INFO


def log_request(level: int, exchange: Exchange, fields: Mapping[str, Any], seconds: float | None = None) -> None:
    """Log the line of a request that no response tells of."""
    origin = {**exchange.origin, "key": exchange.client}
    duration = None if seconds is None else round(seconds * 1000) / 1000
    logs.routine(level, "request", logs.present({"request_id": exchange.request_id, **fields, **origin, "seconds": duration}))


def _fields(request: web.Request, response: web.StreamResponse | None, exchange: Exchange, status: int) -> dict[str, Any]:
    """Return what the line of a request says of the HTTP exchange."""
    line = {
        "method": request.method[:20],
        "path": request.path[:_LONGEST_PATH],  # without the query, which may have a key
        "status": status,
        "client": exchange.address or request.remote or None,
        "code": response.get(ERROR_CODE) if response is not None and status >= 400 else None,
        "bytes_in": request.content_length,
        "bytes_out": exchange.bytes_out if exchange.bytes_out is not None else _size(response),
    }
    return logs.present(line)


def _route_of(request: web.Request) -> str:
    """Return the pattern of the path, of which there are few; `none` for a path that does not exist."""
    resource = request.match_info.route.resource
    return "none" if resource is None else resource.canonical


def _size(response: web.StreamResponse | None) -> int | None:
    """Return the size of an answer's body; None if that is not known."""
    if response is None:
        return None
    size = response.content_length
    return int(response.body_length if size is None else size)


def invalid_field(error: ValidationError, known: Iterable[str]) -> ApiError:
    """Return 400 with what is wrong, and with which field; `known` are the fields that there are."""
    field, what = first_problem(error, known)
    return invalid_request(f"'{field}': {what}.", field, "invalid_value")


def answer_for(request: web.Request, error: Exception, count_defect: Callable[[], None]) -> web.Response:
    """Return the answer for an exception of a handler; `count_defect` is called for one that should not be. A connection
    whose answer has begun ends, because another one would be taken for more of it."""
    if request[EXCHANGE].answered and request.transport is not None:
        request.transport.close()
    match error:
        case ApiError():
            response = error_response(error, request)
            if request.content.exception() is not None:  # the rest of the body may still come: the connection is not reused
                response.force_close()
            return response
        case StoreUnavailable():
            logs.logger().error("the store fails", extra=logs.fields(request_id=request[EXCHANGE].request_id, error=str(error)))
            message = _NO_EVENTS if isinstance(error, EventsUnavailable) else error.for_clients
            return error_response(server_error(message, 503), request)
        case web.HTTPNotFound():
            message = f"There is no {request.path} here.{_base_url_hint(request.path)}"
            return error_response(ApiError(404, message, code="not_found"), request)
        case web.HTTPMethodNotAllowed():
            message = f"{request.method} is not possible on {request.path}."
            response = error_response(ApiError(405, message, code="method_not_allowed"), request)
            response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
            return response
        case web.HTTPExpectationFailed():
            return error_response(ApiError(417, "The header Expect can only be 100-continue."), request)
        case web.HTTPException():
            return error_response(ApiError(error.status, error.reason), request)
        case ConnectionError():
            return error_response(ApiError(499, "The client closed the connection."), request)  # the client does not read this
        case web.RequestPayloadError() | UnicodeDecodeError():
            return error_response(unreadable(), request)
    count_defect()
    logs.logger().error("defect", exc_info=error, extra=logs.fields(request_id=request[EXCHANGE].request_id, path=request.path))
    return error_response(server_error("The gateway failed. This is a defect: please report it.", 500), request)


def _base_url_hint(path: str) -> str:
    """Return a hint for clients whose base URL lacks `/v1`, or has it twice, and for operators; else an empty text."""
    if re.match(r"/admin(/|$)", path):
        return (
            " The paths of operators exist if the gateway has an `admin_key`, and are listed in the API reference of the docs."
        )
    if re.match(r"/v1/v1/messages(/|$)", path):
        return " The base URL of this API ends without /v1."
    if re.match(r"/v1/v1(/|$)", path):
        return " The base URL has /v1 twice: it should end in /v1 once."
    if path.strip("/").partition("/")[0] in UNVERSIONED:
        return " The base URL should end in /v1."
    return ""


def protocol_of(request: web.Request) -> ClientProtocol:
    """Return the protocol that a client speaks: by its path, also below a prefix, or by the header of its version."""
    path = request.path
    for protocol in _OTHERS:
        if protocol.path in path or protocol.version_header in request.headers:
            return protocol
    return RESPONSES


def error_response(error: ApiError, request: web.Request) -> web.Response:
    """Return the error as an HTTP answer, in the words of the protocol that the client speaks."""
    headers = {} if error.retry_header is None else {"Retry-After": error.retry_header}
    if error.final:
        headers["X-Should-Retry"] = "false"
    status, body = protocol_of(request).error(error, request[EXCHANGE].request_id)
    response = web.Response(status=status, text=json.dumps(body), content_type="application/json", headers=headers)
    response[ERROR_CODE] = error.code or error.type
    return response


def complete_head(ending: asyncio.Event) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Return the signal handler that completes the head of every answer. A process that is about to end closes each
    connection after its answer, so that the client opens the next one to another process."""

    async def complete(request: web.Request, response: web.StreamResponse) -> None:
        exchange = request[EXCHANGE]
        exchange.answered = True
        request_id = exchange.request_id
        headers = response.headers
        name_answer(headers, request_id)
        id_header = protocol_of(request).id_header
        if id_header is not None:
            headers[id_header] = request_id
        if ending.is_set() and response.status != 101:
            response.force_close()
            headers["Connection"] = "close"

    return complete
