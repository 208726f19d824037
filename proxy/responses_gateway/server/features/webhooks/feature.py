"""Endpoints of the settings are told when background responses have ended."""

from __future__ import annotations

from contextlib import AsyncExitStack

from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.features.webhooks.deliveries import WebhookDeliveries
from responses_gateway.server.features.webhooks.sender import WEBHOOK_METRICS, Webhooks
from responses_gateway.server.http.routes import HttpRoute
from responses_gateway.settings.background import WebhookSettings
from responses_gateway.state.webhooks import WebhookTable


async def _open(core: Core, stack: AsyncExitStack) -> Opened | None:
    store = core.responses.store
    if store is None:
        return None
    deliveries = WebhookDeliveries(core.settings, WebhookTable(store.database, store.running.clock))
    # Without endpoints, too, because deliveries of earlier ones may be left.
    routes = [
        HttpRoute("GET", "/admin/webhooks", deliveries.list_all, for_operators=True),
        HttpRoute("POST", "/admin/webhooks/{id}", deliveries.send_again, for_operators=True),
    ]
    if not core.settings.webhooks:
        return Opened(routes=routes)
    webhooks = Webhooks(core.settings.webhooks, store, core.metrics)
    stack.push_async_callback(webhooks.close)
    return Opened(announcements=[webhooks.announce], routes=routes)


WEBHOOKS = Feature("webhooks", WebhookSettings, _open, WEBHOOK_METRICS)
