"""Who may look through the window.

With an admin key, whoever has it. Without, programs and browsers on this machine; and on the port for operators everybody who
reaches it, but only what has no content in it. No other web page may: neither one that sends requests from the browser of an
operator, nor one that lets its own name resolve to this machine."""

from __future__ import annotations

from enum import IntEnum

from aiohttp import web

from proxy.server.access.api_keys import require_admin_key
from proxy.settings import Settings
from proxy.wire.errors import ApiError
from proxy.wire.hosts.addresses import is_loopback
from proxy.wire.hosts.own_names import OwnNames, host_name, is_same_origin

# A reverse proxy on this machine adds one of these: its clients are not on this machine.
_FORWARDED = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP")
_NO_KEY = "The window is available on this machine only. Set `admin_key` to open it from elsewhere."
_NO_CONTENT = "Without the setting `admin_key`, contents are shown on this machine only."


class Leave(IntEnum):
    """What a visitor may do."""

    LOOK = 1  # see what has no content
    ALL = 2  # see contents, run replays, examine backends


class Visitors:
    """Decides about requests. `on_operations_port`: these come to the port for operators."""

    def __init__(self, settings: Settings, *, on_operations_port: bool) -> None:
        self._settings = settings
        self._on_operations_port = on_operations_port
        self._own_names = OwnNames(settings.allowed_hosts)

    def require(self, request: web.Request, wanted: Leave) -> None:
        """Raise `ApiError` 401 or 403 unless the visitor may do so."""
        if self.leave_of(request) < wanted:
            raise ApiError(403, _NO_CONTENT, code="admin_key_required")

    def require_admin(self, request: web.Request) -> None:
        """Raise `ApiError` 401 or 403 unless the visitor has the admin key, which must be set."""
        self.require(request, Leave.ALL)
        if self._settings.admin_key is None:
            message = "This requires the setting `admin_key`, which is not set on this gateway."
            raise ApiError(403, message, code="admin_key_required")

    def leave_of(self, request: web.Request) -> Leave:
        """Return what a visitor may do. Raise `ApiError` 401 without the admin key, 403 where nothing is allowed."""
        _require_same_origin(request)
        settings = self._settings
        if settings.admin_key is not None:
            require_admin_key(settings, request.headers)
            return Leave.ALL
        if _comes_from_here(request) and (self._on_operations_port or not settings.api_keys):
            return Leave.ALL
        has_own_name = self._own_names.include(request.headers.get("Host", ""))
        if self._on_operations_port and not settings.metrics_need_key and has_own_name:
            return Leave.LOOK
        raise ApiError(403, _NO_KEY, code="admin_key_required")


def _require_same_origin(request: web.Request) -> None:
    """Raise `ApiError` 403 for a request that a page of another origin made."""
    origin = request.headers.get("Origin")
    from_elsewhere = origin is not None and not is_same_origin(origin, request.host)
    if from_elsewhere or request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
        raise ApiError(403, "Pages of other origins may not access the window.", code="origin_not_allowed")


def _comes_from_here(request: web.Request) -> bool:
    """Tell whether a program on this machine asks, and under a name that means this machine."""
    transport = request.transport
    if transport is None or any(name in request.headers for name in _FORWARDED):
        return False
    ends = (transport.get_extra_info("peername"), transport.get_extra_info("sockname"))
    if not all(isinstance(end, tuple) and is_loopback(end[0]) for end in ends):
        return False
    return is_loopback(host_name(request.headers.get("Host", "")) or "")
