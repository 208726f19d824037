"""Running responses, in every kind of store: their logs, and what happens when their worker dies."""

from __future__ import annotations

import json
from dataclasses import replace

from proxy.state import Database, EventRow, Running, Store
from proxy.stream.stored_stream import close_open_item
from tests.state.conftest import Clock, Opening
from tests.state.test_store_contract import USER, play, record, rows, said


def test_the_log_of_a_running_response(opening: Opening) -> None:
    async def test(store: Store, _database: Database, clock: Clock) -> None:
        head = '{"id":"resp_1","status":"queued","output":['
        begun = record("resp_1", status="queued", head=head, background=True, detached=True, input=[USER])
        await store.save(begun, Running("w", clock.now + 10), EventRow(0, 2, b"a"))
        await store.append_events(begun, EventRow(2, 5, b"b"))
        assert [row.data for row in await store.events("resp_1", -1)] == [b"a", b"b"]
        assert [row.data for row in await store.events("resp_1", 1)] == [b"b"]
        assert [row.data for row in await store.events("resp_1", 3)] == [b"b"]
        assert await store.still_alive(["resp_1"], clock.now + 20) == {"resp_1"}
        stored = await store.response("a", "resp_1")
        assert stored is not None
        assert (stored.status, json.loads(stored.json)["status"]) == ("in_progress", "in_progress")
        await store.cancel("b", "resp_1")
        assert await store.still_alive(["resp_1"], clock.now + 20) == {"resp_1"}
        await store.cancel("a", "resp_1")
        assert await store.still_alive(["resp_1"], clock.now + 20) == set()
        ended = replace(begun, status="completed", output=[said(1)])
        assert await store.save(ended, last=EventRow(5, 6, b"c"))
        assert not await store.save(replace(ended, status="failed"), last=EventRow(6, 7, b"d"))
        assert b"".join(row.data for row in await store.events("resp_1", -1)) == b"abc"
        assert [(row.next, row.data[-1:]) for row in await store.events("resp_1", 4)] == [(6, b"c")]
        stored = await store.response("a", "resp_1")
        assert stored is not None
        assert (stored.status, stored.background, said(1) in stored.json) == ("completed", True, True)

    play(opening, test)


def test_a_dead_worker_is_found_and_its_responses_fail(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        begun = record("resp_1", status="queued", background=True, detached=True, input=[USER])
        await store.save(begun, Running("w", clock.now + 10), EventRow(0, 1, b"event: x\ndata: {}\n\n"))
        done = f'data: {{"type":"response.output_item.done","sequence_number":1,"output_index":0,"item":{said(1)}}}\n\n'
        await store.append_events(begun, EventRow(1, 2, done.encode()))
        assert await store.fail_abandoned("server_error", "gone", close_open_item) == []
        clock.now += 11
        assert await store.fail_abandoned("server_error", "gone", close_open_item) == ["resp_1"]
        stored = await store.response("a", "resp_1")
        assert stored is not None
        response = json.loads(stored.json)
        assert (stored.status, response["status"], response["error"]["message"]) == ("failed", "failed", "gone")
        assert [item["id"] for item in response["output"]] == ["msg_1"]
        last = (await store.events("resp_1", 1))[-1]
        assert last.data.startswith(b"event: response.failed\n")
        assert json.loads(last.data.split(b"data: ")[1])["response"] == response
        assert not await store.save(replace(begun, status="completed"))
        await store.delete_response("a", "resp_1")
        assert set((await rows(database)).values()) == {0}

    play(opening, test)


def test_a_worker_that_was_asked_to_cancel_and_died(opening: Opening) -> None:
    async def test(store: Store, _database: Database, clock: Clock) -> None:
        begun = record("resp_1", status="queued", background=True, detached=True, input=[USER])
        await store.save(begun, Running("w", clock.now + 10), EventRow(0, 1, b"event: x\ndata: {}\n\n"))
        await store.cancel("a", "resp_1")
        clock.now += 11
        await store.fail_abandoned("server_error", "gone", close_open_item)
        stored = await store.response("a", "resp_1")
        assert stored is not None
        response = json.loads(stored.json)
        assert (stored.status, response["status"], response["error"]) == ("cancelled", "cancelled", None)
        assert b"The response was cancelled." in (await store.events("resp_1", 0))[-1].data

    play(opening, test)
