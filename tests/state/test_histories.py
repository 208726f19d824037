"""Histories of many items: few statements write what a statement for each item would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from responses_gateway.state import Database, EventRow, Running, Sqlite, Store, StoreUnavailable
from responses_gateway.state.histories import append
from responses_gateway.state.interfaces import Sql
from responses_gateway.state.records import HistoryMemory
from tests.state.conftest import Clock, Opening
from tests.state.test_running_contract import Counting
from tests.state.test_store_contract import play, record, rows

Object = dict[str, Any]


def words(*numbers: int) -> list[Object]:
    """Return items, of which every third is so long that it is stored once for its tenant, wherever it stands."""
    texts = [f"number {number} \u00e9" * (1 if number % 3 else 500) for number in numbers]
    return [{"type": "message", "role": "user", "content": text} for text in texts]


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
            seen |= {number for number in numbers if number % 3 == 0}
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
        counts = await rows(database)
        assert (counts["nodes"], counts["items"]) == (24, 8)

    play(opening, test)


def test_keys_are_never_used_twice(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        first = await database.run(lambda sql: append(sql, "a", 0, words(*range(10))))
        await database.run(lambda sql: sql.execute("DELETE FROM nodes"))
        again = await database.run(lambda sql: append(sql, "a", 0, words(*range(10))))
        one_more = await database.run(lambda sql: append(sql, "a", again, words(99)))
        assert first < again < one_more

    play(opening, test)


@pytest.mark.parametrize("detached", [False, True])
def test_a_turn_of_a_history_that_grows_takes_statements_for_its_own_items_alone(
    opening: Opening, monkeypatch: pytest.MonkeyPatch, *, detached: bool
) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        memory = HistoryMemory()
        statements: list[str] = []

        async def counted(work: Callable[[Sql], Any]) -> Any:
            return await run(lambda sql: work(Counting(sql, statements)))

        run = database.run
        monkeypatch.setattr(database, "run", counted)
        items = words(*range(300))
        numbers: list[int] = []
        for turn in range(4):
            items = [*items, *words(1001 + 3 * turn)]
            statements.clear()
            turned = record(f"resp_{turn}", input=items, memory=memory, detached=detached)
            if detached:
                running = record(f"resp_{turn}", input=items, memory=memory, detached=True, status="in_progress")
                await store.running.begin(running, Running("w", clock.now + 10), EventRow(0, 1, b"a"))
                assert await store.running.end(turned, EventRow(1, 2, b"b"))
            else:
                await store.responses.save(turned)
            numbers.append(len(statements))
            stored = await store.responses.get("a", f"resp_{turn}")
            assert stored is not None
            assert await store.histories.items(stored.end) == items
        assert numbers[1] == numbers[2] == numbers[3]
        assert numbers[1] < 20

    play(opening, test)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_remembered_of_histories_changes_nothing_that_is_stored(
    opening: Opening, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare with histories that were not remembered: they branch, are deleted, fail to be written, and belong to others."""
    random = Random(seed)

    async def test(store: Store, database: Database, clock: Clock) -> None:
        memories = [HistoryMemory(), HistoryMemory()]
        known: list[Object] = words(*range(20))
        items: list[Object] = []
        names: list[tuple[str, str]] = []
        run = database.run

        async def lost(work: Callable[[Sql], Any]) -> Any:
            def undone(sql: Sql) -> None:
                work(sql)
                raise StoreUnavailable("lost")

            return await run(undone)

        for turn in range(30):
            items = [*items[: random.choice((0, len(items) // 2, len(items), len(items)))]]
            items += random.choices(known, k=random.choice((1, 2, 12)))
            tenant = random.choice("aab")
            response = record(f"resp_{turn}", tenant=tenant, input=items, memory=random.choice(memories))
            if random.random() < 0.2:
                monkeypatch.setattr(database, "run", lost)
                with pytest.raises(StoreUnavailable):
                    await store.responses.save(response)
                monkeypatch.setattr(database, "run", run)
                continue
            await store.responses.save(response)
            names.append((tenant, response.id))
            stored = await store.responses.get(tenant, response.id)
            assert stored is not None
            assert await store.histories.items(stored.end) == items
            counts = await rows(database)
            assert await database.run(partial(append, tenant=tenant, place=0, items=items)) == stored.end  # it is there
            assert await rows(database) == counts
            while names and random.random() < 0.3:
                await store.responses.delete(*names.pop(random.randrange(len(names))))
        for name in names:
            await store.responses.delete(*name)
        counts = await rows(database)
        assert (counts["nodes"], counts["items"]) == (0, 0)

    play(opening, test)


def test_what_is_remembered_does_not_hold_in_another_file(tmp_path: Path) -> None:
    """There another node has the same key."""
    mine = words(*range(12))
    longer = [*mine, *words(50)]

    async def test() -> None:
        memory = HistoryMemory()
        async with opened(tmp_path / "one") as one:
            await one.responses.save(record("resp_0", input=mine, memory=memory))
        async with opened(tmp_path / "other") as other:
            await other.responses.save(record("resp_1", input=words(*range(100, 120))))
            await other.responses.save(record("resp_2", input=longer, memory=memory))
            stored = await other.responses.get("a", "resp_2")
            assert stored is not None
            assert await other.histories.items(stored.end) == longer

    asyncio.run(test())


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Store]:
    store = Store(Sqlite(path), 1000.0, Clock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()
