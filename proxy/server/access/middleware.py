"""What stands before the resources: leave for web pages, keys, limits. What the settings do not ask for is not there."""

from __future__ import annotations

import time
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from proxy.server.access import cors
from proxy.server.access.api_keys import KEY_NAME, Keys, given_key, require_key
from proxy.server.access.counter_table import Table
from proxy.server.access.rate_limits import ACCOUNT, CLAIM, Accounts, has_limits
from proxy.server.http.errors import REQUEST_ID, error_response
from proxy.server.resources import admin, compact, input_tokens, responses
from proxy.server.resources import health as operations
from proxy.server.resources import passthrough as relay
from proxy.settings import Settings
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.wire.errors import ApiError

_Handlers = frozenset[Callable[..., object]]
#: What makes the backend work. A WebSocket counts each of its messages itself.
_COUNTED: _Handlers = frozenset(
    {responses.create, compact.compact, input_tokens.count, relay.relay, relay.relay_unversioned, responses.upgrade}
)
#: The admin paths have a key of their own.
_OPEN: _Handlers = frozenset({operations.health, operations.ready, *admin.HANDLERS})


def admission(settings: Settings, metrics: Metrics, table: Table | None = None) -> list[Middleware]:
    """The middlewares that the settings ask for, outermost first; most often none. `table`: where several workers count."""
    found: list[Middleware] = []
    if settings.cors_origins:
        found.append(_preflight(cors.allowed_origins(settings)))
    if settings.api_keys:
        found.append(_keys(settings, metrics))
    if settings.api_keys or has_limits(settings):
        found.append(_accounts(settings, metrics, table))
    return found


def add_signals(app: web.Application, settings: Settings) -> None:
    """The headers that all answers get, those of errors included."""
    if settings.cors_origins:
        origins = cors.allowed_origins(settings)

        async def give_leave(request: web.Request, response: web.StreamResponse) -> None:
            cors.give_leave(request, response, origins)

        app.on_response_prepare.append(give_leave)
    if has_limits(settings):
        app.on_response_prepare.append(_say_what_is_left)


def _preflight(origins: frozenset[str]) -> Middleware:
    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        return cors.preflight(request, origins) if cors.is_preflight(request) else await handler(request)

    return answer


def _keys(settings: Settings, metrics: Metrics) -> Middleware:
    keys = Keys(settings.api_keys)
    open_to_all = _OPEN if settings.metrics_need_key else _OPEN | {operations.metrics}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.match_info.handler in open_to_all:
            return await handler(request)
        try:
            request[KEY_NAME] = require_key(keys, request.headers)
        except ApiError as error:
            reason = "wrong_key" if given_key(request.headers) else "missing_key"
            metrics.count(metrics.access_refusals, reason)
            logs.logger().debug("not admitted", extra=logs.fields(request_id=request[REQUEST_ID], reason=reason))
            response = error_response(error)
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        return await handler(request)

    return check


def _accounts(settings: Settings, metrics: Metrics, table: Table | None) -> Middleware:
    accounts = Accounts(settings, time.monotonic, metrics, table)

    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.match_info.handler not in _COUNTED:
            return await handler(request)
        account = request[ACCOUNT] = accounts.of(request)
        if request.method != "POST":
            return await handler(request)
        claim = request[CLAIM] = account.admit()
        try:
            return await handler(request)
        finally:
            if not claim.kept:
                claim.end()

    return admit


async def _say_what_is_left(request: web.Request, response: web.StreamResponse) -> None:
    account = request.get(ACCOUNT)
    if account is not None:
        response.headers.update(account.headers())
