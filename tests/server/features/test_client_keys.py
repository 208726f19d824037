"""`/admin/keys`: keys of clients that are made, listed and revoked while the gateway runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from responses_gateway.settings.keys import hash_of
from tests.server.running_gateway import Answer, Served, ask, assert_error, post, run, simulated

ADMIN = "an-administrators-key"
ALICE = "rp_alice-0123456789"
KEYS = {"alice": hash_of(ALICE)}


async def admin(served: Served, method: str, which: str = "", key: str | None = ADMIN, **fields: Any) -> Answer:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    path = f"/admin/keys/{which}" if which else "/admin/keys"
    return await ask(served, method, path, headers=headers, **({"json": fields} if fields else {}))


async def status(served: Served, key: str) -> int:
    return (await post(served, headers={"Authorization": f"Bearer {key}"})).status


async def made(served: Served, **fields: Any) -> str:
    """Have a key made, and return it."""
    answer = await admin(served, "POST", **fields)
    assert answer.status == 201
    key: str = answer.json["key"]
    return key


@asynccontextmanager
async def keyed(store: str = "memory", **settings: Any) -> AsyncIterator[Served]:
    """Serve a gateway with a key of the settings."""
    async with simulated(**{"admin_key": ADMIN, "api_keys": KEYS, "store": store, **settings}) as served:
        yield served


def test_a_key_is_made_opens_the_gateway_and_is_revoked() -> None:
    async def test() -> None:
        async with keyed() as served:
            answer = await admin(served, "POST", name="bob", requests_per_minute=60)
            assert (answer.status, answer.headers["cache-control"]) == (201, "no-store")
            bob = answer.json.pop("key")
            assert bob.startswith("rp_")
            shown = {"object": "api_key", "name": "bob", "source": "admin", "problem": None, "requests_per_minute": 60}
            assert shown.items() <= answer.json.items()
            assert answer.json["created_at"] > 1_700_000_000
            assert (await status(served, bob), await status(served, ALICE)) == (200, 200)
            assert (await admin(served, "DELETE", "bob")).json == {"object": "api_key", "name": "bob", "deleted": True}
            assert (await status(served, bob), await status(served, ALICE)) == (401, 200)
            assert_error(await admin(served, "DELETE", "bob"), 404, "not_found")

    run(test())
