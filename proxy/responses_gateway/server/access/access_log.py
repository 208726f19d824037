"""One log line and one count for each HTTP request, whatever its outcome."""

from __future__ import annotations

import asyncio
import logging
import time

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from responses_gateway.server.access.api_keys import KEY_NAME
from responses_gateway.server.access.errors import ERROR_CODE
from responses_gateway.server.http.event_stream import SENT
from responses_gateway.server.http.request_ids import REQUEST_ID
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import LATENCY_BUCKETS, Counter, Histogram
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
# The status of a request whose client closed the connection before the answer was complete, as in nginx.
_CLIENT_LEFT = 499


def access_log(metrics: Metrics, *, logs_lines: bool) -> Middleware:
    """Return the outermost middleware: it counts each request, and logs a line for it if `logs_lines`."""

    @web.middleware
    async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.monotonic()
        response: web.StreamResponse | None = None
        status = 500
        try:
            response = await handler(request)
            status = response.status
            return response
        except asyncio.CancelledError:
            status = _CLIENT_LEFT
            raise
        finally:
            seconds = time.monotonic() - began
            route = _route_of(request)
            method = request.method if request.method in _METHODS else "other"
            metrics.count(HTTP_REQUESTS, method, route, str(status))
            metrics.observe(HTTP_DURATION, seconds, route)
            if logs_lines:
                _log(request, response, route, status, seconds)

    return observe


def _log(request: web.Request, response: web.StreamResponse | None, route: str, status: int, seconds: float) -> None:
    line = {
        "request_id": request.get(REQUEST_ID),
        "method": request.method[:20],
        "path": request.path[:_LONGEST_PATH],  # without the query, which may have a key
        "status": status,
        "client": request.remote or None,
        "key": request.get(KEY_NAME),
        "code": response.get(ERROR_CODE) if response is not None and status >= 400 else None,
        "seconds": round(seconds * 1000) / 1000,
        "bytes_in": request.content_length,
        "bytes_out": _sent(request, response),
    }
    refused = status >= 400 and status != _CLIENT_LEFT
    level = logging.DEBUG if route in _PROBES else logging.WARNING if refused else logging.INFO
    logs.routine(level, "request", logs.present(line))


def _route_of(request: web.Request) -> str:
    """Return the pattern of the path, of which there are few; `none` for a path that does not exist."""
    resource = request.match_info.route.resource
    return "none" if resource is None else resource.canonical


def _sent(request: web.Request, response: web.StreamResponse | None) -> int | None:
    """Return the size of the answer's body as far as it was written; None if that is not known."""
    streamed = request.get(SENT)
    if streamed is not None:
        return int(streamed)
    if response is None:
        return None
    size = response.content_length
    return int(response.body_length if size is None else size)
