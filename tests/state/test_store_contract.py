"""The contract of every kind of store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.server.setup.store import open_store
from responses_gateway.settings import Settings
from responses_gateway.state import (
    Cursor,
    Database,
    EventRow,
    HistorySpan,
    PageOrder,
    ResponseRecord,
    Running,
    Sqlite,
    Store,
    StoreUnavailable,
)
from responses_gateway.state.hosted_calls import approval_digest, recent
from responses_gateway.state.records import KnownItems
from responses_gateway.state.schema import VERSION
from tests.state.conftest import Clock, Opening

USER = {"role": "user", "content": "hello"}
# Long enough to be stored once for its tenant, wherever it stands.
LONG = {"role": "user", "content": "hello " * 1000}


def said(number: int) -> str:
    """Make an output item as it was streamed, with bytes that another encoder would not write."""
    return f'{{"type": "message", "id":"msg_{number}","role":"assistant","content":[{{"type":"output_text","text":"é\\/"}}]}}'


def record(name: str, **fields: Any) -> ResponseRecord:
    head = f'{{"id":"{name}","status":"completed","output":['
    values = {"tenant": "a", "created_at": 1_000_000.0, "status": "completed", "head": head, "tail": '],"x":1}'}
    return ResponseRecord(id=name, **{**values, **fields})


def play(opening: Opening, test: Callable[[Store, Database, Clock], Awaitable[None]]) -> None:
    async def run() -> None:
        async with opening() as (store, database, clock):
            await test(store, database, clock)

    asyncio.run(run())


async def rows(database: Database) -> dict[str, int]:
    tables = ("items", "nodes", "responses", "conversations", "events", "journals")
    return await database.run(lambda sql: {name: sql.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables})


async def end_of(store: Store, name: str) -> int:
    stored = await store.responses.get("a", name)
    assert stored is not None
    return stored.end


def test_a_response_comes_back_byte_for_byte(opening: Opening) -> None:
    async def test(store: Store, _database: Database, _clock: Clock) -> None:
        output = [said(1), said(2)]
        assert await store.responses.save(record("resp_1", input=[USER], output=output))
        stored = await store.responses.get("a", "resp_1")
        assert stored is not None
        assert stored.json == f'{{"id":"resp_1","status":"completed","output":[{output[0]},{output[1]}],"x":1}}'
        assert not stored.active

    play(opening, test)


def test_an_approval_is_used_by_one_response() -> None:
    assert approval_digest("a", "mcpr_1") != approval_digest("b", "mcpr_1")
    assert approval_digest("a", "half of a pair: \ud800")


def test_of_all_that_use_an_approval_at_once_one_does(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        one, other, third = (approval_digest("a", f"mcpr_{number}") for number in range(3))
        found = await asyncio.gather(*(store.hosted_calls.use_approvals([one, other], f"resp_{number}") for number in range(8)))
        (winner,) = (number for number, used in enumerate(found) if not used)
        assert [used for used in found if used] == [dict.fromkeys([one, other], f"resp_{winner}")] * 7
        assert await store.hosted_calls.use_approvals([one, other], f"resp_{winner}") == {}  # the same again
        # All or none.
        assert await store.hosted_calls.use_approvals([third, one], "resp_9") == {one: f"resp_{winner}"}
        assert await store.hosted_calls.use_approvals([third], "resp_10") == {}
        clock.now += 10 * 86_400_000
        await store.upkeep.clean_up()
        left = await database.run(lambda sql: sql.execute("SELECT count(*) FROM approvals").fetchone()[0])
        assert left == 0

    play(opening, test)


def test_what_belongs_to_another_tenant_does_not_exist(opening: Opening) -> None:
    async def test(store: Store, _database: Database, _clock: Clock) -> None:
        await store.responses.save(record("resp_1", input=[USER], output=[said(1)]))
        conversation = await store.conversations.create("a", {}, [USER])
        assert await store.responses.get("b", "resp_1") is None
        assert await store.histories.find("b", ["msg_1"]) == {}
        assert not await store.responses.delete("b", "resp_1")
        assert await store.conversations.get("b", conversation.id) is None
        assert await store.conversations.update("b", conversation.id, {"x": "y"}) is None
        assert await store.conversations.add_items("b", conversation.id, [USER]) is None
        assert not await store.conversations.delete("b", conversation.id)
        await store.responses.save(record("resp_2", tenant="b", input=[USER], output=[said(1)]))
        assert set(await store.histories.find("b", ["msg_1"])) == {"msg_1"}

    play(opening, test)


def test_a_history_goes_through_all_turns(opening: Opening) -> None:
    async def test(store: Store, _database: Database, _clock: Clock) -> None:
        end = 0
        for turn in range(3):
            asked = {"role": "user", "content": f"turn {turn}"}
            await store.responses.save(record(f"resp_{turn}", context=end, input=[asked], output=[said(turn)]))
            end = await end_of(store, f"resp_{turn}")
        told = [item["content"] if item["role"] == "user" else item["id"] for item in await store.histories.items(end)]
        assert told == ["turn 0", "msg_0", "turn 1", "msg_1", "turn 2", "msg_2"]

    play(opening, test)


def test_the_beginning_of_a_history_that_is_known_is_not_read_again(opening: Opening) -> None:
    async def test(store: Store, _database: Database, _clock: Clock) -> None:
        ends = [0]
        for turn in range(3):
            asked = {"role": "user", "content": f"turn {turn}"}
            await store.responses.save(record(f"resp_{turn}", context=ends[-1], input=[asked], output=[said(turn)]))
            ends.append(await end_of(store, f"resp_{turn}"))
        whole = await store.histories.items(ends[3])
        known = await store.histories.items(ends[2])
        again = await store.histories.items(ends[3], KnownItems(ends[2], known))
        assert again == whole
        assert all(one is other for one, other in zip(again, known, strict=False))
        # Those of another history, and of a place that this one does not go through.
        await store.responses.save(record("other", input=[LONG], output=[said(7)]))
        other = await end_of(store, "other")
        assert await store.histories.items(ends[3], KnownItems(other, [LONG])) == whole
        assert await store.histories.items(ends[2], KnownItems(ends[3], whole)) == known
        assert await store.histories.items(ends[3], KnownItems(ends[3], whole)) == whole

    play(opening, test)


@pytest.mark.parametrize("way", ["chained", "sent again"])
def test_a_long_conversation_grows_by_what_is_new(opening: Opening, way: str) -> None:
    async def test(store: Store, database: Database, _clock: Clock) -> None:
        end = 0
        sent = list[Any]()
        for turn in range(60):
            asked = {"role": "user", "content": "go on " * 1000}
            fields = {"context": end, "input": [asked]} if way == "chained" else {"input": [*sent, asked]}
            await store.responses.save(record(f"resp_{turn}", **fields, output=[said(turn)]))
            end = await end_of(store, f"resp_{turn}")
            sent += [asked, json.loads(said(turn))]
        counted = await rows(database)
        assert (counted["nodes"], counted["items"]) == (120, 1)

    play(opening, test)


def test_branches_share_what_they_have_in_common(opening: Opening) -> None:
    async def test(store: Store, database: Database, _clock: Clock) -> None:
        await store.responses.save(record("root", input=[USER], output=[said(0)]))
        end = await end_of(store, "root")
        for branch in (1, 2):
            await store.responses.save(record(f"branch_{branch}", context=end, input=[USER], output=[said(branch)]))
        assert [len(await store.histories.items(await end_of(store, name))) for name in ("branch_1", "branch_2")] == [4, 4]
        assert (await rows(database))["nodes"] == 5
        assert await store.responses.delete("a", "branch_1")
        assert len(await store.histories.items(await end_of(store, "branch_2"))) == 4

    play(opening, test)


def test_what_is_deleted_leaves_nothing(opening: Opening) -> None:
    async def test(store: Store, database: Database, _clock: Clock) -> None:
        await store.responses.save(record("resp_1", input=[USER], output=[said(1)]))
        await store.responses.save(record("resp_2", context=await end_of(store, "resp_1"), input=[USER], output=[said(2)]))
        assert await store.responses.delete("a", "resp_1")
        assert not await store.responses.delete("a", "resp_1")
        assert await store.responses.get("a", "resp_1") is None
        assert len(await store.histories.items(await end_of(store, "resp_2"))) == 4
        await store.responses.delete("a", "resp_2")
        assert set((await rows(database)).values()) == {0}

    play(opening, test)


def test_a_context_deleted_meanwhile_is_written_again(opening: Opening) -> None:
    async def test(store: Store, _database: Database, _clock: Clock) -> None:
        await store.responses.save(record("resp_1", input=[USER], output=[said(1)]))
        end = await end_of(store, "resp_1")
        history = await store.histories.items(end)
        await store.responses.delete("a", "resp_1")
        await store.responses.save(record("resp_2", context=end, history=history, input=[USER], output=[said(2)]))
        assert len(await store.histories.items(await end_of(store, "resp_2"))) == 4

    play(opening, test)


def test_old_responses_are_deleted_and_new_ones_stay(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        await store.responses.save(record("old", input=[LONG, LONG | {"role": "system"}], output=[said(1)]))
        await store.conversations.create("a", {}, [LONG])
        clock.now += 600
        await store.responses.save(record("young", created_at=clock.now, input=[LONG], output=[said(2)]))
        clock.now += 600
        assert await store.upkeep.clean_up() == 2
        assert await store.responses.get("a", "old") is None
        assert await store.responses.get("a", "young") is not None
        assert await rows(database) == {"items": 1, "nodes": 2, "responses": 1, "conversations": 0, "events": 0, "journals": 0}

    play(opening, test)


def test_items_come_in_pages(opening: Opening) -> None:
    async def test(store: Store, _database: Database, _clock: Clock) -> None:
        asked = [{"id": f"in_{number}", **USER} for number in range(5)]
        await store.responses.save(record("resp_1", input=asked))
        end = await end_of(store, "resp_1")

        async def ids(order: Any, limit: int, after: str | None) -> tuple[list[str], bool] | None:
            page = await store.histories.page(HistorySpan(0, end), order, limit, Cursor(after))
            return page and ([item["id"] for item in page.items], page.more)

        assert await ids("asc", 2, None) == (["in_0", "in_1"], True)
        assert await ids("asc", 2, "in_1") == (["in_2", "in_3"], True)
        assert await ids("asc", 2, "in_3") == (["in_4"], False)
        assert await ids("desc", 9, None) == (["in_4", "in_3", "in_2", "in_1", "in_0"], False)
        assert await ids("desc", 9, "nobody") is None

    play(opening, test)


def test_items_without_an_id_get_one_and_the_shape_of_the_api(opening: Opening) -> None:
    async def test(store: Store, _database: Database, _clock: Clock) -> None:
        await store.responses.save(record("resp_1", input=[USER, USER]))
        page = await store.histories.page(HistorySpan(0, await end_of(store, "resp_1")), "asc", 10, Cursor())
        assert page is not None
        first, second = page.items
        assert first["id"] != second["id"]
        assert first["content"] == [{"type": "input_text", "text": "hello"}]
        assert (first["type"], first["id"][:4]) == ("message", "msg_")
        assert await store.histories.find("a", [first["id"]]) == {first["id"]: first}

    play(opening, test)


def test_paging_reaches_the_end_whatever_the_ids(opening: Opening) -> None:
    async def test(store: Store, _database: Database, _clock: Clock) -> None:
        await store.responses.save(record("resp_1", input=[{"id": "same", "role": "user", "content": text} for text in "abc"]))
        span = HistorySpan(0, await end_of(store, "resp_1"))
        first = await store.histories.page(span, "asc", 1, Cursor())
        assert first is not None
        assert (len(first.items), first.more) == (1, True)
        assert await store.histories.page(span, "asc", 1, Cursor(after="same")) == ([], False)

    play(opening, test)


def test_pages_go_both_ways(opening: Opening) -> None:
    async def test(store: Store, _database: Database, _clock: Clock) -> None:
        await store.responses.save(record("resp_1", input=[{"id": "old", **USER}]))
        asked = [{"id": str(number), "role": "user", "content": "x"} for number in range(5)]
        await store.responses.save(record("resp_2", context=await end_of(store, "resp_1"), input=asked))
        stored = await store.responses.get("a", "resp_2")
        assert stored is not None
        own = HistorySpan(stored.input_begin, stored.input_end)

        async def ids(order: PageOrder, limit: int, **cursor: str) -> tuple[str, bool]:
            page = await store.histories.page(own, order, limit, Cursor(**cursor))
            assert page is not None
            return "".join(item["id"] for item in page.items), page.more

        assert await ids("asc", 10) == ("01234", False)
        assert await ids("desc", 2) == ("43", True)
        assert await ids("asc", 2, after="1") == ("23", True)
        assert await ids("asc", 2, before="3") == ("12", True)
        assert await ids("desc", 9, before="3") == ("4", False)
        assert await ids("asc", 2, after="0", before="4") == ("12", True)
        assert await store.histories.page(own, "asc", 2, Cursor(after="old")) is None
        assert await store.histories.page(HistorySpan(own.end, own.end), "asc", 2, Cursor()) == ([], False)

    play(opening, test)


def test_work_for_all_processes_is_done_by_one(opening: Opening) -> None:
    async def test(store: Store, _database: Database, clock: Clock) -> None:
        assert await store.upkeep.lease("clean-up", 10)
        assert not await store.upkeep.lease("clean-up", 10)
        assert await store.upkeep.lease("other", 10)
        clock.now += 11
        assert await store.upkeep.lease("clean-up", 10)

    play(opening, test)


def test_work_goes_on_after_the_clock_was_set_back(opening: Opening) -> None:
    """A machine often starts with a wrong clock: nothing that expires would be deleted until its time has come."""

    async def test(store: Store, _database: Database, clock: Clock) -> None:
        assert await store.upkeep.lease("clean-up", 10)
        clock.now -= 86_400
        assert await store.upkeep.lease("clean-up", 10)
        clock.now -= 0.1  # clocks of two processes may differ a little
        assert not await store.upkeep.lease("clean-up", 10)

    play(opening, test)


def test_a_secret_stays_the_same(opening: Opening) -> None:
    async def test(store: Store, _database: Database, _clock: Clock) -> None:
        first = await store.secret("seal")
        assert len(first) == 32
        assert await store.secret("seal") == first
        assert await store.secret("other") != first

    play(opening, test)


def test_a_lone_surrogate_is_replaced(opening: Opening) -> None:
    async def test(store: Store, _database: Database, _clock: Clock) -> None:
        odd = {"id": "a\ud800\0", "role": "user", "content": "b\ud800\0"}
        assert await store.responses.save(record("resp_1", input=[odd]))
        (item,) = await store.histories.items(await end_of(store, "resp_1"))
        assert item["content"] == "b?\0"
        assert await store.responses.get("a", "\ud800\0") is None

    play(opening, test)


def test_two_processes_share_a_database(new_database: Callable[[], Database]) -> None:
    async def test() -> None:
        one, two = (Store(new_database(), 1000.0, Clock()) for _ in range(2))
        await asyncio.gather(one.open(), two.open())
        try:
            if isinstance(database := one.database, Sqlite) and database.path is None:
                return  # memory is nobody else's
            both = [(name, number, store) for number in range(20) for name, store in (("one", one), ("two", two))]
            await asyncio.gather(
                *(store.responses.save(record(f"{name}_{number}", input=[USER])) for name, number, store in both)
            )
            assert await one.responses.get("a", "two_19") is not None
            assert await one.secret("seal") == await two.secret("seal")
            deleted = await asyncio.gather(*(store.responses.delete("a", f"{name}_{number}") for name, number, store in both))
            assert all(deleted)
            assert set((await rows(database)).values()) == {0}
        finally:
            await asyncio.gather(one.close(), two.close())

    asyncio.run(test())


def test_several_clean_up_at_once(new_database: Callable[[], Database]) -> None:
    async def test() -> None:
        clock = Clock()
        stores = [Store(new_database(), 1000.0, clock) for _ in range(3)]
        await asyncio.gather(*(store.open() for store in stores))
        try:
            for number in range(250):
                await stores[0].responses.save(record(f"resp_{number}", input=[LONG], output=[said(number)]))
            clock.now += 2000
            fresh = record("fresh", created_at=clock.now, input=[LONG], output=[said(1)])
            removed = await asyncio.gather(stores[0].responses.save(fresh), *(store.upkeep.clean_up() for store in stores))
            assert sum(removed[1:]) >= 250
            counted = await rows(stores[0].database)
            assert (counted["responses"], counted["nodes"], counted["items"]) == (1, 2, 1)
        finally:
            await asyncio.gather(*(store.close() for store in stores))

    if isinstance(database := new_database(), Sqlite) and database.path is None:
        return  # memory is nobody else's
    asyncio.run(test())


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    async def test() -> None:
        store = Store(Sqlite(tmp_path / "state" / "x"), 1000.0, Clock())
        await store.open()
        await store.close()

    asyncio.run(test())
    assert (tmp_path / "state" / "x").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_the_store_of_another_version_is_left_alone(opening: Opening, version: int) -> None:
    async def test(store: Store, database: Database, _clock: Clock) -> None:
        await store.responses.save(record("resp_1", input=[USER]))
        await database.run(lambda sql: sql.execute("UPDATE version SET number = ?", (version,)).rowcount)
        if isinstance(database, Sqlite) and database.path is None:
            return
        reason = f"tables of version {version}, this gateway needs {VERSION}: let the setting `store` name an empty"
        with pytest.raises(StoreUnavailable, match=reason):
            async with opening():
                pass
        await database.run(lambda sql: sql.execute("UPDATE version SET number = ?", (VERSION,)).rowcount)
        async with opening() as (again, _, _):
            assert await again.responses.get("a", "resp_1") is not None

    play(opening, test)


def test_a_store_that_cannot_be_reached_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "file").write_text("not a folder")
        with pytest.raises(StoreUnavailable, match="cannot open"):
            await Store(Sqlite(tmp_path / "file" / "x"), 1000.0, Clock()).open()
        (tmp_path / "other").write_text("not a database, but longer than its header would be" * 20)
        with pytest.raises(StoreUnavailable, match="not a database"):
            await Store(Sqlite(tmp_path / "other"), 1000.0, Clock()).open()

    asyncio.run(test())


# ---- what hosted calls told the model ------------------------------------------------------------------------------------

HIT = b'{"text":"found \xc3\xa9"}'


def searched(number: int) -> str:
    return f'{{"type":"web_search_call","id":"ws_{number}","status":"completed","action":{{"type":"search"}}}}'


def test_results_are_kept_beside_their_items_and_go_with_them(opening: Opening) -> None:
    async def test(store: Store, database: Database, _clock: Clock) -> None:
        async def kept() -> int:
            count = "SELECT count(*) FROM items WHERE result IS NOT NULL"
            return int(await database.run(lambda sql: sql.execute(count).fetchone()[0]))

        await store.responses.save(record("resp_1", input=[USER], output=[searched(1), said(2)], results={"ws_1": HIT}))
        assert await store.hosted_calls.results("a", ["msg_2", "ws_1", "ws_9"], 1000) == {"ws_1": HIT}
        assert await store.hosted_calls.results("b", ["ws_1"], 1000) == {}
        stored = await store.responses.get("a", "resp_1")
        assert stored is not None
        assert "found" not in stored.json
        assert "found" not in str(await store.histories.find("a", ["ws_1"]))

        conversation = await store.conversations.create("a", {}, [])
        await store.responses.save(record("resp_2", context=stored.end, input=[USER], output=[said(3)]))
        await store.responses.save(record("resp_3", conversation=conversation.id, output=[searched(4)], results={"ws_4": HIT}))
        assert await store.responses.delete("a", "resp_1")
        assert await store.responses.delete("a", "resp_3")
        assert set(await store.hosted_calls.results("a", ["ws_1", "ws_4"], 1000)) == {
            "ws_1",
            "ws_4",
        }  # both are still in a history
        assert await store.responses.delete("a", "resp_2")
        assert await store.hosted_calls.results("a", ["ws_1", "ws_4"], 1000) == {"ws_4": HIT}
        assert await store.conversations.delete("a", conversation.id)
        assert await kept() == 0

    play(opening, test)


def test_results_of_a_response_in_the_background_are_kept_at_its_end(opening: Opening) -> None:
    async def test(store: Store, _database: Database, _clock: Clock) -> None:
        running = record("resp_1", status="in_progress", input=[USER], background=True, detached=True)
        await store.running.begin(running, Running("worker", 2e9), EventRow(0, 1, b""))
        ended = replace(running, status="completed", output=[searched(1)], results={"ws_1": HIT})
        await store.running.end(ended, EventRow(1, 2, b""))
        assert await store.hosted_calls.results("a", ["ws_1"], 1000) == {"ws_1": HIT}

    play(opening, test)


def test_of_many_results_the_newest_are_found(opening: Opening) -> None:
    async def test(store: Store, _database: Database, _clock: Clock) -> None:
        many = {f"ws_{number}": b"x" * 10 for number in range(1000)}
        await store.responses.save(record("resp_1", output=[searched(number) for number in range(1000)], results=many))
        found = await store.hosted_calls.results("a", list(many), 5_005)
        assert list(found) == list(many)[-len(found) :]
        assert 2_500 <= 10 * len(found) <= 5_005

    play(opening, test)


def test_the_room_for_results_is_halved_when_it_is_full() -> None:
    sizes = {str(number): 10 for number in range(8)}
    kept = [recent(dict(list(sizes.items())[:count]), 45) for count in range(1, 9)]
    begins = [int(ids[0]) for ids in kept]
    assert begins == [0, 0, 0, 0, 3, 3, 3, 6]  # they change seldom
    assert all(ids[-1] == str(count) for count, ids in enumerate(kept))
    assert recent({"small": 5, "huge": 100}, 45) == ["small"]
    assert recent(sizes, 0) == []


# ---- the default file ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["{}/file", "~nobody-here"], ids=["no folder", "no home"])
def test_without_a_place_for_the_default_file_responses_are_kept_in_memory(
    state: str, tmp_path: Path, monkeypatch: Any
) -> None:
    async def test() -> None:
        store = await open_store(Settings())
        assert store is not None
        assert isinstance(store.database, Sqlite)
        assert store.database.path is None
        await store.close()
        with pytest.raises(StoreUnavailable, match="several workers need a file"):
            await open_store(Settings(workers=2))

    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_STATE_HOME", state.format(tmp_path))
    asyncio.run(test())


def test_a_default_file_of_another_version_is_not_passed_over(tmp_path: Path, monkeypatch: Any) -> None:
    async def test() -> None:
        store = await open_store(Settings())
        assert store is not None
        await store.database.run(lambda sql: sql.execute("UPDATE version SET number = number + 1").rowcount)
        await store.close()
        with pytest.raises(StoreUnavailable, match=r"responses\.sqlite3: the store has tables of version"):
            await open_store(Settings())

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    asyncio.run(test())
