"""Keys that operators make and revoke while the gateway runs, beside those of the settings."""

from __future__ import annotations

from contextlib import AsyncExitStack

from responses_gateway.server.features.client_keys.admin_keys import READ_KEYS, AdminKeys
from responses_gateway.server.features.client_keys.stored_keys import StoredKeys
from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.http.routes import HttpRoute
from responses_gateway.settings import SettingsError
from responses_gateway.state.client_keys import ClientKeyTable
from responses_gateway.telemetry.instruments import Gauge

ADMIN_KEYS = Gauge("admin_keys", "API keys of clients that were made with `/admin/keys`.", together="livemax")
# Open by mistake is worse than not started: somebody may have moved the last key of the settings to the store.
_OPENED = (
    "the store has keys of clients, which were made with /admin/keys, but the settings have none, so that everybody could use "
    "this gateway: keep a key in api_keys, or choose another store"
)


async def _open(core: Core, stack: AsyncExitStack) -> Opened | None:
    settings = core.settings
    if settings.admin_key is None:  # nobody could see or revoke the keys of the store: they open nothing
        return None
    stored = await _stored_keys(core, stack)
    keys = AdminKeys(settings, core.responses.live, stored)
    return Opened(
        routes=[
            HttpRoute("GET", "/admin/keys", keys.list_all, for_operators=True),
            HttpRoute("POST", "/admin/keys", keys.add, for_operators=True),
            HttpRoute("DELETE", "/admin/keys/{name}", keys.revoke, for_operators=True),
        ],
        questions={} if stored is None else {READ_KEYS: stored.read},
    )


async def _stored_keys(core: Core, stack: AsyncExitStack) -> StoredKeys | None:
    store = core.responses.store
    if store is None:
        return None
    metrics = core.metrics
    stored = StoredKeys(ClientKeyTable(store.database), core.responses.live)
    await stored.read()
    if stored.rows and not core.settings.identifies_clients:
        raise SettingsError(_OPENED)
    stored.follow(metrics.report)
    stack.push_async_callback(stored.close)
    metrics.samplers.append(lambda: metrics.set(ADMIN_KEYS, len(stored.rows)))
    return stored


CLIENT_KEYS = Feature("client_keys", None, _open, (ADMIN_KEYS,))
