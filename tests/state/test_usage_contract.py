"""The table of usage, on every kind of store."""

from __future__ import annotations

import asyncio

from responses_gateway.state.usage import LABELS, UsageTable
from tests.state.conftest import Opening


def test_usage_is_summed_and_old_usage_deleted(opening: Opening) -> None:
    async def test() -> None:
        async with opening() as (_, database, _clock):
            table = UsageTable(database)
            await table.add(
                {(100, "alice", "red", "m"): [1, 10, 2, 5, 1], (99, "", "", "a\0\ud800"): [1, 1, 0, 1, 0]}, oldest=0
            )
            await table.add({(100, "alice", "red", "m"): [2, 20, 0, 7, 0], (100, "bob", "", "m"): [1, 3, 0, 1, 0]}, oldest=0)
            assert await table.sums(100, 100, ["key", "model"]) == {
                ("alice", "m"): [3, 30, 2, 12, 1],
                ("bob", "m"): [1, 3, 0, 1, 0],
            }
            assert await table.sums(99, 100, ["day"]) == {(99,): [1, 1, 0, 1, 0], (100,): [4, 33, 2, 13, 1]}
            assert await table.sums(101, 200, ["day"]) == {}
            await table.add({(101, "bob", "", "m"): [1, 1, 1, 1, 1]}, oldest=101)
            assert await table.sums(0, 200, ["day"]) == {(101,): [1, 1, 1, 1, 1]}

    asyncio.run(test())


def test_several_processes_add_to_the_same_row(opening: Opening) -> None:
    async def test() -> None:
        async with opening() as (_, database, _clock):
            table = UsageTable(database)
            rows = {(100, key, "", "m"): [1, 1, 1, 1, 1] for key in ("a", "b", "c")}
            await asyncio.gather(*(table.add(rows, oldest=0) for _ in range(8)))
            assert await table.sums(100, 100, ["key"]) == {(key,): [8] * 5 for key in ("a", "b", "c")}

    asyncio.run(test())


def test_usage_of_a_day_belongs_to_the_team_that_its_key_was_in_last(opening: Opening) -> None:
    async def test() -> None:
        async with opening() as (_, database, _clock):
            table = UsageTable(database)
            await table.add({(100, "alice", "red", "m"): [1, 1, 1, 1, 1]}, oldest=0)
            await table.add({(100, "alice", "blue", "m"): [1, 1, 1, 1, 1]}, oldest=0)
            assert await table.sums(100, 100, ["team"]) == {("blue",): [2] * 5}

    asyncio.run(test())


def test_a_key_has_so_many_rows_of_a_day_and_what_is_there_grows(opening: Opening) -> None:
    async def test() -> None:
        async with opening() as (_, database, _clock):
            table = UsageTable(database, "session_usage", (*LABELS, "session"), most=2)
            rows = {(100, key, "", "m", session): [1] * 5 for key, session in (("a", "s1"), ("a", "s2"), ("b", "s1"))}
            await table.add(rows, oldest=0)
            await table.add({(100, "a", "", "m", "s3"): [1] * 5, (100, "b", "", "m", "s1"): [1] * 5}, oldest=0)
            assert await table.sums(100, 100, ["key"]) == {("a",): [2] * 5, ("b",): [2] * 5}
            assert await table.sums(100, 100, []) == {(): [4] * 5}
            assert await table.sums(101, 101, []) == {}

    asyncio.run(test())
