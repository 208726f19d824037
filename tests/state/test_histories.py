"""Histories of many items: few statements write what a statement for each item would."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from responses_gateway.state import Database, Store
from responses_gateway.state.histories import append
from tests.state.conftest import Clock, Opening
from tests.state.test_store_contract import play, record, rows

Object = dict[str, Any]


def words(*numbers: int) -> list[Object]:
    return [{"type": "message", "role": "user", "content": f"number {number} \u00e9"} for number in numbers]


@pytest.mark.parametrize("seed", range(6))
def test_what_histories_share_is_stored_once_however_they_are_cut_and_edited(opening: Opening, seed: int) -> None:
    """Compare with a tree in memory: histories grow, are edited anywhere, repeat items, and begin again."""
    random = Random(seed)

    async def test(store: Store, database: Database, clock: Clock) -> None:
        numbers: list[int] = []
        beginnings: set[tuple[int, ...]] = set()
        seen: set[int] = set()
        for turn in range(12):
            numbers = numbers + [random.randrange(60) for _ in range(random.choice((1, 3, 9, 30, 140)))]
            if turn % 3 == 2:
                numbers[random.randrange(len(numbers))] = 1000 + turn
            if turn % 5 == 4:
                numbers = numbers[: len(numbers) // 2]
            await store.responses.save(record(f"resp_{turn}", input=words(*numbers)))
            stored = await store.responses.get("a", f"resp_{turn}")
            assert stored is not None
            assert await store.histories.items(stored.end) == words(*numbers)
            beginnings |= {tuple(numbers[:length]) for length in range(1, len(numbers) + 1)}
            seen |= set(numbers)
        counts = await rows(database)
        assert (counts["nodes"], counts["items"]) == (len(beginnings), len(seen))

    play(opening, test)


def test_a_long_history_may_have_ids_results_and_what_no_database_takes(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        named: list[Object] = [{"id": f"msg_{number}", **item} for number, item in enumerate(words(*range(20)))]
        odd: list[Object] = [*named, {"id": "half \ud83d", "type": "message", "role": "user", "content": "half \ud83d and \0"}]
        await store.responses.save(record("resp_1", input=odd, results={"msg_3": b"found"}))
        assert await store.hosted_calls.results("a", ["msg_3", "msg_4"], 1000) == {"msg_3": b"found"}
        assert set(await store.histories.find("a", ["msg_0", "msg_19", "nobody"])) == {"msg_0", "msg_19"}
        stored = await store.responses.get("a", "resp_1")
        assert stored is not None
        assert (await store.histories.items(stored.end))[:20] == named
        assert len(await store.histories.items(stored.end)) == 21

    play(opening, test)


def test_what_one_tenant_has_stored_is_not_another_ones(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        for tenant in ("a", "b"):
            await store.responses.save(record(f"resp_{tenant}", tenant=tenant, input=words(*range(12))))
        assert (await rows(database))["items"] == 24

    play(opening, test)


def test_keys_are_never_used_twice(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        first = await database.run(lambda sql: append(sql, "a", 0, words(*range(10))))
        await database.run(lambda sql: sql.execute("DELETE FROM nodes"))
        again = await database.run(lambda sql: append(sql, "a", 0, words(*range(10))))
        one_more = await database.run(lambda sql: append(sql, "a", again, words(99)))
        assert first < again < one_more

    play(opening, test)
