"""Who is asking: the API keys of the settings.

Nothing of this file runs while there are none. With keys, every path needs one but those that tell machines how the gateway
is; and the keys are for the gateway alone: no backend ever gets to see one.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping

from aiohttp import web

from proxy.settings import ApiKey, Settings
from proxy.wire.errors import ApiError

#: The name of the key with which a request came; absent where the settings have no keys.
KEY_NAME: web.RequestKey[str] = web.RequestKey("key_name", str)
#: Headers in which clients send a key. `Authorization` has `Bearer` before it.
KEY_HEADERS = ("Authorization", "X-Api-Key", "Api-Key")

_MISSING = (
    "You didn't provide an API key. Send the key that you got for this gateway in the header 'Authorization: Bearer YOUR_KEY'."
)
_WRONG = "Incorrect API key provided. Use the key that you got for this gateway."


class Keys:
    """The keys of the settings, by what they hash to.

    How long a look-up takes tells nothing about any key: it goes by a digest under a secret that is made at each start.
    """

    def __init__(self, keys: Mapping[str, ApiKey]) -> None:
        self._secret = secrets.token_bytes(32)
        self._names = {
            self._mark(bytes.fromhex(hashed.get_secret_value().removeprefix("sha256:"))): name
            for name, key in keys.items()
            for hashed in key.hash
        }

    def name_of(self, key: str) -> str | None:
        """The name of a key; None for one that is not known, which takes as long to find out."""
        return self._names.get(self._mark(hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()))

    def _mark(self, digest: bytes) -> bytes:
        return hashlib.blake2b(digest, key=self._secret, digest_size=32).digest()


def given_key(headers: Mapping[str, str]) -> str:
    """The key in a request's headers, empty if there is none."""
    scheme, _, token = headers.get("Authorization", "").strip().partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("X-Api-Key") or headers.get("Api-Key") or ""


def require_key(keys: Keys, headers: Mapping[str, str]) -> str:
    """The name of the key in the headers. Raises `ApiError` 401."""
    key = given_key(headers)
    name = keys.name_of(key)
    if name is None:
        raise ApiError(401, _WRONG if key else _MISSING, code="invalid_api_key")
    return name


def forwards_authorization(settings: Settings) -> bool:
    """Whether a client's own `Authorization` goes on to the backend: never if it is a key for the gateway."""
    return settings.forward_authorization and not settings.api_keys
