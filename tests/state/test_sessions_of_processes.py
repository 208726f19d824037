"""Sessions whose requests are those of several processes: workers, and replicas that share only a PostgreSQL server; and while
the store is away."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import create_app, serving
from tests.server.gateway_process import QUESTION, SEVERAL, Program, fresh_connections, program
from tests.server.running_gateway import Served, ask, gateway, post, run
from tests.waiting import PATIENCE

ADMIN = "the-admin-key-of-this-gateway"
HEADERS = {"Authorization": f"Bearer {ADMIN}"}
THREADS = ("root", "child", "grandchild")
Row = dict[str, Any]


def headers(number: int) -> dict[str, str]:
    """Return the headers of a request of one of three threads, each of which the one before began."""
    at = number % len(THREADS)
    parent = {} if at == 0 else {"x-dynamo-parent-session-id": THREADS[0]}
    return {"x-dynamo-session-id": THREADS[at], **parent}


def shape(threads: list[Row]) -> list[Any]:
    """Return the tree of threads: the name of each, how many requests it had, and its children."""
    return [(each["thread"], len(each["requests"]), shape(each["threads"])) for each in threads]


def tree(requests: int) -> list[Any]:
    """Return the shape of a session to which so many requests were sent."""
    each = requests // len(THREADS)
    return [("root", each, [("child", each, []), ("grandchild", each, [])])]


async def row_of(served: Served) -> Row | None:
    """Return the row of the one session."""
    answer = await ask(served, "GET", "/admin/sessions", headers=HEADERS)
    assert answer.status == 200, answer.body
    rows: list[Row] = answer.json["data"]
    assert len(rows) <= 1
    return rows[0] if rows else None


async def row_in_which(served: Served, wanted: Callable[[Row], bool]) -> Row:
    """Return the row of the one session, once this is true of it."""
    async with asyncio.timeout(PATIENCE):
        while (row := await row_of(served)) is None or not wanted(row):
            pass
    return row


async def tree_of(served: Served, row: Row) -> list[Any]:
    answer = await ask(served, "GET", f"/admin/sessions/{row['id']}", headers=HEADERS)
    assert answer.status == 200, answer.body
    return shape(answer.json["threads"])


async def read(running: Program, session: aiohttp.ClientSession, path: str) -> Any:
    async with session.get(f"{running.url}{path}", headers=HEADERS) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


@pytest.mark.slow
@pytest.mark.parametrize("stored", [False, True])
def test_every_worker_shows_the_session_of_all(stored: bool, tmp_path: Path) -> None:
    store = str(tmp_path / "store.sqlite3") if stored else "none"

    async def test() -> None:
        flags = ("--simulator", *SEVERAL, "--no-adapt", "--store", store, "--admin-key", ADMIN)
        async with program(*flags) as running, fresh_connections() as session:
            for number in range(30):
                body = {**QUESTION, "input": "scenario: plain tps: 2000"}
                async with session.post(f"{running.url}/v1/responses", json=body, headers=headers(number)) as answer:
                    assert answer.status == 200
                    await answer.read()
            totals = set()
            for _ in range(8):  # each time another worker may answer
                (row,) = (await read(running, session, "/admin/sessions"))["data"]
                one = await read(running, session, f"/admin/sessions/{row['id']}")
                assert (row["session"], row["requests"], row["agents"], row["running"]) == ("root", 30, 3, False)
                assert shape(one["threads"]) == tree(30)
                totals.add(row["output_tokens"])
            assert len(totals) == 1

    run(test())


@pytest.mark.slow
def test_the_time_of_tools_is_right_whichever_workers_have_the_turns(tmp_path: Path) -> None:
    tools = [{"type": "function", "name": "run", "parameters": {"type": "object", "properties": {}}}]

    async def test() -> None:
        flags = ("--simulator", "--workers", "2", "--no-adapt", "--store", str(tmp_path / "store.sqlite3"))
        async with program(*flags, "--admin-key", ADMIN) as running, fresh_connections() as session:
            items: list[Row] = [{"role": "user", "content": "scenario: tool tps: 200"}]
            for _ in range(14):
                body = {**QUESTION, "input": items, "tools": tools, "stream": False}
                async with session.post(f"{running.url}/v1/responses", json=body, headers=headers(0)) as answer:
                    output = (await answer.json())["output"]
                calls = [item for item in output if item["type"] == "function_call"]
                results = [{"type": "function_call_output", "call_id": call["call_id"], "output": "done"} for call in calls]
                items += [*output, *results, {"role": "user", "content": "scenario: tool tps: 200"}]
            (row,) = (await read(running, session, "/admin/sessions"))["data"]
            one = await read(running, session, f"/admin/sessions/{row['id']}")
            (thread,) = one["threads"]
            requests = thread["requests"]
            assert (len(requests), requests[0].get("tools")) == (14, None)
            pauses = [after["started"] - before["ended"] for before, after in pairwise(requests)]
            assert [each["tools"] for each in requests[1:]] == pytest.approx(pauses)
            assert row["tools"] == one["tools"] == pytest.approx(sum(pauses))

    run(test())


@pytest.mark.slow
def test_replicas_show_one_session_which_survives_both(postgres_url: str) -> None:
    settings: dict[str, Any] = {"store": postgres_url, "admin_key": ADMIN}

    async def test() -> None:
        async with serving(create_app()) as url:
            async with gateway(url, **settings) as one, gateway(url, **settings) as two:
                for number in range(12):
                    await post(two if number % 2 else one, headers=headers(number))
                rows = [await row_in_which(served, lambda row: row["requests"] == 12) for served in (one, two)]
                assert rows[0]["output_tokens"] == rows[1]["output_tokens"] > 0
                assert [await tree_of(served, rows[0]) for served in (one, two)] == [tree(12)] * 2
                await one.parts.pool.close()  # its idle connections would count as tasks that the other one left
            async with gateway(url, **settings) as served:
                row = await row_of(served)
                assert row is not None
                assert {**row, "age": 0} == {**rows[0], "age": 0}
                assert await tree_of(served, row) == tree(12)

    run(test())


def test_sessions_are_shown_while_the_store_is_away_and_nothing_of_them_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet_store: None
) -> None:
    monkeypatch.setattr("responses_gateway.state.sqlite.BUSY_TIMEOUT", 0.05)
    path = tmp_path / "store.sqlite3"

    async def test() -> None:
        async with serving(create_app()) as url:
            async with gateway(url, store=str(path), admin_key=ADMIN) as served:
                await post(served, headers=headers(0), store=False)
                other = sqlite3.connect(path, isolation_level=None)
                other.execute("BEGIN EXCLUSIVE")
                for number in range(1, 6):
                    answer = await post(served, headers=headers(number), store=False)
                    assert answer.final["status"] == "completed"
                row = await row_of(served)
                assert row is not None
                assert row["requests"] == 6
                assert await tree_of(served, row) == tree(6)
                other.execute("ROLLBACK")
                other.close()
            async with gateway(url, store=str(path), admin_key=ADMIN) as served:
                assert (await row_in_which(served, lambda row: row["requests"] == 6))["agents"] == 3
                assert await tree_of(served, row) == tree(6)

    run(test())


def test_what_waits_for_a_store_that_is_away_is_bounded_and_another_key_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet_store: None
) -> None:
    monkeypatch.setattr("responses_gateway.state.sqlite.BUSY_TIMEOUT", 0.05)
    monkeypatch.setattr("responses_gateway.server.features.sessions.memory.MOST_OF_TENANT", 5)
    keys = {name: f"a-key-of-{name}-that-is-long-enough" for name in ("alice", "bob")}
    hashes = {name: hash_of(key) for name, key in keys.items()}
    settings: dict[str, Any] = {"store": str(tmp_path / "store.sqlite3"), "admin_key": ADMIN, "api_keys": hashes}

    async def rows_of(served: Served, key: str) -> list[Row]:
        answer = await ask(served, "GET", f"/admin/sessions?key={key}", headers=HEADERS)
        assert answer.status == 200, answer.body
        rows: list[Row] = answer.json["data"]
        return rows

    async def test() -> None:
        def sent(key: str, session: str) -> Any:
            return post(served, headers={"Authorization": f"Bearer {keys[key]}", "x-session-id": session}, store=False)

        last = {f"s{number}" for number in range(15, 20)}
        async with serving(create_app()) as url:
            async with gateway(url, **settings) as served:
                await sent("bob", "quiet")
                other = sqlite3.connect(settings["store"], isolation_level=None)
                other.execute("BEGIN EXCLUSIVE")
                for number in range(20):
                    await sent("alice", f"s{number}")
                await sent("bob", "quiet")
                assert {row["session"] for row in await rows_of(served, "alice")} == last
                other.execute("ROLLBACK")
                other.close()
            async with gateway(url, **settings) as served:
                (row,) = await rows_of(served, "bob")
                assert row["requests"] == 2
                assert await tree_of(served, row) == [("quiet", 2, [])]
                assert {row["session"] for row in await rows_of(served, "alice")} >= last

    run(test())
