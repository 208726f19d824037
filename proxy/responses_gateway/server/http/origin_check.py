"""Refuse requests of web pages of other origins, which a browser sends to any address without asking.

It does not let the page read the answer, but the model has worked by then. Browsers say what they do: `Sec-Fetch-Site` over
HTTPS and to this machine, `Origin` with every request that is no plain GET. Programs send neither, and are not affected."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web

from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosts.own_names import is_same_origin

_OWN_SITES = frozenset({"same-origin", "none"})  # none: the user has opened it, or an extension


class OriginCheck:
    """Checks requests of browsers. `is_allowed` tells whether the settings name the origin in the headers."""

    def __init__(self, is_allowed: Callable[[Mapping[str, str]], bool], count_refusal: Callable[[], None]) -> None:
        self._is_allowed = is_allowed
        self._count_refusal = count_refusal

    def check(self, request: web.Request) -> None:
        """Raise `ApiError` 403 for a request of a foreign page. A link may lead here: that does nothing."""
        headers = request.headers
        is_link = headers.get("Sec-Fetch-Mode") == "navigate" and request.method in ("GET", "HEAD")
        if is_link or not _is_foreign(request) or self._is_allowed(headers):
            return
        self._count_refusal()
        message = "Web pages of this origin may not use this gateway: add it to the setting `cors_origins`, or require keys."
        raise ApiError(403, message, code="origin_not_allowed")


def is_of_browser(request: web.Request) -> bool:
    """Tell whether a browser says that it has sent this request."""
    return "Origin" in request.headers or "Sec-Fetch-Site" in request.headers


def _is_foreign(request: web.Request) -> bool:
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in _OWN_SITES
    origin = request.headers.get("Origin")
    return origin is not None and not is_same_origin(origin, request.host)
