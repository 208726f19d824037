"""The names under which clients may address the gateway.

A web page may let its own name resolve to this machine (DNS rebinding): the browser then takes a gateway on localhost, which
requires no key, for a part of that page. Such a request has the page's host in its `Host` header."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web

from proxy.wire.errors import ApiError

# Names below these cannot be registered in the public DNS. `.internal` is how containers reach their host.
_PRIVATE = (".localhost", ".internal")
# Most hosts that are remembered as allowed.
_MOST_KNOWN = 100


class Hosts:
    """Checks the `Host` of requests. With `allowed` names all requests are checked; without, those over a loopback connection,
    unless there are keys, which no page knows."""

    def __init__(self, allowed: Iterable[str], *, has_keys: bool, count_refusal: Callable[[], None]) -> None:
        names = [name.lower() for name in allowed]
        self.known: set[str | None] = {None}  # allowed on all connections; browsers always send one
        self._exact = frozenset(name for name in names if not name.startswith("*"))
        self._endings = tuple(name[1:] for name in names if name.startswith("*."))
        self._everywhere = bool(names)
        self._never = "*" in names or (has_keys and not names)
        self._count_refusal = count_refusal

    def check(self, request: web.Request) -> None:
        """Raise `ApiError` 403 for a host under which this gateway is not known. Hosts in `known` need no check."""
        host = request.headers.get("Host", "")
        if self._never or self._is_allowed(host):
            if len(self.known) < _MOST_KNOWN:
                self.known.add(host)
            return
        if self._everywhere or _is_loopback(request):
            self._count_refusal()
            message = "This gateway is not known under the name in the header 'Host': add it to the setting `allowed_hosts`."
            raise ApiError(403, message, code="host_not_allowed")

    def _is_allowed(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
        except ValueError:
            return False
        return is_literal(host) or "." not in name or name in self._exact or name.endswith((*_PRIVATE, *self._endings))


def is_literal(host: str) -> bool:
    """Tell an address or `localhost` from other names, which an attacker could let resolve to this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        ip_address(name)
    except ValueError:
        return host.partition(":")[0].lower() == "localhost"
    return True


def _is_loopback(request: web.Request) -> bool:
    """Tell whether a request came to an address that only this machine can reach."""
    transport = request.transport
    address = transport.get_extra_info("sockname") if transport is not None else None
    if not isinstance(address, tuple):  # a Unix socket, which no browser opens
        return False
    try:
        found = ip_address(address[0].partition("%")[0])
    except ValueError:
        return False
    return found.is_loopback
