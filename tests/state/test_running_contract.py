"""Running responses, in every kind of store: their logs, and what happens when their worker dies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from responses_gateway.server.generation.background.response import end_lost
from responses_gateway.state import Database, EventRow, NewEvents, Running, Store, StoreUnavailable
from responses_gateway.state.interfaces import Rows, Sql
from tests.state.conftest import Clock, Opening
from tests.state.test_store_contract import USER, play, record, rows, said

GONE = partial(end_lost, message="gone")


def test_the_log_of_a_running_response(opening: Opening) -> None:
    async def test(store: Store, _database: Database, clock: Clock) -> None:
        head = '{"id":"resp_1","status":"queued","output":['
        begun = record("resp_1", status="queued", head=head, background=True, detached=True, input=[USER])
        await store.running.begin(begun, Running("w", clock.now + 10), EventRow(0, 2, b"a"))
        await store.events.append([NewEvents(begun, EventRow(2, 5, b"b"))])
        assert [row.data for row in await store.events.read("resp_1", -1)] == [b"a", b"b"]
        assert [row.data for row in await store.events.read("resp_1", 1)] == [b"b"]
        assert [row.data for row in await store.events.read("resp_1", 3)] == [b"b"]
        stored = await store.responses.get("a", "resp_1")
        assert stored is not None
        assert (stored.status, json.loads(stored.json)["status"]) == ("queued", "queued")
        begun_head = head.replace("queued", "in_progress")
        assert await store.events.append([NewEvents(begun, EventRow(5, 6, b"s"), begun_head)]) == {"resp_1": True}
        assert await store.running.still_alive(["resp_1"], Running("w", clock.now + 20)) == ({"resp_1"}, set())
        stored = await store.responses.get("a", "resp_1")
        assert stored is not None
        assert (stored.status, json.loads(stored.json)["status"]) == ("in_progress", "in_progress")
        await store.running.cancel("b", "resp_1")
        assert await store.running.still_alive(["resp_1"], Running("w", clock.now + 20)) == ({"resp_1"}, set())
        await store.running.cancel("a", "resp_1")
        assert await store.running.still_alive(["resp_1"], Running("w", clock.now + 20)) == (set(), set())
        ended = replace(begun, status="completed", output=[said(1)])
        assert await store.running.end(ended, EventRow(6, 7, b"c"))
        assert not await store.running.end(replace(ended, status="failed"), EventRow(7, 8, b"d"))
        assert b"".join(row.data for row in await store.events.read("resp_1", -1)) == b"absc"
        assert [(row.next, row.data[-1:]) for row in await store.events.read("resp_1", 5)] == [(7, b"c")]
        stored = await store.responses.get("a", "resp_1")
        assert stored is not None
        assert (stored.status, stored.background, said(1) in stored.json) == ("completed", True, True)

    play(opening, test)


def test_events_of_several_responses_are_written_at_once(kind: str, opening: Opening) -> None:
    """What was deleted, or has ended, is reported, and does not keep the others from being written. (A log in Redis does not
    know what was deleted from the database.)"""

    async def test(store: Store, _database: Database, clock: Clock) -> None:
        names = ["resp_1", "resp_2", "resp_3"]
        begun = [record(name, status="in_progress", detached=True, worker="w") for name in names]
        for each in begun:
            await store.running.begin(each, Running("w", clock.now + 10), EventRow(0, 1, b"a"))
        await store.responses.delete("a", "resp_1")
        assert await store.running.end(replace(begun[1], status="completed"), EventRow(1, 2, b"b"))
        written = await store.events.append([NewEvents(each, EventRow(1, 3, b"x")) for each in begun])
        if "redis" not in kind:
            assert not written["resp_1"]
            assert await store.events.read("resp_1", -1) == []
        assert (written["resp_2"], written["resp_3"]) == (False, True)
        assert b"".join(row.data for row in await store.events.read("resp_2", -1)) == b"ab"
        assert b"".join(row.data for row in await store.events.read("resp_3", -1)) == b"ax"

    play(opening, test)


def test_the_heartbeat_of_all_responses_is_one_statement(opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        names = {f"resp_{number}" for number in range(50)}
        for name in names:
            await store.running.begin(
                record(name, status="in_progress", detached=True), Running("w", clock.now + 10), EventRow(0, 1, b"a")
            )
        statements: list[str] = []

        async def counted(work: Callable[[Sql], Any]) -> Any:
            return await run(lambda sql: work(Counting(sql, statements)))

        run = database.run
        monkeypatch.setattr(database, "run", counted)
        assert await store.running.still_alive(names, Running("w", clock.now + 20)) == (names, set())
        assert len(statements) == 1
        clock.now += 15
        assert await store.running.end_abandoned(GONE) == []

    play(opening, test)


class Counting:
    """A transaction that notes its statements."""

    def __init__(self, sql: Sql, statements: list[str]) -> None:
        self._sql = sql
        self._statements = statements

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        self._statements.append(statement)
        return self._sql.execute(statement, values)

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], /, *, utf8: str = "") -> None:
        self._statements.append(table)
        self._sql.insert(table, columns, rows, utf8=utf8)

    def new_keys(self, table: str, count: int, /) -> Sequence[int]:
        return self._sql.new_keys(table, count)


def test_a_dead_worker_is_found_and_its_responses_fail(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        begun = record("resp_1", status="queued", background=True, detached=True, input=[USER])
        await store.running.begin(begun, Running("w", clock.now + 10), EventRow(0, 1, b"event: x\ndata: {}\n\n"))
        done = f'data: {{"type":"response.output_item.done","sequence_number":1,"output_index":0,"item":{said(1)}}}\n\n'
        await store.events.append([NewEvents(begun, EventRow(1, 2, done.encode()))])
        assert await store.running.end_abandoned(GONE) == []
        clock.now += 11
        assert await store.running.end_abandoned(GONE) == ["resp_1"]
        stored = await store.responses.get("a", "resp_1")
        assert stored is not None
        response = json.loads(stored.json)
        assert (stored.status, response["status"], response["error"]["message"]) == ("failed", "failed", "gone")
        assert [item["id"] for item in response["output"]] == ["msg_1"]
        last = (await store.events.read("resp_1", 1))[-1]
        assert last.data.startswith(b"event: response.failed\n")
        assert json.loads(last.data.split(b"data: ")[1])["response"] == response
        assert not await store.responses.save(replace(begun, status="completed"))
        await store.responses.delete("a", "resp_1")
        assert set((await rows(database)).values()) == {0}

    play(opening, test)


def test_a_response_without_a_log_ends_with_its_input(opening: Opening) -> None:
    """Its client reads it over a connection: one of two ends well, the worker of the other dies."""

    async def test(store: Store, _database: Database, clock: Clock) -> None:
        begun = [record(name, status="in_progress", detached=True, input=[USER], worker="w") for name in ("resp_1", "resp_2")]
        for each in begun:
            await store.running.begin(each, Running("w", clock.now + 10))
        assert await store.responses.save(replace(begun[0], status="completed", output=[said(1)]))
        assert await store.running.still_alive(["resp_1", "resp_2"], Running("w", clock.now + 10)) == ({"resp_2"}, {"resp_1"})
        clock.now += 11
        assert await store.running.end_abandoned(GONE) == ["resp_2"]
        for name, status, items in (("resp_1", "completed", 2), ("resp_2", "failed", 1)):
            stored = await store.responses.get("a", name)
            assert stored is not None
            assert (stored.status, stored.has_events) == (status, False)
            assert len(await store.histories.items(stored.end)) == items
        assert not await store.responses.save(replace(begun[1], status="completed"))

    play(opening, test)


def test_a_worker_that_was_asked_to_cancel_and_died(opening: Opening) -> None:
    async def test(store: Store, _database: Database, clock: Clock) -> None:
        begun = record("resp_1", status="queued", background=True, detached=True, input=[USER])
        await store.running.begin(begun, Running("w", clock.now + 10), EventRow(0, 1, b"event: x\ndata: {}\n\n"))
        await store.running.cancel("a", "resp_1")
        clock.now += 11
        await store.running.end_abandoned(GONE)
        stored = await store.responses.get("a", "resp_1")
        assert stored is not None
        response = json.loads(stored.json)
        assert (stored.status, response["status"], response["error"]) == ("cancelled", "cancelled", None)
        assert b"The response was cancelled." in (await store.events.read("resp_1", 0))[-1].data

    play(opening, test)


def test_one_of_several_goes_on_with_what_a_dead_worker_ran(kind: str, opening: Opening) -> None:
    """Its events and its journal go to one of two that ask at once; the former worker, which was only slow, writes no more."""

    async def test(store: Store, _database: Database, clock: Clock) -> None:
        begun = record("resp_1", status="queued", background=True, detached=True, input=[USER], worker="slow")
        await store.running.begin(begun, Running("slow", clock.now + 10, b"request"), EventRow(0, 2, b"ab", b"A"))
        await store.events.append([NewEvents(begun, EventRow(2, 3, b"c", b"B"))])
        assert await store.running.take_over(Running("new", clock.now + 10), 5) == []
        clock.now += 11
        assert await store.running.end_abandoned(GONE) == []
        news = [Running(name, clock.now + 10) for name in ("new", "other")]
        found = await asyncio.gather(*(store.running.take_over(running, 5) for running in news))
        (owner,) = [running for running, orphans in zip(news, found, strict=True) if orphans]
        orphan = await store.running.adopt((found[0] or found[1])[0])
        assert (orphan.id, orphan.kept) == ("resp_1", b"request")
        assert [(row.first, row.next, row.data, row.journal) for row in orphan.rows] == [
            (0, 2, b"ab", b"A"), (2, 3, b"c", b"B"),
        ]  # fmt: skip
        assert await store.running.still_alive(["resp_1"], Running("slow", clock.now + 20)) == (set(), {"resp_1"})
        if kind in ("file", "memory", "postgres"):  # a log in Redis knows processes, see `test_live_log.py`
            await store.events.append([NewEvents(begun, EventRow(3, 4, b"x"))])
        assert await store.running.still_alive(["resp_1"], Running(owner.worker, clock.now + 20)) == ({"resp_1"}, set())
        mine = replace(begun, worker=owner.worker)
        await store.events.append([NewEvents(mine, EventRow(3, 5, b"de"))])
        assert await store.running.end(replace(mine, status="completed", output=[said(1)]), EventRow(5, 6, b"f"))
        assert not await store.running.end(replace(begun, status="failed"), EventRow(3, 4, b"x"))
        assert b"".join(row.data for row in await store.events.read("resp_1", -1)) == b"abcdef"

    play(opening, test)


def test_what_was_taken_over_once_ends_with_its_second_worker(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        begun = record("resp_1", status="queued", background=True, detached=True, input=[USER], worker="one")
        await store.running.begin(
            begun, Running("one", clock.now + 10, b"request"), EventRow(0, 1, b"event: x\ndata: {}\n\n", b"A")
        )
        await store.running.release("resp_1", "two")  # it has never run it
        clock.now += 1
        assert await store.running.take_over(Running("two", clock.now + 10), 5) == []
        await store.running.release("resp_1", "one")
        clock.now += 1
        assert [orphan.id for orphan in await store.running.take_over(Running("two", clock.now + 10), 5)] == ["resp_1"]
        clock.now += 11
        assert await store.running.take_over(Running("three", clock.now + 10), 5) == []
        assert await store.running.end_abandoned(GONE) == ["resp_1"]
        assert (await rows(database))["journals"] == 0

    play(opening, test)


def test_what_is_to_be_cancelled_is_not_taken_over(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        begun = record("resp_1", status="queued", background=True, detached=True, input=[USER], worker="one")
        await store.running.begin(
            begun, Running("one", clock.now + 10, b"request"), EventRow(0, 1, b"event: x\ndata: {}\n\n", b"A")
        )
        await store.running.cancel("a", "resp_1")
        clock.now += 11
        assert await store.running.take_over(Running("two", clock.now + 10), 5) == []
        assert await store.running.end_abandoned(GONE) == ["resp_1"]
        assert (await rows(database))["journals"] == 0

    play(opening, test)


def test_what_this_process_runs_is_not_taken_for_dead(opening: Opening) -> None:
    """Its heartbeat may be late where the store is slow."""

    async def test(store: Store, _database: Database, clock: Clock) -> None:
        event = EventRow(0, 1, b"event: x\ndata: {}\n\n", b"A")
        for name, journal in (("resp_1", b"request"), ("resp_2", None)):
            begun = record(name, status="queued", background=True, detached=True, input=[USER], worker="one")
            await store.running.begin(begun, Running("one", clock.now + 10, journal), event)
        clock.now += 11
        mine = {"resp_1", "resp_2"}
        assert await store.running.take_over(Running("one", clock.now + 10), 5, mine) == []
        assert await store.running.end_abandoned(GONE, mine) == []
        assert await store.running.still_alive(mine, Running("one", clock.now + 10)) == (mine, set())

    play(opening, test)


def test_what_was_taken_over_is_not_lost_when_the_store_fails_then(opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails when the second of two is claimed; that one is taken over when it is back."""

    async def test(store: Store, database: Database, clock: Clock) -> None:
        for name in ("resp_1", "resp_2"):
            begun = record(name, status="queued", background=True, detached=True, input=[USER], worker="one")
            await store.running.begin(begun, Running("one", clock.now + 10, b"request"), EventRow(0, 1, b"x", b"A"))
        clock.now += 11
        calls = 0

        async def fails_once(work: Callable[[Any], Any]) -> Any:
            nonlocal calls
            calls += 1
            if calls == 3:  # the search, the first claim, the second
                raise StoreUnavailable("gone")
            return await run(work)

        run = database.run
        monkeypatch.setattr(database, "run", fails_once)
        found = [orphan.id for orphan in await store.running.take_over(Running("two", clock.now + 100), 5)]
        assert len(found) == 1
        clock.now += 16  # after an outage heartbeats are waited for
        found += [orphan.id for orphan in await store.running.take_over(Running("two", clock.now + 100), 5)]
        assert sorted(found) == ["resp_1", "resp_2"]

    play(opening, test)
