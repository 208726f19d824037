"""Access control: the API keys of the settings, the admin key, the tenant of a request and the models that it may use, and what
handlers require.

With keys in the settings every path needs one, except those for health checks. The keys are for the gateway
alone, and never sent to a backend."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from enum import Flag, auto
from functools import lru_cache
from typing import TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler
from multidict import CIMultiDict
from pydantic import SecretStr

from responses_gateway.request.rollout_names import ROLLOUT_HEADER, divided
from responses_gateway.server.http.exchange import EXCHANGE, Exchange
from responses_gateway.server.protocols.interface import Allows
from responses_gateway.settings import ApiKey, Settings
from responses_gateway.settings.keys import KEY_HEADERS, given_key
from responses_gateway.wire.errors import ApiError, unknown_model

_H = TypeVar("_H", bound=Callable[..., object])
_NEEDS = "access_needs"
# Returns the settings in force.
InForce = Callable[[], Settings]

_MISSING = (
    "You didn't provide an API key. Send the key that you were given for this gateway in the header "
    "'Authorization: Bearer YOUR_KEY'."
)
_WRONG = "Incorrect API key provided. Use the key that you were given for this gateway."


class Needs(Flag):
    """What a request needs before its handler runs. Handlers that declare nothing need a key."""

    NOTHING = 0
    KEY = auto()
    KEY_IF_METRICS_DO = auto()  # unless the settings leave metrics open
    RESERVATION = auto()  # it makes the backend work


def needs(what: Needs) -> Callable[[_H], _H]:
    """Declare what requests for a handler need."""

    def declare(handler: _H) -> _H:
        setattr(handler, _NEEDS, what)
        return handler

    return declare


def needs_of(handler: object) -> Needs:
    """Return what a handler has declared."""
    needs: Needs = getattr(handler, _NEEDS, Needs.KEY)
    return needs


class Keys:
    """The keys of the settings, by their hashes.

    The duration of a look-up reveals nothing about any key: it uses a digest under a secret that is made at each start."""

    def __init__(self, in_force: InForce) -> None:
        """`in_force` returns the settings, which may change: a key that is gone opens nothing from then on."""
        self._in_force = in_force
        self._secret = secrets.token_bytes(32)
        self._read: Mapping[str, ApiKey] = {}
        self._names: dict[bytes, str] = {}

    def name_of(self, key: str) -> str | None:
        """Return the name of a key; None for an unknown one, in the same time."""
        keys = self._in_force().api_keys
        if keys is not self._read:
            self._read = keys
            self._names = {
                self._digest(bytes.fromhex(hashed.get_secret_value().removeprefix("sha256:"))): name
                for name, entry in keys.items()
                for hashed in entry.hash
            }
        return self._names.get(self._digest(hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()))

    def _digest(self, digest: bytes) -> bytes:
        return hashlib.blake2b(digest, key=self._secret, digest_size=32).digest()


def require_key(keys: Keys, headers: Mapping[str, str]) -> str:
    """Return the name of the key in the headers. Raise `ApiError` 401."""
    key = given_key(headers)
    name = keys.name_of(key)
    if name is None:
        # Final: Claude Code would try a wrong key ten times.
        raise ApiError(401, _WRONG if key else _MISSING, code="invalid_api_key", final=True)
    return name


def require_admin_key(settings: Settings, headers: Mapping[str, str]) -> None:
    """Raise `ApiError` 401 unless the headers have the admin key, with which operators change the gateway and see contents."""
    scheme, _, credential = headers.get("Authorization", "").partition(" ")
    wanted = (settings.admin_key or SecretStr("")).get_secret_value().encode()
    right = hmac.compare_digest(credential.strip().encode("utf-8", "surrogateescape"), wanted)
    if not wanted or scheme.lower() != "bearer" or not right:
        message = "This needs the gateway's admin key: send it as `Authorization: Bearer …`."
        raise ApiError(401, message, type="authentication_error", code="invalid_api_key")


def for_admin(settings: Settings, handler: Handler) -> Handler:
    """Return a handler that answers those who have the admin key."""

    @needs(Needs.NOTHING)
    async def answer(request: web.Request) -> web.StreamResponse:
        require_admin_key(settings, request.headers)
        return await handler(request)

    return answer


def team_of(exchange: Exchange, settings: Settings) -> str | None:
    """Return the team of a client that has a name; None if it belongs to none."""
    key = settings.api_keys.get(exchange.client or "")
    team = key.team if key is not None else exchange.team
    return team if team in settings.teams else None


def tenant_of(request: web.Request) -> str:
    """Return the tenant of a request: what one tenant stored, another cannot see.

    With keys in the settings it is the name of the key, so that a key that replaces another one has access to the same
    resources. Without, it is a digest of `Authorization`, or of what that would be with the key of another header, whatever
    rollout is named behind the key; all requests without a key are one tenant."""
    return named(request[EXCHANGE], request.headers)[0]


def tenant(client: str | None, authorization: str) -> str:
    """Return the tenant of a client with this name, or else with this key of its own."""
    if client is not None:
        return f"key:{client}"  # the colon keeps it apart from the digests below
    if authorization == "Bearer ":
        return ""
    return hashlib.sha256(authorization.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _own_key(client: str | None, headers: Mapping[str, str]) -> tuple[str, str | None]:
    """Return `Authorization`, or what that would be with the key of another header, without the rollout that is named behind
    the key, and this rollout; nothing for a client with a name, whose key is the gateway's. Raise `ApiError` 400."""
    if client is not None:
        return "", None
    header = headers.get("Authorization")
    authorization = header.strip() if header else f"Bearer {headers.get('X-Api-Key') or headers.get('Api-Key') or ''}"
    if ":" not in authorization or authorization[:7].lower() != "bearer ":
        return authorization, None
    return divided(authorization)


def named(exchange: Exchange, headers: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """Return the tenant of a client, and its headers with the rollout that its key or the path names, and the bare key. Raise
    `ApiError` 400."""
    bare, of_key = _own_key(exchange.client, headers)
    rollout = of_key or exchange.rollout
    if rollout is not None:
        headers = CIMultiDict(headers)
        headers[ROLLOUT_HEADER] = rollout
        if of_key is not None:
            name = next(name for name in KEY_HEADERS if headers.get(name))
            headers[name] = bare if name == "Authorization" else bare.removeprefix("Bearer ")
    return tenant(exchange.client, bare), headers


def allowed_models(exchange: Exchange, settings: Settings) -> Allows | None:
    """Return what tells the models that a client may use; None if it may use all."""
    if exchange.client is None:
        return None
    team = team_of(exchange, settings)
    entries = (settings.api_keys.get(exchange.client), settings.teams[team] if team is not None else None)
    lists = tuple(entry.models for entry in entries if entry is not None and entry.models is not None)
    return _matcher(lists) if lists else None


def check_model(allows: Allows | None, model: str) -> None:
    """Raise `ApiError` 404 for a model that the client may not use: the same answer as for one that nobody serves."""
    if allows is not None and not allows(model):
        raise unknown_model(model)


@lru_cache(maxsize=1024)
def _matcher(lists: tuple[tuple[str, ...], ...]) -> Allows:
    patterns = [re.compile("|".join(map(_pattern, names)), re.DOTALL) for names in lists]
    return lambda model: all(pattern.fullmatch(model) for pattern in patterns)


def _pattern(name: str) -> str:
    return ".*".join(map(re.escape, name.split("*")))
