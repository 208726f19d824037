"""Refuse requests that name another host than this gateway, as those of web pages do that use DNS rebinding."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aiohttp import web

from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosts.addresses import is_loopback
from responses_gateway.wire.hosts.own_names import OwnNames

# Hosts that are remembered as allowed.
_MOST_KNOWN = 100


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
