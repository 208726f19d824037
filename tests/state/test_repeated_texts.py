"""Long texts that responses repeat are stored once for each tenant, and go with the last response."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from responses_gateway.server.generation.background.response import end_lost
from responses_gateway.state import Database, EventRow, NewEvents, ResponseRecord, Running, Store, repeated_texts
from responses_gateway.state.interfaces import Sql
from tests.state.conftest import Clock, Opening
from tests.state.test_store_contract import USER, play, record, rows, said

INSTRUCTIONS = json.dumps("Do this. é " * 2000, ensure_ascii=False)
TOOLS = json.dumps([{"type": "function", "name": f"tool_{number}", "description": "x" * 500} for number in range(50)])
TAIL = f'],"usage":null,"instructions":{INSTRUCTIONS},"temperature":1,"tools":{TOOLS},"x":1}}'
TEXTS = [INSTRUCTIONS, TOOLS]

GONE = partial(end_lost, message="gone")


def codex(name: str, **fields: Any) -> ResponseRecord:
    return record(name, tail=TAIL, repeated=TEXTS, **fields)


async def stored_bytes(database: Database) -> int:
    def work(sql: Sql) -> int:
        columns = (("responses", "head"), ("responses", "tail"), ("items", "body"), ("events", "data"))
        lengths = (sql.execute(f"SELECT coalesce(sum(length({column})), 0) FROM {table}") for table, column in columns)
        return sum(int(row.fetchone()[0]) for row in lengths)

    return await database.run(work)


def test_what_repeats_is_stored_once_and_comes_back_byte_for_byte(opening: Opening) -> None:
    async def test(store: Store, database: Database, _clock: Clock) -> None:
        await store.responses.save(codex("resp_0", input=[USER], output=[said(0)]))
        first = await stored_bytes(database)
        for number in range(1, 51):
            await store.responses.save(codex(f"resp_{number}", input=[USER], output=[said(number)]))
        assert first > 45_000
        assert (await stored_bytes(database) - first) / 50 < 300
        stored = await store.responses.get("a", "resp_7")
        assert stored is not None
        assert stored.json == f'{{"id":"resp_7","status":"completed","output":[{said(7)}{TAIL}'

    play(opening, test)


def test_repeated_texts_go_with_the_last_response_that_has_them(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        for number in range(3):
            await store.responses.save(codex(f"resp_{number}", created_at=clock.now + 100 * number))
        await store.responses.save(record("other", tail=f'],"tools":{TOOLS}}}', repeated=[TOOLS]))
        clock.now += 1050  # the first one and `other` have expired
        await store.upkeep.clean_up()
        await store.responses.delete("a", "resp_1")
        stored = await store.responses.get("a", "resp_2")
        assert stored is not None
        assert stored.json.endswith(TAIL)
        assert (await rows(database))["items"] == 2
        await store.responses.delete("a", "resp_2")
        assert set((await rows(database)).values()) == {0}

    play(opening, test)


def test_tenants_share_nothing(opening: Opening) -> None:
    async def test(store: Store, database: Database, _clock: Clock) -> None:
        await store.responses.save(codex("resp_1"))
        await store.responses.save(replace(codex("resp_2"), tenant="b"))
        assert (await rows(database))["items"] == 4
        assert await store.histories.find("a", [""]) == {}

    play(opening, test)


def test_a_text_that_equals_an_item_is_another_thing(opening: Opening) -> None:
    async def test(store: Store, _database: Database, _clock: Clock) -> None:
        text = json.dumps({"role": "user", "content": "y" * 2000}, indent=1)
        tail = f'],"metadata":{text}}}'
        await store.responses.save(record("resp_1", input=[json.loads(text)], tail=tail, repeated=[text]))
        stored = await store.responses.get("a", "resp_1")
        assert stored is not None
        assert stored.json.endswith(tail)

    play(opening, test)


def test_the_log_of_a_running_response_shares_them_too(opening: Opening) -> None:
    def snapshot(kind: str, number: int) -> bytes:
        return f'event: {kind}\ndata: {{"sequence_number":{number},"response":{{"output":[{TAIL}}}\n\n'.encode()

    async def test(store: Store, database: Database, clock: Clock) -> None:
        begun = codex("resp_1", status="queued", background=True, detached=True, input=[USER])
        first = snapshot("created", 0) + snapshot("queued", 1)
        await store.running.begin(begun, Running("w", clock.now + 10), EventRow(0, 2, first))
        await store.events.append([NewEvents(begun, EventRow(2, 3, snapshot("in_progress", 2)))])
        await store.events.append([NewEvents(begun, EventRow(3, 4, b'data: {"delta":"\\u001f"}\n\n'))])
        last = snapshot("completed", 4)
        await store.running.end(replace(begun, status="completed", output=[said(1)]), EventRow(4, 5, last))
        log = b"".join(row.data for row in await store.events.read("resp_1", -1))
        assert log == first + snapshot("in_progress", 2) + b'data: {"delta":"\\u001f"}\n\n' + last
        assert await stored_bytes(database) < 60_000

    play(opening, test)


def test_a_response_whose_worker_died_shares_them_too(opening: Opening) -> None:
    async def test(store: Store, database: Database, clock: Clock) -> None:
        begun = codex("resp_1", status="in_progress", background=True, detached=True, input=[USER])
        await store.running.begin(begun, Running("w", clock.now + 10), EventRow(0, 1, b"event: x\ndata: {}\n\n"))
        clock.now += 11
        assert await store.running.end_abandoned(GONE) == ["resp_1"]
        stored = await store.responses.get("a", "resp_1")
        assert stored is not None
        last = (await store.events.read("resp_1", 0))[-1].data
        response = json.loads(last.partition(b"data: ")[2])["response"]
        assert response == json.loads(stored.json)
        assert (response["status"], response["tools"]) == ("failed", json.loads(TOOLS))
        assert await stored_bytes(database) < 60_000

    play(opening, test)


@pytest.mark.parametrize("repeated", [[], ["long"], ["long", "text"], ["text", "long"], ["absent", "long"]])
@pytest.mark.parametrize("text", ["", "long", "a long b text c", "long text long text long", "a \x1f b long text"])
def test_what_is_shortened_comes_back(text: str, repeated: list[str]) -> None:
    escaped = text.replace("\x1f", "\\u001f") if repeated else text
    assert repeated_texts.restored(repeated_texts.shortened(text, repeated), repeated) == escaped
    short = repeated_texts.shortened_events(text.encode(), repeated)
    assert repeated_texts.restored_events(short, repeated) == escaped.encode()
