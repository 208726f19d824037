"""Who a request comes from: an API key of the settings, a trusted proxy's word, or a token of an issuer."""

from __future__ import annotations

from aiohttp import web

from responses_gateway.request.rollout_names import rollout_name
from responses_gateway.server.access.api_keys import InForce, Keys, require_key
from responses_gateway.server.http.exchange import EXCHANGE, Exchange
from responses_gateway.server.identity.claimed import Claimed, NotIdentified
from responses_gateway.server.identity.sources import Sources
from responses_gateway.settings.keys import given_key
from responses_gateway.wire.errors import ApiError

_TRY_AGAIN = 5.0  # seconds after which clients may try again while the issuer's keys are not known


class Identities:
    """Identifies the clients of an application."""

    def __init__(self, in_force: InForce, sources: Sources) -> None:
        """`sources` are those beside the keys of the settings."""
        self._in_force = in_force
        self._keys = Keys(in_force)
        self._sources = sources

    async def identify(self, request: web.Request) -> None:
        """Note who a request comes from. Raise `ApiError` 401, or 503 where that cannot be found out now."""
        exchange = request[EXCHANGE]
        exchange.client = await self._name_of(request, exchange)

    async def _name_of(self, request: web.Request, exchange: Exchange) -> str:
        key = given_key(request.headers)
        name = self._keys.name_of(key)
        rollout: str | None = None
        if name is None and ":" in key:  # as a key of the settings may have it, too, it is looked up as it is first
            key, _, rollout = key.rpartition(":")
            name = self._keys.name_of(key)
        identity = None
        if name is None:
            identity = await self._from_elsewhere(request, key)
            if identity is None:
                return require_key(self._keys, request.headers)
        if rollout is not None:
            exchange.rollout = rollout_name(rollout)
        if identity is None:
            assert name is not None
            return name
        teams = self._in_force().teams
        exchange.team = next((group for group in identity.groups if group in teams), None)
        return identity.name

    async def _from_elsewhere(self, request: web.Request, key: str) -> Claimed | None:
        proxy = self._sources.proxy
        tokens = self._sources.tokens
        try:
            identity = proxy.identify(request) if proxy is not None else None
            if identity is None and tokens is not None and key.count(".") == 2:
                identity = await tokens.identify(key)
        except NotIdentified as error:
            raise ApiError(401, f"You could not be identified by what you sent: {error}.", code="invalid_token") from None
        except self._sources.unavailable:
            message = "The keys of the identity provider cannot be reached. Please try again."
            raise ApiError(503, message, type="server_error", code="server_error", retry_after=_TRY_AGAIN) from None
        return identity


# Absent where clients need not say who they are.
IDENTITIES: web.AppKey[Identities] = web.AppKey("identities", Identities)
