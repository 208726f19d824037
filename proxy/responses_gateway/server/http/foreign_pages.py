"""Refuse requests of web pages of others: those that name another host than this gateway (DNS rebinding), and those of other
origins, which a browser sends to any address without asking.

The browser does not let the page read the answer, but the model has worked by then. Browsers say what they do:
`Sec-Fetch-Site` over HTTPS and to this machine, `Origin` with every request that is no plain GET. Programs send neither, and
are not affected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from aiohttp import web

from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosts.addresses import is_loopback
from responses_gateway.wire.hosts.own_names import OwnNames, is_same_origin

# Hosts that are remembered as allowed.
_MOST_KNOWN = 100
_OWN_SITES = frozenset({"same-origin", "none"})  # none: the user has opened it, or an extension


class HostCheck:
    """Checks the `Host` of requests. With `allowed` names all requests are checked; without, those over a loopback connection,
    unless there are keys, which no page knows."""

    def __init__(self, allowed: Iterable[str], *, has_keys: bool, count_refusal: Callable[[], None]) -> None:
        names = tuple(allowed)
        self.known: set[str | None] = {None}  # allowed on all connections; browsers always send one
        self._own_names = OwnNames(names)
        self._everywhere = bool(names)
        self._never = "*" in names or (has_keys and not names)
        self._count_refusal = count_refusal

    def check(self, request: web.Request) -> None:
        """Raise `ApiError` 403 for a host under which this gateway is not known. Hosts in `known` need no check."""
        host = request.headers.get("Host", "")
        if self._never or self._own_names.include(host):
            if len(self.known) < _MOST_KNOWN:
                self.known.add(host)
            return
        if self._everywhere or _is_local_connection(request):
            self._count_refusal()
            message = "This gateway is not known under the name in the header 'Host': add it to the setting `allowed_hosts`."
            raise ApiError(403, message, code="host_not_allowed")


def _is_local_connection(request: web.Request) -> bool:
    """Tell whether a request came to an address that only this machine can reach."""
    transport = request.transport
    address = transport.get_extra_info("sockname") if transport is not None else None
    return isinstance(address, tuple) and is_loopback(address[0])  # else a Unix socket, which no browser opens


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


def _is_foreign(request: web.Request) -> bool:
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in _OWN_SITES
    origin = request.headers.get("Origin")
    return origin is not None and not is_same_origin(origin, request.host)
