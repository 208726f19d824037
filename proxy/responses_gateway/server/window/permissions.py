"""Access control for `/ui/`.

With an admin key in the settings, a request needs that key. Without one, programs and browsers on this machine have full
access, as has everybody with `ui: open`, and everybody who reaches the operations port may see metadata. Pages of other origins
are refused: those that send requests from an operator's browser, and those whose name was made to resolve to this machine."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from responses_gateway.server.access.api_keys import Needs, needs, require_admin_key
from responses_gateway.server.window.pages import SECURITY_HEADERS
from responses_gateway.settings import Settings
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosts.addresses import is_loopback
from responses_gateway.wire.hosts.own_names import OwnNames, host_name, is_same_origin

# Headers that a reverse proxy on this machine adds: its clients are on other machines.
_FORWARDED = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP")
_NO_KEY = "The window is available on this machine only. Set `admin_key` to open it from elsewhere."
_KEYS = "Clients of this gateway need keys, and so does its window. Set `admin_key`, and open the window with it."
_NO_CONTENT = "Without the setting `admin_key`, contents are shown on this machine only."


class Permission(IntEnum):
    """What a visitor may do; each includes those before it."""

    METADATA = 1  # see requests, backends and plots without content
    CONTENT = 2  # record, see content, replay recordings, examine backends


class WindowAccess:
    """Decides what a request to `/ui/` may do. `on_operations_port`: it is served on the operations port."""

    def __init__(self, settings: Settings, *, on_operations_port: bool) -> None:
        self._settings = settings
        self.on_operations_port = on_operations_port
        self._own_names = OwnNames(settings.allowed_hosts)

    @property
    def has_admin_paths(self) -> bool:
        """Whether there is `/admin/backends`, which the page uses to drain a backend."""
        return self._settings.admin_key is not None

    def for_clients(self) -> dict[str, Any]:
        """Return what the page has to know to send a request as a client does: whether it needs a key, and any other port."""
        return {
            "needs_key": self._settings.identifies_clients,
            "client_port": self._settings.port if self.on_operations_port else None,
        }

    def allowing(self, wanted: Permission, handler: Handler) -> Handler:
        """Return a handler that answers visitors with a permission."""

        @needs(Needs.NOTHING)
        async def answer(request: web.Request) -> web.StreamResponse:
            if self.permission_of(request) < wanted:
                raise ApiError(403, _NO_CONTENT, code="admin_key_required")
            response = await handler(request)
            response.headers.update(SECURITY_HEADERS)
            response.headers["Cache-Control"] = "no-store"
            return response

        return answer

    def permission_of(self, request: web.Request) -> Permission:
        """Return the visitor's permission. Raise `ApiError` 401 without the admin key, 403 where nothing is permitted."""
        _require_same_origin(request)
        settings = self._settings
        if settings.admin_key is not None:
            require_admin_key(settings, request.headers)
            return Permission.CONTENT
        has_own_name = self._own_names.include(request.headers.get("Host", ""))
        may_be_trusted = _is_local(request) or (settings.ui == "open" and has_own_name)
        if may_be_trusted and (self.on_operations_port or not settings.identifies_clients):
            return Permission.CONTENT
        if self.on_operations_port and settings.metrics != "key" and has_own_name:
            return Permission.METADATA
        raise ApiError(403, _KEYS if settings.identifies_clients else _NO_KEY, code="admin_key_required")


def _require_same_origin(request: web.Request) -> None:
    """Raise `ApiError` 403 for a request from a page of another origin."""
    origin = request.headers.get("Origin")
    is_foreign = origin is not None and not is_same_origin(origin, request.host)
    if is_foreign or request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
        raise ApiError(403, "Pages of other origins may not access the window.", code="origin_not_allowed")


def _is_local(request: web.Request) -> bool:
    """Tell whether a request comes from a program on this machine, and its `Host` is a name of this machine."""
    transport = request.transport
    if transport is None or any(name in request.headers for name in _FORWARDED):
        return False
    ends = (transport.get_extra_info("peername"), transport.get_extra_info("sockname"))
    if not all(isinstance(end, tuple) and is_loopback(end[0]) for end in ends):
        return False
    return is_loopback(host_name(request.headers.get("Host", "")) or "")
