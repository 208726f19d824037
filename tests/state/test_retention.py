"""What is stored stays within its limits of age and size, and the space that becomes free is given back."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from responses_gateway.state import Database, EventRow, Running, Sqlite, Store
from responses_gateway.state.records import Ages
from tests.state.conftest import Clock, Opening
from tests.state.test_store_contract import USER, play, record, rows, said

MIB = 1024 * 1024


def unique(kilobytes: int) -> dict[str, str]:
    """Make an item that cannot be compressed."""
    return {"role": "user", "content": secrets.token_hex(512 * kilobytes)}


async def fill(store: Store, clock: Clock, responses: int, kilobytes: int = 10, first: int = 0) -> None:
    """Store responses, a second apart."""
    for number in range(first, first + responses):
        clock.now += 1
        await store.responses.save(
            record(f"resp_{number}", created_at=clock.now, input=[unique(kilobytes)], output=[said(number)])
        )


@pytest.mark.slow
def test_the_size_is_about_what_was_stored(opening: Opening) -> None:
    async def test(store: Store, _database: Database, clock: Clock) -> None:
        empty = await store.upkeep.size()
        assert empty < MIB
        await fill(store, clock, 300)
        assert 0.8 < (await store.upkeep.size() - empty) / (300 * 10 * 1024) < 1.6
        clock.now += 2000
        await store.upkeep.clean_up()
        assert await store.upkeep.size() < empty + 100_000

    play(opening, test)


@pytest.mark.slow
def test_beyond_the_limit_the_oldest_go_first_and_running_ones_never(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        running = record("running", status="in_progress", background=True, detached=True, input=[unique(10)])
        await store.running.begin(running, Running("w", clock.now + 10_000), EventRow(0, 1, b"x"))
        conversation = await store.conversations.create("a", {}, [unique(10)])
        await fill(store, clock, 300)
        young = await store.conversations.create("a", {}, [USER])
        bounded = Store(database, 1000.0, clock, max_bytes=2 * MIB)
        assert await bounded.upkeep.make_room() > 50
        assert 1.2 * MIB < await store.upkeep.size() <= 2 * MIB
        assert await store.responses.get("a", "running") is not None
        assert await store.responses.get("a", "resp_0") is None
        assert await store.responses.get("a", "resp_299") is not None
        assert await store.conversations.get("a", conversation.id) is None
        assert await store.conversations.get("a", young.id) is not None
        assert await bounded.upkeep.make_room() == 0
        assert await store.running.end(replace(running, status="completed"), EventRow(1, 2, b"y"))

    play(opening, test)


def test_without_a_limit_everything_stays(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        await fill(store, clock, 5)
        assert await store.upkeep.make_room() == 0
        assert (await rows(database))["responses"] == 5

    play(opening, test)


def test_a_store_of_running_responses_alone_is_left_alone(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        running = record("running", status="in_progress", background=True, detached=True, input=[unique(10)])
        await store.running.begin(running, Running("w", clock.now + 10_000), EventRow(0, 1, b"x"))
        assert await Store(database, 1000.0, clock, max_bytes=1).upkeep.make_room() == 0
        assert await store.responses.get("a", "running") is not None

    play(opening, test)


def test_the_age_of_what_is_stored(opening: Opening) -> None:
    async def test(store: Store, _database: Database, clock: Clock) -> None:
        assert await store.upkeep.ages() == Ages(0, 0)
        await store.responses.save(record("resp_1", created_at=clock.now))
        clock.now += 400
        await store.responses.save(record("resp_2", created_at=clock.now))
        assert await store.upkeep.ages() == Ages(400, 0)
        clock.now += 700
        assert await store.upkeep.ages() == Ages(1100, 100)
        await store.upkeep.clean_up()
        assert await store.upkeep.ages() == Ages(700, 0)

    play(opening, test)


@pytest.mark.slow
def test_others_get_their_turn_while_much_is_deleted(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        await fill(store, clock, 500, kilobytes=0)
        clock.now += 2000
        deleting = asyncio.create_task(store.upkeep.clean_up())
        await store.responses.save(record("new", created_at=clock.now))
        assert not deleting.done()
        assert (await rows(database))["responses"] > 250
        assert await deleting == 500
        assert (await rows(database))["responses"] == 1

    play(opening, test)


def test_logs_that_can_no_longer_be_resumed_are_deleted(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        longer = Store(database, 100_000.0, clock)
        for name, background in (("asked", True), ("continued", False)):
            begun = record(name, status="in_progress", background=background, detached=True, created_at=clock.now)
            await longer.running.begin(begun, Running("w", clock.now + 10), EventRow(0, 1, b"x"))
            await longer.running.end(replace(begun, status="completed"), EventRow(1, 2, b"y"))
        clock.now += 3000
        await longer.upkeep.clean_up()
        assert await longer.events.read("continued", -1)
        clock.now += 1000
        await longer.upkeep.clean_up()
        assert await longer.events.read("asked", -1)
        assert not await longer.events.read("continued", -1)

    play(opening, test)


async def filled(path: Path, clock: Clock) -> None:
    """Make a store of a thousand responses."""
    store = Store(Sqlite(path), 1000.0, clock)
    await store.open()
    await fill(store, clock, 1000)
    await store.close()


async def emptied(path: Path, clock: Clock) -> None:
    """Let all of them expire."""
    store = Store(Sqlite(path), 1000.0, clock)
    await store.open()
    clock.now += 3000
    assert await store.upkeep.clean_up() == 1000
    await store.upkeep.give_space_back()
    await store.close()


@pytest.mark.slow
def test_a_file_shrinks_when_responses_expire(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite3"
    clock = Clock()
    asyncio.run(filled(path, clock))
    assert path.stat().st_size > 10 * MIB
    asyncio.run(emptied(path, clock))
    assert path.stat().st_size < 2 * MIB


def test_a_file_that_another_program_made_so_that_it_cannot_shrink(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite3"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (x)")
        connection.execute("INSERT INTO other VALUES (zeroblob(20000000))")
        connection.commit()

    async def test() -> None:
        clock = Clock()
        store = Store(Sqlite(path), 1000.0, clock)
        await store.open()
        await fill(store, clock, 5)
        await store.database.run(lambda sql: sql.execute("DROP TABLE other").rowcount)
        await store.upkeep.give_space_back()
        assert await store.responses.get("a", "resp_1") is not None
        await store.close()

    asyncio.run(test())
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone()[0] == 0
