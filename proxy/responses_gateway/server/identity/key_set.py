"""The keys of an issuer (JWKS): found by discovery, fetched without blocking, kept while the issuer is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
import jwt
import msgspec

from responses_gateway.bounded_body import read_at_most
from responses_gateway.ended_tasks import end_tasks
from responses_gateway.telemetry import logs
from responses_gateway.wire.hosts.addresses import is_loopback

DISCOVERY = "/.well-known/openid-configuration"
# Seconds for which keys are kept before they are fetched again, and between two attempts for keys that are not known.
FRESH = 600.0
PAUSE = 10.0
_TIMEOUT = 5.0
# Bytes of an answer, and keys in a set.
_LONGEST = 512 * 1024
_MOST_KEYS = 100
# Bits of an RSA key.
_SHORTEST_RSA = 2048
_ALGORITHMS: dict[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}


class KeysUnavailable(Exception):
    """The keys of the issuer were never read. The message is for operators."""


class KeySet:
    """The public keys with which an issuer signs now."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._keys: dict[tuple[str, str], jwt.PyJWK] = {}  # by id and algorithm
        self._fetched = float("-inf")
        self._tried = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        self._failed = False  # the last attempt

    async def close(self) -> None:
        """Stop fetching."""
        await end_tasks(self._fetching)

    async def find(self, key_id: str | None, algorithm: str) -> jwt.PyJWK | None:
        """Return the key of an id, or the only one for the algorithm if a token names none. Keys that are not known are looked
        for at most every ten seconds, whoever asks. Raise `KeysUnavailable`."""
        now = time.monotonic()
        key = self._known(key_id, algorithm)
        if key is None and now - self._tried >= PAUSE:
            self._fetch(now)
        elif now - self._fetched >= FRESH and now - self._tried >= PAUSE:
            self._fetch(now)  # meanwhile the old keys hold
        if key is None and self._fetching is not None:
            await asyncio.wait({self._fetching})
            key = self._known(key_id, algorithm)
        if key is None and not self._keys:
            raise KeysUnavailable("the keys of the issuer could not be read yet")
        return key

    def _known(self, key_id: str | None, algorithm: str) -> jwt.PyJWK | None:
        if key_id is not None:
            return self._keys.get((key_id, algorithm))
        fitting = [key for (_, name), key in self._keys.items() if name == algorithm]
        return fitting[0] if len(fitting) == 1 else None

    def _fetch(self, now: float) -> None:
        if self._fetching is None:
            self._tried = now
            self._fetching = asyncio.create_task(self._refresh())

    async def _refresh(self) -> None:
        try:
            timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
            async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
                described = await _read(session, self._issuer.rstrip("/") + DISCOVERY)
                if described.get("issuer") != self._issuer:
                    named = str(described.get("issuer"))[:200]
                    raise ValueError(
                        f"the issuer calls itself {named}: the issuer of jwt has to be the same, to the last slash"
                    )
                keys = usable_keys(await _read(session, checked_url(described.get("jwks_uri"))))
            if not keys:
                raise ValueError("there is no usable key in the set")
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, RecursionError) as error:
            if not self._failed:
                fields = logs.fields(issuer=self._issuer, reason=type(error).__name__, error=str(error)[:200] or None)
                logs.logger().warning("keys of the issuer not read", extra=fields)
            self._failed = True
        else:
            self._keys = keys
            self._fetched = time.monotonic()
            self._failed = False
        finally:
            self._fetching = None


def checked_url(url: object) -> str:
    """Return a URL with which keys may be fetched: over TLS, or on this machine. Raise `ValueError`."""
    if isinstance(url, str):
        scheme, _, rest = url.partition("://")
        host = rest.partition("/")[0].rpartition(":")[0].strip("[]")
        if scheme == "https" or (scheme == "http" and (host == "localhost" or is_loopback(host))):
            return url
    raise ValueError("the keys of an issuer are fetched over https")


def usable_keys(key_set: Mapping[str, Any]) -> dict[tuple[str, str], jwt.PyJWK]:
    """Return the public keys of a set that verify signatures, by id and algorithm. Symmetric and short ones are none."""
    usable: dict[tuple[str, str], jwt.PyJWK] = {}
    listed = key_set.get("keys")
    for number, key in enumerate(listed[:_MOST_KEYS] if isinstance(listed, list) else ()):
        if not isinstance(key, dict) or key.get("use", "sig") != "sig":
            continue
        for algorithm in _ALGORITHMS.get(str(key.get("kty")), ()):
            if key.get("alg", algorithm) != algorithm:
                continue
            try:
                read = jwt.PyJWK({**key, "alg": algorithm})
            except (jwt.PyJWTError, ValueError, TypeError, KeyError):
                continue
            if getattr(read.key, "key_size", _SHORTEST_RSA) >= _SHORTEST_RSA or key["kty"] != "RSA":
                usable[str(key.get("kid", f"\0{number}")), algorithm] = read
    return usable


async def _read(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """Return the JSON object at a URL. Raise `ValueError`, `OSError` and the errors of aiohttp."""
    async with session.get(url, allow_redirects=False, headers={"Accept-Encoding": "identity"}) as answer:
        if answer.status != 200:
            raise ValueError(f"status {answer.status}")
        data = await read_at_most(answer.content, _LONGEST + 1)
    if len(data) > _LONGEST:
        raise ValueError("the answer is too long")
    value = msgspec.json.decode(data)
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    return value
