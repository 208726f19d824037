"""The gateway as an aiohttp application: which path leads where, and what each resource gets."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from responses_gateway.server.access import middleware
from responses_gateway.server.access.api_keys import for_admin
from responses_gateway.server.access.clients import CLIENTS, Clients
from responses_gateway.server.access.cors import allowed_origins, is_allowed
from responses_gateway.server.access.counter_table import Table
from responses_gateway.server.access.fleet import Fleet
from responses_gateway.server.access.identities import IDENTITIES, Identities
from responses_gateway.server.access.rate_limits import RateLimits
from responses_gateway.server.generation.request_log.usage import SumsOf
from responses_gateway.server.http.exchange import BODY_BYTES, Bodies
from responses_gateway.server.http.foreign_pages import HostCheck, OriginCheck
from responses_gateway.server.http.loop_detection import LoopDetection
from responses_gateway.server.http.routes import ASK_ALL, HttpRoute, PrefixedRouter
from responses_gateway.server.parts import Parts
from responses_gateway.server.protocols.messages import MESSAGES
from responses_gateway.server.protocols.responses import RESPONSES
from responses_gateway.server.quotas.quota import standings
from responses_gateway.server.resources.admin import Admin, OnChange
from responses_gateway.server.resources.answers import Answers, Compaction
from responses_gateway.server.resources.codex_catalog import load_model_table
from responses_gateway.server.resources.conversations import Conversations
from responses_gateway.server.resources.health import Health
from responses_gateway.server.resources.input_tokens import InputTokens
from responses_gateway.server.resources.models import MessagesModels, Models, by_version, hello
from responses_gateway.server.resources.passthrough import Passthrough
from responses_gateway.server.resources.stored_responses import StoredResponses
from responses_gateway.server.resources.usage_export import export_usage
from responses_gateway.server.resources.websocket import WebSockets
from responses_gateway.server.window.permissions import Permission, WindowAccess
from responses_gateway.server.window.refusals import note_refusals
from responses_gateway.server.window.resource import Window
from responses_gateway.server.window.usage_report import USAGE, usage_rows, usage_sums
from responses_gateway.server.window.worker_view import WorkerView
from responses_gateway.server.window.workers import Workers
from responses_gateway.settings import Settings
from responses_gateway.settings.access import has_limits
from responses_gateway.telemetry.instruments import ACCESS_REFUSALS, DEFECTS
from responses_gateway.wire.hosts.addresses import Networks

# All bodies of a process together have room for so many of the largest: one client alone cannot shut out the others.
LARGEST_BODIES = 10


def create_app(
    parts: Parts, table: Table | None = None, on_backend_change: OnChange | None = None, folder: Path | None = None
) -> web.Application:
    """Return the application for clients. Run it with `handler_cancellation=True`, which frees backends when clients leave.
    `table` is where several workers count what clients had, and `folder` the one that they share; `on_backend_change` is called
    after changes by an admin."""
    bodies = _bodies(parts)
    parts.metrics.samplers.append(bodies.report)
    fleet = _fleet(parts, table)
    app = _new_app(parts, bodies, table, fleet)
    if fleet is not None:
        app.cleanup_ctx.append(lambda _app: fleet.taking_part())
    loop_detection = LoopDetection()
    hosted = [kind for toolbox in parts.responses.additions.toolboxes for kind in toolbox.kinds]
    router = PrefixedRouter(app.router, parts.routes)
    _add_answers(app, router, parts, bodies, hosted)
    models = Models(load_model_table(parts.settings.model_table), parts.pool, parts.live, loop_detection, hosted)
    _add_models(router, models)
    _add_features(router, parts)
    _add_stored(router, parts)
    health = _health(parts)
    _add_probes(app.router, health)
    if parts.settings.operations_port is None:
        _add_operations(app, health, parts, on_backend_change, folder)
    for path in ("/", "/api/hello"):  # what Claude Code asks at its start; behind the window, to which `/` leads browsers
        app.router.add_head(path, hello)
        app.router.add_route("*", path, _nothing)
    if parts.settings.relay:  # last, because it takes whatever path is left
        _add_relay(router, parts, loop_detection)
    return app


def _add_answers(app: web.Application, router: PrefixedRouter, parts: Parts, bodies: Bodies, hosted: Sequence[str]) -> None:
    """Add what makes the model work, with a route for each protocol of clients. `hosted` are the kinds of tools that the
    gateway runs itself."""
    responses = parts.responses
    websockets = WebSockets(responses, parts.background, bodies)
    app.on_shutdown.append(websockets.close_all)
    tokens = InputTokens(responses, hosted)
    _add(router, "/v1/responses", POST=Answers(RESPONSES, responses, hosted, parts.background).create, GET=websockets.upgrade)
    _add(router, "/v1/responses/input_tokens", POST=tokens.count)
    _add(router, "/v1/responses/compact", POST=Compaction(responses).create)
    _add(router, "/v1/messages", POST=Answers(MESSAGES, responses, hosted).create)
    _add(router, "/v1/messages/count_tokens", POST=tokens.count_message)
    # Batches and whatever else that API has: its clients look for it there, and a backend would refuse it in words of its own.
    router.add_route("*", "/v1/messages/{path:.+}", _nothing)


def _add_models(router: PrefixedRouter, models: Models) -> None:
    messages_models = MessagesModels(models)
    for method in ("GET", "HEAD"):
        router.add_route(method, "/v1/models", by_version(models.list_models, messages_models.list_models))
        router.add_route(method, "/v1/models/{id:.+}", by_version(models.retrieve_model, messages_models.retrieve_model))


def _add_relay(router: PrefixedRouter, parts: Parts, loop_detection: LoopDetection) -> None:
    passthrough = Passthrough(parts.responses, parts.settings, loop_detection)
    router.add_route("*", "/v1/{path:.+}", passthrough.relay)
    for path in ("/tokenize", "/detokenize"):
        router.add_route("POST", path, passthrough.relay_unversioned)


def create_operations_app(
    parts: Parts, on_backend_change: OnChange | None = None, folder: Path | None = None
) -> web.Application:
    """Return the application that `operations_port` serves, for the same parts."""
    app = _new_app(parts, _bodies(parts))
    health = _health(parts)
    _add_probes(app.router, health)
    _add_operations(app, health, parts, on_backend_change, folder)
    return app


def _fleet(parts: Parts, table: Table | None) -> Fleet | None:
    """Return this process's part in the fleet that counts together; None without Redis, or where no client can get a limit."""
    limited = parts.settings.identifies_clients or has_limits(parts.settings)  # keys may get limits while it runs
    if parts.accounts.counters is None or not limited:
        return None
    gateway = secrets.token_hex(8) if table is None else table.identity
    return Fleet(parts.accounts.counters, gateway, parts.metrics)


def _new_app(parts: Parts, bodies: Bodies, table: Table | None = None, fleet: Fleet | None = None) -> web.Application:
    settings = parts.settings
    metrics = parts.metrics

    def in_force() -> Settings:
        return parts.live.current.settings

    clients = Clients(in_force, RateLimits(in_force, time.monotonic, metrics, table, fleet), parts.accounts.ledger, metrics)
    access = middleware.access_middlewares(in_force, metrics, clients)
    outermost = middleware.exchanges(
        bodies,
        middleware.AccessLog(metrics, logs_lines=settings.access_log),
        _host_check(parts),
        _origin_check(parts),
        count_defect=partial(metrics.count, DEFECTS),
        note_refusal=note_refusals(parts.responses.reports.history),
        proxies=Networks(settings.forwarded_by) if settings.forwarded_by else None,
    )
    app = web.Application(middlewares=[outermost, *access])
    if access:
        app[CLIENTS] = clients
    if settings.identifies_clients:
        app[IDENTITIES] = Identities(in_force, parts.accounts.sources)
    app.on_response_prepare.append(middleware.complete_head(parts.in_flight.ending))
    middleware.add_access_headers(app, settings)
    return app


def _bodies(parts: Parts) -> Bodies:
    settings = parts.settings
    metrics = parts.metrics
    return Bodies(
        settings.max_body_bytes,
        LARGEST_BODIES * settings.max_body_bytes,
        lambda: metrics.count(ACCESS_REFUSALS, "bodies"),
        partial(metrics.set, BODY_BYTES),
        parts.responses.preparation.known.clear,
    )


def _host_check(parts: Parts) -> HostCheck:
    settings = parts.settings
    metrics = parts.metrics
    return HostCheck(
        settings.allowed_hosts,
        has_keys=settings.identifies_clients,
        count_refusal=lambda: metrics.count(ACCESS_REFUSALS, "host"),
    )


def _origin_check(parts: Parts) -> OriginCheck | None:
    """Return what refuses foreign pages; None where keys do, which no page knows."""
    settings = parts.settings
    metrics = parts.metrics
    if settings.identifies_clients:
        return None
    origins = allowed_origins(settings)
    return OriginCheck(lambda headers: is_allowed(headers, origins), lambda: metrics.count(ACCESS_REFUSALS, "origin"))


def _add(router: PrefixedRouter, path: str, **handlers: Handler) -> None:
    """Add a path with its methods. Other methods are refused here, where the passthrough would relay them."""
    for method, handler in handlers.items():
        router.add_route(method, path, handler)
    if "GET" in handlers:
        router.add_route("HEAD", path, handlers["GET"])

    async def refuse(request: web.Request) -> web.StreamResponse:
        raise web.HTTPMethodNotAllowed(request.method, list(handlers))

    router.add_route("*", path, refuse)


async def _nothing(_request: web.Request) -> web.StreamResponse:
    raise web.HTTPNotFound


def _add_features(router: PrefixedRouter, parts: Parts) -> None:
    handlers: dict[str, dict[str, Handler]] = {}
    for route in parts.routes:
        if isinstance(route, HttpRoute) and not (route.for_operators or route.for_visitors):
            handlers.setdefault(route.path, {})[route.method] = route.handler
    for path, by_method in handlers.items():
        _add(router, path, **by_method)


def _add_stored(router: PrefixedRouter, parts: Parts) -> None:
    """Add what exists only with a store. Without one these paths lead to the backend, like all others."""
    if parts.store is None or parts.background is None:
        return
    encryption = parts.responses.preparation.encryption
    stored = StoredResponses(parts.store, parts.background, encryption, parts.live, parts.responses.reports.tracing)
    conversations = Conversations(parts.store, encryption, parts.live)
    _add(router, "/v1/responses/{id}", GET=stored.read, DELETE=stored.delete)
    _add(router, "/v1/responses/{id}/input_items", GET=stored.input_items)
    _add(router, "/v1/responses/{id}/cancel", POST=stored.cancel)
    _add(router, "/v1/conversations", POST=conversations.create)
    _add(router, "/v1/conversations/{id}", GET=conversations.read, POST=conversations.update, DELETE=conversations.delete)
    _add(router, "/v1/conversations/{id}/items", GET=conversations.items, POST=conversations.add)
    _add(router, "/v1/conversations/{id}/items/{item}", GET=conversations.item, DELETE=conversations.remove)


def _health(parts: Parts) -> Health:
    return Health(parts.pool, parts.in_flight, parts.autoconfiguration, parts.metrics, parts.settings)


def _add_probes(router: web.UrlDispatcher, health: Health) -> None:
    """Add what machines ask that send us requests: on every port."""
    router.add_get("/health", health.health)
    router.add_get("/ready", health.ready)


def _add_operations(
    app: web.Application, health: Health, parts: Parts, on_backend_change: OnChange | None, folder: Path | None
) -> None:
    """Add what operators alone need."""
    router = app.router
    router.add_get("/metrics", health.metrics)
    recent = parts.responses.reports.history  # None where the settings say that there is no window
    view = None if recent is None else WorkerView(parts.responses, recent, parts.autoconfiguration)
    workers = Workers(view, folder, {USAGE: partial(usage_rows, parts.accounts.usage), **parts.questions})
    app[ASK_ALL] = workers.ask_all
    app.cleanup_ctx.append(lambda _app: workers.answering())
    sums_of = partial(usage_sums, parts.accounts.usage, workers.ask_all)
    if view is not None:
        _add_window(app, parts, workers, sums_of)
    if parts.settings.admin_key is None:
        return
    admin = Admin(parts.pool, parts.live, on_backend_change or (lambda _done, _name, _fields: None))
    routes = [
        HttpRoute("GET", "/admin/usage", partial(export_usage, sums_of, parts.responses.reports.divisions)),
        HttpRoute("GET", "/admin/backends", admin.list_backends),
        HttpRoute("POST", "/admin/backends", admin.add),
        HttpRoute("GET", "/admin/backends/{name}", admin.show),
        HttpRoute("DELETE", "/admin/backends/{name}", admin.remove),
        HttpRoute("POST", "/admin/backends/{name}/drain", admin.drain),
        HttpRoute("POST", "/admin/backends/{name}/resume", admin.resume),
        *(route for route in parts.routes if isinstance(route, HttpRoute) and route.for_operators),
    ]
    for route in routes:
        router.add_route(route.method, route.path, for_admin(parts.settings, route.handler))


def _add_window(app: web.Application, parts: Parts, workers: Workers, sums_of: SumsOf) -> None:
    """Add the page that shows every stream."""
    access = WindowAccess(parts.settings, on_operations_port=parts.settings.operations_port is not None)

    async def quotas() -> list[dict[str, Any]]:
        return await standings(parts.live.current.settings, parts.accounts.ledger)

    Window(workers, access, parts.in_flight, sums_of, quotas).add_to(app)
    for route in parts.routes:
        if isinstance(route, HttpRoute) and route.for_visitors:
            app.router.add_route(route.method, route.path, access.allowing(Permission.METADATA, route.handler))
