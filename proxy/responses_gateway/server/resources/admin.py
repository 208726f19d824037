"""`/admin/backends`: the backends, to be listed, drained, added and removed while the gateway runs.

All of it needs the setting `admin_key` as a bearer token; without the setting there are no such paths. What is changed here
lasts until the gateway ends, or reads its settings again. With several workers all follow; the list shows the backends as the
worker sees them that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web
from pydantic import ValidationError

from responses_gateway.backend.member import Member, described
from responses_gateway.backend.pool import Pool
from responses_gateway.server.access.middleware import invalid_field
from responses_gateway.server.generation.preparation.live_settings import LiveSettings
from responses_gateway.server.http.exchange import read_json_body
from responses_gateway.server.setup.backend_specs import name_of, spec_of
from responses_gateway.settings import BackendDetails, check_backend_name
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.requests import read_object

_LONGEST = 32 * 1024  # in bytes: other workers get it in one line of their link, which is short

# Called after a change: what was done ("added", "removed", "drained", "resumed"), to which backend, with which fields.
OnChange = Callable[[str, str, dict[str, Any]], None]


class Admin:
    """Serves the paths. `live` has the settings in force."""

    def __init__(self, pool: Pool, live: LiveSettings, on_change: OnChange) -> None:
        self._pool = pool
        self._live = live
        self._on_change = on_change

    async def list_backends(self, _request: web.Request) -> web.Response:
        """Answer `GET` with every backend and how it is; those that are leaving, too."""
        members = self._pool.members
        backends = [self._shown(member) for member in [*members.by_name.values(), *members.leaving]]
        now = asyncio.get_running_loop().time()
        pools = [
            {"name": pool.name, "source": pool.source, "problem": pool.problem or None, "seconds": pool.stale_for(now)}
            for pool in members.pools.values()
        ]
        return web.json_response({"object": "list", "data": backends, "queued": self._pool.places.queued, "pools": pools})

    async def show(self, request: web.Request) -> web.Response:
        """Answer `GET` with one backend."""
        return web.json_response(self._shown(self._pool.members.find(request.match_info["name"])))

    async def add(self, request: web.Request) -> web.Response:
        """Answer `POST`: add a backend with the fields of `backends` in the settings, and `name` (host:port by default)."""
        body = await read_json_body(request)
        if len(body) > _LONGEST:
            raise ApiError(413, f"The description of a backend may have at most {_LONGEST} bytes.", code="request_too_large")
        fields = read_object(body)
        name = fields.pop("name", None)
        try:
            details = BackendDetails.model_validate(fields)
            name = check_backend_name(name_of(details.url) if name is None else name)
        except ValidationError as error:
            raise invalid_field(error, BackendDetails.model_fields) from None
        except ValueError as error:
            raise invalid_request(str(error), "name", "invalid_value") from None
        member = self._pool.members.add(spec_of(name, details, self._live.given, "admin"))
        self._on_change("added", name, fields)
        return web.json_response(self._shown(member), status=201)

    async def remove(self, request: web.Request) -> web.Response:
        """Answer `DELETE`: send no new requests to a backend, and remove it once those under way have ended."""
        member = self._pool.members.remove(request.match_info["name"])
        self._on_change("removed", member.name, {})
        return web.json_response(self._shown(member))

    async def drain(self, request: web.Request) -> web.Response:
        """Answer `POST`: send no new requests to a backend; it stays."""
        return self._drained(request, draining=True)

    async def resume(self, request: web.Request) -> web.Response:
        """Answer `POST`: send new requests to a backend again."""
        return self._drained(request, draining=False)

    def _drained(self, request: web.Request, *, draining: bool) -> web.Response:
        member = self._pool.members.drain(request.match_info["name"], draining)
        self._on_change("drained" if draining else "resumed", member.name, {})
        return web.json_response(self._shown(member))

    def _shown(self, member: Member) -> dict[str, Any]:
        now = self._pool.members.clock()
        leaving = member in self._pool.members.leaving
        return {"object": "backend", **described(member, now), "router": member.router, "leaving": leaving}
