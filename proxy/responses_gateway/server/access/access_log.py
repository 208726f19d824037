"""One log line and one count for each HTTP request, whatever its outcome. A response and its request share a line."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from responses_gateway.server.access.api_keys import KEY_NAME
from responses_gateway.server.access.errors import ERROR_CODE
from responses_gateway.server.http.request_ids import EXCHANGE, REQUEST_ID
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import LATENCY_BUCKETS, Counter, Histogram
from responses_gateway.telemetry.logs import CLIENT_LEFT, Exchange, is_refusal
from responses_gateway.telemetry.metrics import Metrics

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
# Paths that monitoring requests all the time: logged at level `debug`.
_PROBES = frozenset({"/health", "/ready", "/metrics"})
# All others, which clients may invent, are counted as one.
_METHODS = frozenset({*hdrs.METH_ALL} - {hdrs.METH_ANY})
_LONGEST_PATH = 200


def access_log(metrics: Metrics, *, logs_lines: bool) -> Middleware:
    """Return the outermost middleware: it counts each request, and logs a line for it if `logs_lines`, unless the line of a
    response tells of it."""
    ended: list[tuple[str, str, int, float]] = []  # method, route, status and seconds of those that are not counted yet

    def count() -> None:
        for method, route, status, _ in ended:
            metrics.counted[HTTP_REQUESTS, (method, route, str(status))] += 1
        metrics.observe_each(HTTP_DURATION, [(route, seconds) for _, route, _, seconds in ended])
        ended.clear()

    @web.middleware
    async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.monotonic()
        exchange = Exchange()
        request[EXCHANGE] = exchange
        response: web.StreamResponse | None = None
        status = 500
        try:
            response = await handler(request)
            status = response.status
            return response
        except asyncio.CancelledError:
            status = CLIENT_LEFT
            raise
        finally:
            seconds = time.monotonic() - began
            route = _route_of(request)
            ended.append((request.method if request.method in _METHODS else "other", route, status, seconds))
            level = logging.DEBUG if route in _PROBES else logging.WARNING if is_refusal(status) else logging.INFO
            shown = logs_lines and logs.logger().isEnabledFor(level)
            fields = _fields(request, response, exchange, status) if shown else {"status": status}
            if exchange.report is not None:
                exchange.report(fields)
            elif shown:
                _log(level, request, fields, seconds)

    metrics.samplers.append(count)
    return observe


def _log(level: int, request: web.Request, fields: dict[str, Any], seconds: float) -> None:
    line = {
        "request_id": request.get(REQUEST_ID),
        **fields,
        "key": request.get(KEY_NAME),
        "seconds": round(seconds * 1000) / 1000,
    }
    logs.routine(level, "request", logs.present(line))


def _fields(request: web.Request, response: web.StreamResponse | None, exchange: Exchange, status: int) -> dict[str, Any]:
    """Return what the line of a request says of the HTTP exchange."""
    line = {
        "method": request.method[:20],
        "path": request.path[:_LONGEST_PATH],  # without the query, which may have a key
        "status": status,
        "client": request.remote or None,
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
