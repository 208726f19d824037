"""The gateway as an aiohttp application: which path leads where."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web

from proxy.server.access import middleware as admission
from proxy.server.access.counter_table import Table
from proxy.server.generation.gateway import GATEWAY, Gateway
from proxy.server.http.errors import REQUEST_ID, errors_as_json, name_answer
from proxy.server.resources import (
    admin,
    compact,
    conversations,
    input_tokens,
    models,
    responses,
    websocket,
)
from proxy.server.resources import health as operations
from proxy.server.resources import passthrough as relay
from proxy.server.resources import stored_responses as stored
from proxy.server.resources.codex_catalog import load_model_table
from proxy.settings import Settings


def create_app(settings: Settings, table: Table | None = None, number: int = 0) -> web.Application:
    """An application for `aiohttp.web.AppRunner`. Run it with `handler_cancellation=True`: that frees the backend at once
    when a client leaves. `table`: where several workers count what clients had; `number`: of this process among them."""
    gateway = Gateway(settings, number)
    middlewares = [errors_as_json, *admission.admission(settings, gateway.metrics, table)]
    app = web.Application(middlewares=middlewares, client_max_size=settings.max_body_bytes)
    app[GATEWAY] = gateway
    app[models.MODELS] = models.Models(load_model_table(settings.model_table))
    app.cleanup_ctx.append(input_tokens.load_tokenizer)
    app.cleanup_ctx.append(_run_gateway)
    app.on_response_prepare.append(_complete_head)
    admission.add_signals(app, settings)
    app[websocket.SOCKETS] = set()
    app.on_shutdown.append(websocket.close_all)
    app.router.add_post("/v1/responses", responses.create)
    app.router.add_get("/v1/responses", responses.upgrade)
    app.router.add_route("*", "/v1/responses", responses.refuse_method)
    app.router.add_post("/v1/responses/input_tokens", input_tokens.count)
    app.router.add_route("*", "/v1/responses/input_tokens", input_tokens.refuse_method)
    app.router.add_get("/v1/models", models.list_models)
    app.router.add_get("/v1/models/{id:.+}", models.retrieve_model)
    app.router.add_post("/v1/responses/compact", compact.compact)
    app.router.add_route("*", "/v1/responses/compact", compact.refuse_method)
    if settings.store != "none":
        _add_state(app.router)
    operations.add_probes(app.router)
    if settings.operations_port is None:
        _add_operations(app.router, settings)
    if settings.relay:
        app.router.add_route("*", "/v1/{path:.+}", relay.relay)
        for path in ("/tokenize", "/detokenize"):
            app.router.add_post(path, relay.relay_unversioned)
    return app


def create_operations_app(gateway: Gateway) -> web.Application:
    """What `operations_port` serves, for a gateway that another application runs."""
    app = web.Application(middlewares=[errors_as_json, *admission.admission(gateway.settings, gateway.metrics)])
    app[GATEWAY] = gateway
    app.on_response_prepare.append(_complete_head)
    operations.add_probes(app.router)
    _add_operations(app.router, gateway.settings)
    return app


def _add_operations(router: web.UrlDispatcher, settings: Settings) -> None:
    """What operators alone need to see and to do."""
    operations.add_operations(router)
    if settings.admin_key is not None:
        admin.add_routes(router)


def _add_state(router: web.UrlDispatcher) -> None:
    """What there is only with a store. Without one these paths lead to the backend, like all others."""
    router.add_get("/v1/responses/{id}", stored.read)
    router.add_delete("/v1/responses/{id}", stored.delete)
    router.add_get("/v1/responses/{id}/input_items", stored.input_items)
    router.add_post("/v1/conversations", conversations.create)
    router.add_get("/v1/conversations/{id}", conversations.read)
    router.add_post("/v1/conversations/{id}", conversations.update)
    router.add_delete("/v1/conversations/{id}", conversations.delete)
    router.add_get("/v1/conversations/{id}/items", conversations.items)
    router.add_post("/v1/conversations/{id}/items", conversations.add)
    router.add_get("/v1/conversations/{id}/items/{item}", conversations.item)
    router.add_delete("/v1/conversations/{id}/items/{item}", conversations.remove)
    router.add_post("/v1/responses/{id}/cancel", stored.cancel)
    for path in ("/v1/responses/{id}", "/v1/responses/{id}/input_items", "/v1/responses/{id}/cancel"):
        router.add_route("*", path, stored.refuse_method)
    for path in conversations.METHODS:
        router.add_route("*", path, conversations.refuse_method)


async def _complete_head(request: web.Request, response: web.StreamResponse) -> None:
    """Name the answer. A client of a process that is to end goes on over a new connection, with another process."""
    name_answer(response, request.get(REQUEST_ID))
    if request.app[GATEWAY].closing and response.status != 101:
        response.force_close()
        response.headers["Connection"] = "close"


async def _run_gateway(app: web.Application) -> AsyncIterator[None]:
    await app[GATEWAY].start()
    yield
    await app[GATEWAY].close()
