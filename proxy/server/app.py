"""The gateway as an aiohttp application: which path leads where."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web

from proxy.server import compact, conversations, input_tokens, models, operations, relay, responses, stored, websocket
from proxy.server.errors import errors_as_json, name_answer
from proxy.server.gateway import GATEWAY, Gateway
from proxy.server.model_table import load_model_table
from proxy.settings import Settings


def create_app(settings: Settings) -> web.Application:
    """An application for `aiohttp.web.AppRunner`. Run it with `handler_cancellation=True`: that frees the backend at once
    when a client leaves."""
    app = web.Application(middlewares=[errors_as_json], client_max_size=settings.max_body_bytes)
    app[GATEWAY] = Gateway(settings)
    app[models.MODELS] = models.Models(load_model_table(settings.model_table))
    app.cleanup_ctx.append(input_tokens.load_tokenizer)
    app.cleanup_ctx.append(_run_gateway)
    app.on_response_prepare.append(name_answer)
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
    app.router.add_get("/health", operations.health)
    app.router.add_get("/ready", operations.ready)
    app.router.add_get("/metrics", operations.metrics)
    app.router.add_route("*", "/v1/{path:.+}", relay.relay)
    for path in ("/tokenize", "/detokenize"):
        app.router.add_post(path, relay.relay_unversioned)
    return app


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


async def _run_gateway(app: web.Application) -> AsyncIterator[None]:
    await app[GATEWAY].start()
    yield
    await app[GATEWAY].close()
