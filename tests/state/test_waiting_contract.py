"""Responses that wait for their completion window, in every kind of store."""

from __future__ import annotations

import json
from dataclasses import replace

from responses_gateway.state import Database, EventRow, Running, Store
from responses_gateway.state.waiting import Held, NewWaiting, WaitingTable
from tests.state.conftest import Clock, Opening
from tests.state.test_running_contract import GONE
from tests.state.test_store_contract import USER, play, record, rows

FIRST = EventRow(0, 1, b"event: response.queued\ndata: {}\n\n")
MOST = Held(5, 1000)


async def add(table: WaitingTable, clock: Clock, name: str, tenant: str = "a", **fields: object) -> Held | None:
    fields = {"window": "8h", "continuation": None, "deadline": clock.now + 28_800, "request": b"r" + name.encode(), **fields}
    new = NewWaiting(tenant, "m", accepted_at=clock.now, **fields)  # type: ignore[arg-type]
    begun = replace(record(name, status="queued", background=True, detached=True, input=[USER], worker=""), tenant=tenant)
    return await table.add(begun, FIRST, new, MOST)


async def begin(store: Store, clock: Clock, name: str, worker: str = "w") -> bool:
    return await store.running.begin_waited(name, Running(worker, clock.now + 15, b"journal"), FIRST._replace(journal=b"j"))


def test_one_of_several_begins_what_waits(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        table = store.waiting
        assert await add(table, clock, "resp_1") is None
        clock.now += 5000  # longer than responses are kept
        assert await store.upkeep.clean_up() == 0
        assert await store.running.end_abandoned(GONE) == []
        assert await store.running.take_over(Running("w", clock.now + 15), 9) == []
        assert [row.data for row in await store.events.read("resp_1", -1)] == [FIRST.data]
        assert await table.lease("resp_1", 60) == b"rresp_1"
        assert await table.lease("resp_1", 60) is None
        assert await table.candidates("m", 9) == []
        clock.now += 61  # whoever leased it died
        assert [waiting.response_id for waiting in await table.candidates("m", 9)] == ["resp_1"]
        assert await table.lease("resp_1", 60) == b"rresp_1"
        assert await begin(store, clock, "resp_1")
        assert not await begin(store, clock, "resp_1", "other")
        assert (await table.due(), await table.held("a")) == ([], Held(0, 0))
        clock.now += 16  # it is a background response by now, and kept for as long
        assert await store.upkeep.clean_up() == 0
        (orphan,) = await store.running.take_over(Running("other", clock.now + 15), 9)
        assert (orphan.id, orphan.kept) == ("resp_1", b"journal")
        await store.responses.delete("a", "resp_1")
        assert set((await rows(database)).values()) == {0}

    play(opening, test)


def test_what_waits_is_cancelled_deleted_or_failed_before_it_begins(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        table = store.waiting
        for name in ("resp_1", "resp_2", "resp_3"):
            await add(table, clock, name)
        assert not await table.cancel("b", "resp_1", GONE)  # somebody else
        assert await table.cancel("a", "resp_1", GONE)
        assert not await table.cancel("a", "resp_1", GONE)
        assert not await begin(store, clock, "resp_1")
        await store.responses.delete("a", "resp_2")
        assert not await begin(store, clock, "resp_2")
        assert await table.fail("resp_3", GONE)
        assert not await table.fail("resp_3", GONE)
        for name, status, error in (("resp_1", "cancelled", None), ("resp_3", "failed", "gone")):
            stored = await store.responses.get("a", name)
            assert stored is not None
            response = json.loads(stored.json)
            assert (stored.status, response["status"]) == (status, status)
            assert (response["error"] or {}).get("message") == error
            assert (await store.events.read(name, 0))[-1].data.startswith(b"event: response.failed\n")
            await store.responses.delete("a", name)
        assert set((await rows(database)).values()) == {0}

    play(opening, test)


def test_who_is_first(opening: Opening) -> None:
    async def test(store: Store, _database: Database, clock: Clock) -> None:
        table = store.waiting
        for name in ("resp_1", "resp_2", "resp_3"):
            await add(table, clock, name, continuation="c" if name != "resp_2" else None)
        await add(table, clock, "resp_4", tenant="b", continuation="c", deadline=clock.now + 7200, window="2h")
        first = [(waiting.response_id, waiting.follow_up) for waiting in await table.candidates("m", 1)]
        assert sorted(first) == [("resp_3", True), ("resp_4", False)]
        due = [(each.window, each.number) for each in await table.due()]
        assert due == [("2h", 1), ("8h", 3)]
        for name in ("resp_5", "resp_6"):
            assert await add(table, clock, name) is None
        assert (await add(table, clock, "resp_7")) == Held(5, 30 + 5)
        assert (await add(table, clock, "resp_8", tenant="b", request=b"x" * 1000)) == Held(1, 7)
        assert await store.responses.get("a", "resp_7") is None

    play(opening, test)
