"""An issuer of tokens (OpenID Connect) on this machine, whose keys can be changed, and which can be away."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

AUDIENCE = "gateway"
RSA = rsa.generate_private_key(65537, 2048)


class Issuer:
    """Signs tokens, and publishes `keys`: private keys by id, with their algorithms."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: dict[str, tuple[Any, str]] = {"one": (RSA, "RS256")}
        self.published: list[dict[str, Any]] | None = None  # in place of the public parts of `keys`
        self.away = False
        self.asked = 0

    def token(self, key_id: str | None = "one", *, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a token with these claims beside the usual ones; None leaves one out."""
        key, algorithm = self.keys[key_id or "one"]
        now = int(time.time())
        given = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "exp": now + 300, **claims}
        head = {"kid": key_id} if key_id is not None else {}
        payload = {name: value for name, value in given.items() if value is not None}
        return jwt.encode(payload, key, algorithm, headers={**head, **(headers or {})})

    def jwks(self) -> list[dict[str, Any]]:
        """Return the public keys."""
        algorithms = get_default_algorithms()
        found = []
        for key_id, (key, algorithm) in self.keys.items():
            public: Any = algorithms[algorithm].to_jwk(key.public_key(), as_dict=True)  # type: ignore[call-overload]
            found.append({**public, "kid": key_id, "use": "sig"})
        return found

    async def describe(self, _request: web.Request) -> web.Response:
        if self.away:
            raise web.HTTPBadGateway
        return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/keys"})

    async def list_keys(self, _request: web.Request) -> web.Response:
        self.asked += 1
        return web.json_response({"keys": self.jwks() if self.published is None else self.published})


@asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    """Serve an issuer."""
    issuer = Issuer()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", issuer.describe)
    app.router.add_get("/keys", issuer.list_keys)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield issuer
    finally:
        await runner.cleanup()


def other_keys() -> dict[str, tuple[Any, str]]:
    """Return keys of other types."""
    return {"ec": (ec.generate_private_key(ec.SECP256R1()), "ES256"), "ed": (ed25519.Ed25519PrivateKey.generate(), "EdDSA")}
