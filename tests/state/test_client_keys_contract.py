"""The table of keys that were made at run time, on every kind of store."""

from __future__ import annotations

import asyncio

import pytest

from responses_gateway.state import client_keys
from responses_gateway.state.client_keys import ClientKeyTable, KeyRow
from tests.state.conftest import Opening


def test_keys_are_read_again_only_if_they_have_changed(opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_keys, "MOST_KEYS", 3)

    async def test() -> None:
        async with opening() as (_, database, clock):
            table = ClientKeyTable(database, clock)
            empty = await table.read(None)
            assert empty is not None
            assert empty[1] == []
            outcomes = [await table.add(name, f"hash of {name}", "{}") for name in ("bob", "alice", "bob", "carol", "dave")]
            assert outcomes == ["added", "added", "exists", "added", "full"]
            found = await table.read(empty[0])
            assert found is not None
            assert found[1] == [KeyRow(name, f"hash of {name}", "{}", clock.now) for name in ("alice", "bob", "carol")]
            assert await table.read(found[0]) is None
            assert [await table.remove(name) for name in ("carol", "carol", "nobody")] == [True, False, False]
            assert await table.add("carol", "another hash", '{"requests_per_minute": 1}') == "added"
            changed = await table.read(found[0])
            assert changed is not None
            assert changed[1][2] == KeyRow("carol", "another hash", '{"requests_per_minute": 1}', clock.now)

    asyncio.run(test())


def test_of_two_that_add_the_same_name_one_does(opening: Opening) -> None:
    async def test() -> None:
        async with opening() as (_, database, _clock):
            tables = [ClientKeyTable(database) for _ in range(6)]
            outcomes = await asyncio.gather(*(table.add("bob", f"hash {n}", "{}") for n, table in enumerate(tables)))
            assert sorted(outcomes) == ["added"] + ["exists"] * 5

    asyncio.run(test())
