"""`/admin/keys`: keys of clients, to be made, listed and revoked while the gateway runs, for those who have the admin key.

A key is shown once, to whoever has it made; the store has its hash. All workers have taken a change before it is answered."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from aiohttp import web
from pydantic import ValidationError

from responses_gateway.server.access.middleware import invalid_field
from responses_gateway.server.features.client_keys.stored_keys import StoredKeys
from responses_gateway.server.generation.preparation.live_settings import LiveSettings
from responses_gateway.server.http.exchange import read_json_body
from responses_gateway.server.http.routes import ASK_ALL
from responses_gateway.settings import ApiKey, Settings
from responses_gateway.settings.access import unreachable_limits
from responses_gateway.settings.keys import NAME_RULE, hash_of, is_key_name, new_key
from responses_gateway.state import StoreUnavailable
from responses_gateway.state.client_keys import MOST_KEYS
from responses_gateway.telemetry import logs
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.requests import read_object

# The question to each worker: to read the keys of the store.
READ_KEYS = "read_client_keys"
# In bytes: each process has all keys in memory.
_LONGEST = 8 * 1024
_NO_STORE = "Keys that are made at run time are kept in the store, and this gateway has none (`store: none`)."
_OPEN = (
    "The settings of this gateway have no keys, so everybody may use it. A first key would lock everybody else out: add it to "
    "`api_keys` of the settings (`responses-gateway key add --config FILE` does), and start the gateway again."
)
_UNKNOWN = "another version of the gateway made it, and this one does not know all of its fields"


class AdminKeys:
    """Serves the paths. `settings` are those at the start; `stored` is None without a store."""

    def __init__(self, settings: Settings, live: LiveSettings, stored: StoredKeys | None) -> None:
        self._settings = settings
        self._live = live
        self._stored = stored

    async def list_all(self, _request: web.Request) -> web.Response:
        """Answer `GET` with all keys: those of the settings, and those made here. Raise `ApiError`, `StoreUnavailable`."""
        entries = [self._shown(name, _details(key), "settings") for name, key in self._live.given.api_keys.items()]
        if self._stored is not None:
            await self._stored.read()
            for row in self._stored.rows:
                entry = self._shown(row.name, msgspec.json.decode(row.details), "admin", row.created_at)
                entries.append({**entry, "problem": _UNKNOWN} if self._stored.is_unknown(row) else entry)
        return web.json_response({"object": "list", "data": entries})

    async def add(self, request: web.Request) -> web.Response:
        """Answer `POST`: make a key with a `name` and the fields of `api_keys`. Raise `ApiError`, `StoreUnavailable`."""
        stored = self._require_store()
        if not self._settings.identifies_clients:
            raise ApiError(409, _OPEN, code="no_keys_in_settings")
        body = await read_json_body(request)
        if len(body) > _LONGEST:
            raise ApiError(413, f"The description of a key may have at most {_LONGEST} bytes.", code="request_too_large")
        fields = read_object(body)
        name = fields.pop("name", None)
        if not is_key_name(name):
            raise invalid_request(f"'name': {NAME_RULE}.", "name", "invalid_value")
        secret = new_key()
        key = self._key(fields, hash_of(secret))
        if name in self._live.given.api_keys:
            raise _taken(f"The settings have a key named `{name}` already.")
        outcome = await stored.table.add(name, hash_of(secret), msgspec.json.encode(_details(key)).decode())
        if outcome == "exists":
            raise _taken(f"There is a key named `{name}` already.")
        if outcome == "full":
            raise ApiError(409, f"There are {MOST_KEYS} keys already. Revoke some that nobody uses.", code="too_many_keys")
        logs.logger().info("client key added", extra=logs.fields(key=name))
        with suppress(StoreUnavailable):  # the key is there, and nobody could be told it later; it is read again soon
            await request.app[ASK_ALL](READ_KEYS)
        created_at = next((row.created_at for row in stored.rows if row.name == name), None)
        answer = {**self._shown(name, _details(key), "admin", created_at), "key": secret}
        return web.json_response(answer, status=201, headers={"Cache-Control": "no-store"})

    async def revoke(self, request: web.Request) -> web.Response:
        """Answer `DELETE`: a key that was made here opens nothing from now on. Raise `ApiError`, `StoreUnavailable`."""
        name = request.match_info["name"]
        if self._stored is not None and is_key_name(name) and await self._stored.table.remove(name):
            logs.logger().info("client key revoked", extra=logs.fields(key=name))
            await request.app[ASK_ALL](READ_KEYS)
            return web.json_response({"object": "api_key", "name": name, "deleted": True})
        if name in self._live.given.api_keys:
            message = f"The key `{name}` stands in the settings: remove it there, and `responses-gateway reload`."
            raise ApiError(409, message, param="name", code="key_of_settings")
        raise ApiError(404, f"There is no key named `{name[:100]}`.", param="name", code="not_found")

    def _require_store(self) -> StoredKeys:
        if self._stored is None:
            raise ApiError(409, _NO_STORE, code="no_store")
        return self._stored

    def _key(self, fields: dict[str, Any], hashed: str) -> ApiKey:
        """Return the key that the fields describe. Raise `ApiError` 400."""
        if "hash" in fields:
            raise invalid_request("'hash': the gateway makes the key itself.", "hash", "invalid_value")
        try:
            key = ApiKey.model_validate({**fields, "hash": hashed})
        except ValidationError as error:
            raise invalid_field(error, ApiKey.model_fields) from None
        if key.team is not None and key.team not in self._live.given.teams:
            raise invalid_request(f"'team': the settings have no team `{key.team[:100]}`.", "team", "invalid_value")
        for field, problem in unreachable_limits(key):
            raise invalid_request(f"'{field}': {problem}.", field, "invalid_value")
        return key

    def _shown(self, name: str, details: dict[str, Any], source: str, created_at: float | None = None) -> dict[str, Any]:
        team = details.get("team")
        is_lost = team is not None and team not in self._live.given.teams
        return {
            "object": "api_key",
            "name": name,
            "source": source,
            "created_at": None if created_at is None else int(created_at),
            "problem": "its team is not in the settings" if is_lost else None,
            **details,
        }


def _details(key: ApiKey) -> dict[str, Any]:
    """Return what is known of a key but its hash."""
    return key.model_dump(mode="json", exclude={"hash"}, exclude_none=True)


def _taken(message: str) -> ApiError:
    return ApiError(409, message, param="name", code="already_exists")
