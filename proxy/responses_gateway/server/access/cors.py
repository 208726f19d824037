"""Web pages as clients: which origins may use the gateway from a browser (CORS), and which may open its WebSocket.

A browser asks for permission before it lets a page read an answer, but not before it opens a WebSocket: any page open on this
machine could talk to a gateway on localhost. So the origin of a WebSocket is checked even while CORS is off."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from responses_gateway.settings import Settings
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosts.own_names import OwnNames, is_same_origin

_METHODS = "GET, POST, DELETE, PUT, PATCH, OPTIONS"
# The headers of an answer that pages may read.
_EXPOSED = ", ".join(
    [
        "Retry-After",
        "X-Should-Retry",
        "X-Request-Id",
        "Request-Id",
        "X-Responses-Gateway-Losses",
        "X-Responses-Gateway-Quota-Warning",
        *(f"X-Ratelimit-{what}-{kind}" for kind in ("Requests", "Tokens") for what in ("Limit", "Remaining", "Reset")),
        *(f"Anthropic-Ratelimit-{kind}-{what}" for kind in ("Requests", "Tokens") for what in ("Limit", "Remaining", "Reset")),
    ]
)
# Seconds for which a browser may keep the answer to a preflight request.
_MAX_AGE = "600"


def is_preflight(request: web.Request) -> bool:
    """Tell whether this is a preflight request of CORS, which has no key."""
    return request.method == "OPTIONS" and "Origin" in request.headers and "Access-Control-Request-Method" in request.headers


def preflight(request: web.Request, origins: frozenset[str]) -> web.Response:
    """Return the answer to a preflight request. `origins` are those of the settings, in lower case."""
    response = web.Response(status=204)
    response.headers["Vary"] = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
    if is_allowed(request.headers, origins):
        response.headers["Access-Control-Allow-Methods"] = _METHODS
        response.headers["Access-Control-Allow-Headers"] = request.headers.get("Access-Control-Request-Headers", "*")
        response.headers["Access-Control-Max-Age"] = _MAX_AGE
        if "Access-Control-Request-Private-Network" in request.headers:
            response.headers["Access-Control-Allow-Private-Network"] = "true"
    return response


def add_headers(request: web.Request, response: web.StreamResponse, origins: frozenset[str]) -> None:
    """Add the headers by which a browser lets a page read an answer; none for pages that may not."""
    everybody = "*" in origins
    if not everybody:
        response.headers.setdefault("Vary", "Origin")
    if is_allowed(request.headers, origins):
        # Never with credentials: keys are sent in a header, and cookies are not used.
        response.headers["Access-Control-Allow-Origin"] = "*" if everybody else request.headers["Origin"]
        response.headers["Access-Control-Expose-Headers"] = _EXPOSED


def is_allowed(headers: Mapping[str, str], origins: frozenset[str]) -> bool:
    """Tell whether a page comes from an origin of the settings."""
    origin = headers.get("Origin")
    return origin is not None and ("*" in origins or origin.lower() in origins)


def allowed_origins(settings: Settings) -> frozenset[str]:
    """Return the origins of the settings, as browsers write them."""
    return frozenset(origin.lower().rstrip("/") for origin in settings.cors_origins)


def check_socket(request: web.Request, settings: Settings) -> None:
    """Refuse a WebSocket to pages that may not open one (only browsers send an origin). Raise `ApiError` 403."""
    origin = request.headers.get("Origin")
    if origin is None or is_allowed(request.headers, allowed_origins(settings)):
        return
    # Some libraries send the address of the server as the origin.
    is_own_name = settings.identifies_clients or OwnNames(settings.allowed_hosts).include(request.host)
    if is_own_name and is_same_origin(origin, request.host):
        return
    message = "Web pages of this origin may not open a WebSocket here: add it to the setting `cors_origins`."
    raise ApiError(403, message, code="origin_not_allowed")
