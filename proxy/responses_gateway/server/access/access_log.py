"""One log line and one count for each HTTP request, whatever its outcome. A response and its request share a line."""

from __future__ import annotations

import logging
from typing import Any

from aiohttp import hdrs, web

from responses_gateway.server.access.errors import ERROR_CODE
from responses_gateway.server.http.exchange import Exchange
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import LATENCY_BUCKETS, Counter, Histogram
from responses_gateway.telemetry.logs import is_refusal
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
# Paths that monitoring requests all the time, and the window, which asks for a dozen files and then for ever: logged at level
# `debug`; those of the window unless they are refused.
_PROBES = frozenset({"/health", "/ready", "/metrics"})
_WINDOW = "/ui"
# All others, which clients may invent, are counted as one.
_METHODS = frozenset({*hdrs.METH_ALL} - {hdrs.METH_ANY})
_LONGEST_PATH = 200


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
        shown = self._logs_lines and self._logger.isEnabledFor(level)
        fields = _fields(request, response, exchange, status) if shown else {"status": status}
        if exchange.report is not None:
            exchange.report(fields)
        elif shown:
            _log(level, exchange, fields, seconds)


def _level(route: str, status: int) -> int:
    if route in _PROBES:
        return logging.DEBUG
    if is_refusal(status):
        return logging.WARNING
    return logging.DEBUG if route.startswith(_WINDOW) else logging.INFO


def _log(level: int, exchange: Exchange, fields: dict[str, Any], seconds: float) -> None:
    line = {"request_id": exchange.request_id, **fields, "key": exchange.client, "seconds": round(seconds * 1000) / 1000}
    logs.routine(level, "request", logs.present(line))


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
