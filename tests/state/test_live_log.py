"""The events of running responses in Redis or Valkey: a real server, killed and started again."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from responses_gateway.server.setup.store import open_store
from responses_gateway.settings import Settings
from responses_gateway.simulator import COUNTERS, DIALECTS, SimulatorOptions, create_app, serving
from responses_gateway.state import (
    EventRow,
    EventsUnavailable,
    NewEvents,
    ResponseRecord,
    Running,
    Sqlite,
    Store,
    StoreUnavailable,
    events,
)
from tests.judges import judge_stream
from tests.server.generation.test_takeover import silence, stuck
from tests.server.running_gateway import LOOPS, Served, ask, assert_error, events_of, gateway, post, run, until
from tests.state.database_servers import RedisServer
from tests.waiting import PATIENCE

SLOW = "tokens: 120 tps: 60"
ENDLESS = "scenario: long tokens: 5000 tps: 100"


pytestmark = pytest.mark.usefixtures("quiet_store")


async def start(served: Served, text: str = SLOW) -> str:
    answer = await post(served, input=text, background=True, stream=False)
    assert answer.status == 200, answer.body
    return str(answer.json["id"])


async def written(served: Served, name: str, number: int) -> None:
    """Wait until an event of this number is in the log."""
    store = served.parts.store
    assert store is not None
    while True:
        if await store.events.read(name, number - 1):
            return
        await asyncio.sleep(0.01)


async def ended(served: Served, name: str) -> dict[str, Any]:
    while True:
        response: dict[str, Any] = (await ask(served, "GET", f"/v1/responses/{name}")).json
        if response["status"] not in ("queued", "in_progress"):
            return response
        await asyncio.sleep(0.02)


async def stream(served: Served, name: str, after: int = -1) -> bytes:
    return (await ask(served, "GET", f"/v1/responses/{name}?stream=true&starting_after={after}")).body


@asynccontextmanager
async def two(backend: str, server: RedisServer, store: str) -> AsyncIterator[tuple[Served, Served]]:
    async with (
        gateway(backend, store=store, events=server.url) as one,
        gateway(backend, store=store, events=server.url) as other,
    ):
        yield one, other


def assert_whole(body: bytes, response: dict[str, Any]) -> None:
    assert judge_stream(body) == []
    events = events_of(body)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["response"] == response


def test_the_log_is_written_again_when_the_server_has_lost_it(redis_server: RedisServer) -> None:
    async def test() -> None:
        writer = redis_server.log()
        reader = redis_server.log()
        await writer.append("r", EventRow(0, 2, b"a"))
        redis_server.kill()
        with pytest.raises(EventsUnavailable):
            await writer.append("r", EventRow(2, 3, b"b"))
        with pytest.raises(EventsUnavailable):
            await reader.read("r", -1, 0.1)
        redis_server.start()
        assert await reader.read("r", -1, 0) == []
        await writer.append("r", EventRow(2, 4, b"bc"))
        assert await reader.read("r", -1, 0) == [EventRow(0, 4, b"abc")]
        await writer.close()
        await reader.close()

    run(test())


def test_nothing_is_appended_after_the_end(redis_server: RedisServer) -> None:
    async def test() -> None:
        writer = redis_server.log()
        other = redis_server.log()
        await writer.append("r", EventRow(0, 2, b"a"))
        await other.end("r", EventRow(2, 3, b"failed"))
        await writer.append("r", EventRow(2, 3, b"b"))  # it was taken for dead, and did not know
        assert b"b" not in b"".join(row.data for row in await other.read("r", -1, 0))
        await writer.close()
        await other.close()

    run(test())


def test_who_takes_a_log_over_is_the_only_one_to_write_it(redis_server: RedisServer) -> None:
    async def test() -> None:
        slow = redis_server.log()
        other = redis_server.log()
        await slow.append("r", EventRow(0, 2, b"a", b"A"))
        assert await other.adopt("r") == [EventRow(0, 2, b"a", b"A")]
        await slow.append("r", EventRow(2, 3, b"b"))
        await slow.append("r", EventRow(3, 4, b"c"))
        await slow.end("r", None)
        await other.append("r", EventRow(2, 3, b"d"))
        assert [row.data for row in await slow.read("r", -1, 0)] == [b"a", b"d"]
        await other.end("r", EventRow(3, 4, b"e"))
        assert [row.data for row in await slow.read("r", -1, 0)] == [b"a", b"d", b"e"]
        await slow.close()
        await other.close()

    run(test())


def test_who_was_too_slow_leaves_the_log_to_the_next(redis_server: RedisServer, tmp_path: Any) -> None:
    """Its response ends there before it knows that it is not its own any more, and before the other one has read the log."""

    async def test() -> None:
        now = 1_000_000.0
        path = tmp_path / "x.sqlite3"
        slow, other = (Store(Sqlite(path), 1000.0, lambda: now, redis_server.log()) for _ in range(2))
        await slow.open()
        await other.open()
        record = ResponseRecord(
            "r", "a", now, "queued", '{"id":"r","status":"queued","output":[', "]}", detached=True, worker="slow"
        )
        await slow.running.begin(record, Running("slow", now - 1, b"request"), EventRow(0, 2, b"a", b"A"))
        await slow.events.append([NewEvents(record, EventRow(2, 3, b"b", b"B"))])
        (orphan,) = await other.running.take_over(Running("other", now + 10), 1)
        assert not await slow.running.end(replace(record, status="completed"), EventRow(3, 4, b"x"))
        assert [row.data for row in (await other.running.adopt(orphan)).rows] == [b"a", b"b"]
        mine = replace(record, status="completed", worker="other")
        assert await other.running.end(mine, EventRow(3, 4, b"c"))
        assert b"".join(row.data for row in await slow.events.read("r", -1)) == b"abc"
        await slow.close()
        await other.close()

    run(test())


def test_a_response_whose_gateway_and_events_are_gone_ends_for_its_readers(
    redis_server: RedisServer, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a client was, it gets the terminal event, as the next one."""

    async def test() -> None:
        settings: dict[str, Any] = {"store": str(tmp_path / "x.sqlite3"), "events": redis_server.url, "adapt": False}
        options = SimulatorOptions(dialect=DIALECTS["vllm"])
        async with (
            serving(create_app(options)) as url,
            gateway(url, **settings, continue_answers=1) as one,
            gateway(url, **settings, continue_answers=1) as other,
        ):
            store = other.parts.store
            assert store is not None
            await silence(other)
            name = await stuck(one)
            slow = one.parts.background
            assert slow is not None
            assert one.parts.store is not None
            halted = asyncio.Event()
            wakes = asyncio.Event()

            async def halts(*_: Any) -> None:
                halted.set()
                await wakes.wait()

            monkeypatch.setattr(one.parts.store.events, "append", halts)
            await until(lambda: halted.is_set() or slow.events.idle)
            seen = events_of(b"".join(row.data for row in await store.events.read(name, -1)))[-1]["sequence_number"]
            following = asyncio.create_task(stream(other, name, seen))
            redis_server.kill()
            redis_server.start()
            async with gateway(url, **settings, continue_answers=1) as third:
                response = await ended(third, name)
                assert response["status"] == "failed"
                body = await stream(third, name)
                assert judge_stream(body) == []
                assert events_of(body)[-1]["response"] == response
                for rest in (await following, await stream(third, name, seen)):
                    (last,) = events_of(rest)
                    assert (last["type"], last["sequence_number"]) == ("response.failed", seen + 1)
                assert third.metric("continuations_total", outcome="failed", reason="events_lost") == 1
                wakes.set()
                await slow.renew_claims()
                await until(lambda: not slow.running)
                await one.parts.pool.close()

    run(test())


def test_what_is_deleted_while_nobody_runs_it_leaves_nothing(redis_server: RedisServer, tmp_path: Any) -> None:
    async def test() -> None:
        now = 1_000_000.0
        store = Store(Sqlite(tmp_path / "x.sqlite3"), 1000.0, lambda: now, redis_server.log())
        await store.open()
        record = ResponseRecord(
            "r", "a", now, "queued", '{"id":"r","status":"queued","output":[', "]}", detached=True, worker="dead"
        )
        await store.running.begin(record, Running("dead", now - 1, b"request"), EventRow(0, 2, b"a", b"A"))
        await store.close()
        other = redis_server.log()
        store = Store(Sqlite(tmp_path / "x.sqlite3"), 1000.0, lambda: now, other)
        await store.open()
        assert await store.responses.delete("a", "r")
        assert await other.read("r", -1, 0) == []
        assert await store.running.take_over(Running("other", now + 10), 1) == []
        await store.close()

    run(test())


def test_a_reader_waits_for_events(redis_server: RedisServer) -> None:
    async def test() -> None:
        writer = redis_server.log()
        reader = redis_server.log()
        await writer.append("r", EventRow(0, 2, b"a"))
        assert await reader.read("r", 1, 0.01) == []
        reading = asyncio.create_task(reader.read("r", 1, 10))
        await writer.append("r", EventRow(2, 3, b"b"))
        assert await reading == [EventRow(2, 3, b"b")]
        cancelled: list[str] = []
        watching = asyncio.create_task(reader.watch(cancelled.append))
        while not cancelled:  # the first may come before anybody watches
            await writer.cancel("r")
            await asyncio.sleep(0.01)
        watching.cancel()
        await writer.close()
        await reader.close()

    run(test())


def test_a_reader_that_is_too_far_behind_gets_everything_at_the_end(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("responses_gateway.state.redis.MAX_PIECES", 10)

    async def test() -> None:
        store = Store(Sqlite(None), 1000.0, time.time, redis_server.log())
        await store.open()
        head = '{"id":"resp_1","status":"queued","output":['
        record = ResponseRecord("resp_1", "a", time.time(), "queued", head, "]}", background=True, detached=True)
        await store.running.begin(record, Running("w", time.time() + 60), EventRow(0, 1, b"0"))
        for number in range(1, 400):
            await store.events.append([NewEvents(record, EventRow(number, number + 1, b"."))])
        assert await store.events.read("resp_1", -1) == []
        assert (await store.events.read("resp_1", 397))[0].first == 398
        await store.running.end(replace(record, status="completed"), EventRow(400, 401, b"1"))
        (whole,) = await store.events.read("resp_1", -1)
        assert whole == EventRow(0, 401, b"0" + b"." * 399 + b"1")
        await store.close()

    run(test())


@pytest.mark.parametrize("store", ["file", "postgres"])
def test_started_here_followed_and_cancelled_there(
    store: str, redis_server: RedisServer, tmp_path: Any, request: pytest.FixtureRequest
) -> None:
    place = str(tmp_path / "x.sqlite3") if store == "file" else request.getfixturevalue("postgres_url")

    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, two(url, redis_server, place) as (one, other):
            name = await start(one, "tokens: 200 tps: 400")
            body = await stream(other, name)
            response = await ended(one, name)
            assert_whole(body, response)
            assert await stream(other, name) == body == await stream(one, name)
            for after in (0, 7, len(events_of(body)) - 1):
                assert events_of(await stream(other, name, after)) == events_of(body)[after + 1 :]
            follow_up = await post(other, previous_response_id=name, input="scenario: plain")
            assert follow_up.final["status"] == "completed"
            name = await start(one, ENDLESS)
            following = asyncio.create_task(stream(other, name))
            await until(lambda: backend[COUNTERS].running, "the backend is at work")
            cancelled = await ask(other, "POST", f"/v1/responses/{name}/cancel")
            assert cancelled.json["status"] == "cancelled"
            assert events_of(await following)[-1]["response"]["error"]["message"] == "The response was cancelled."
            await until(lambda: not backend[COUNTERS].running, "the backend is free")
            name = await start(one, ENDLESS)
            await until(lambda: backend[COUNTERS].running, "the backend is at work")
            assert (await ask(other, "DELETE", f"/v1/responses/{name}")).status == 200
            await until(lambda: not backend[COUNTERS].running, "the backend is free")
            await one.parts.pool.close()  # its idle connections would count as tasks that the other one left

    run(test())


@pytest.mark.slow
def test_responses_go_on_while_the_server_is_gone(redis_server: RedisServer, tmp_path: Any) -> None:
    async def test() -> None:
        async with serving(create_app()) as url, two(url, redis_server, str(tmp_path / "x.sqlite3")) as (one, other):
            name = await start(one)
            following = [asyncio.create_task(stream(served, name)) for served in (one, other)]
            await written(one, name, 11)
            redis_server.kill()
            message = assert_error(await ask(other, "GET", f"/v1/responses/{name}?stream=true"), 503)
            assert "GET /v1/responses/{id} without 'stream'" in message
            assert_error(await post(one, background=True, stream=False), 503)
            assert (await ask(other, "GET", f"/v1/responses/{name}")).json["status"] in ("queued", "in_progress")
            assert (await post(one)).final["status"] == "completed"
            redis_server.start()
            late = asyncio.create_task(stream(other, name))
            response = await ended(one, name)
            assert response["status"] == "completed"
            for body in (*await asyncio.gather(*following), await late):
                assert_whole(body, response)
            await ended(one, await start(other, "scenario: plain"))
            await one.parts.pool.close()

    run(test())


@pytest.mark.slow
def test_responses_end_truthfully_without_the_server(redis_server: RedisServer, tmp_path: Any) -> None:
    async def test() -> None:
        async with serving(create_app()) as url, two(url, redis_server, str(tmp_path / "x.sqlite3")) as (one, other):
            name = await start(one)
            endless = await start(one, ENDLESS)
            redis_server.kill()
            assert (await ask(other, "POST", f"/v1/responses/{endless}/cancel")).json["status"] == "cancelled"
            response = await ended(other, name)
            assert response["status"] == "completed"
            for served in (one, other):
                assert_whole(await stream(served, name), response)
            await one.parts.pool.close()

    run(test())


@pytest.mark.slow
@pytest.mark.parametrize("comes_back", [True, False])
def test_what_has_waited_goes_on_if_the_server_goes_while_it_begins(
    comes_back: bool, redis_server: RedisServer, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("responses_gateway.server.features.completion_windows.runner.QUIET_INTERVAL", 0.01)
    begin_journal = events.begin_journal

    def killing(*arguments: Any) -> None:
        redis_server.kill()
        begin_journal(*arguments)

    async def test() -> None:
        async with serving(create_app()) as url, two(url, redis_server, str(tmp_path / "x.sqlite3")) as (one, other):
            monkeypatch.setattr(events, "begin_journal", killing)  # which is done when it begins in the store
            options = {"background_options": {"completion_window": "8h"}}
            name = (await post(one, input=SLOW, background=True, stream=False, **options)).json["id"]
            await until(lambda: not redis_server.running, "it begins")
            monkeypatch.setattr(events, "begin_journal", begin_journal)
            following: list[asyncio.Task[bytes]] = []
            if comes_back:
                redis_server.start()
                following = [asyncio.create_task(stream(served, name)) for served in (one, other)]
            response = await ended(other, name)
            assert response["status"] == "completed"
            for body in (*await asyncio.gather(*following), await stream(other, name)):
                assert_whole(body, response)
            await one.parts.pool.close()
            await other.parts.pool.close()

    run(test())


@pytest.mark.parametrize("url", ["unix:///nowhere/redis.sock", "redis://127.0.0.1:1/0", "redis://:secret@127.0.0.1:none"])
def test_a_server_that_cannot_be_reached_stops_the_start(url: str) -> None:
    pytest.importorskip("redis", reason="the Redis driver is not installed")

    async def test() -> None:
        with pytest.raises(StoreUnavailable) as refused:
            await open_store(Settings(store="memory", events=url))
        assert "secret" not in str(refused.value)

    run(test())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_server_that_closes_every_connection_at_once_is_one_that_is_gone(loop: str) -> None:
    """As a proxy does in front of a server that is gone: the connection ends while the first command is written."""
    redis = pytest.importorskip("responses_gateway.state.redis")

    async def test() -> None:
        log = redis.RedisLog(f"redis://127.0.0.1:{listener.getsockname()[1]}")
        for _ in range(200):
            reads = (log.read("resp_1", -1, 0) for _ in range(8))
            assert {type(outcome) for outcome in await asyncio.gather(*reads, return_exceptions=True)} == {EventsUnavailable}
        await log.close()

    with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:
        listener.settimeout(PATIENCE)
        closing = threading.Thread(target=close_each, args=(listener, ended := threading.Event()))
        closing.start()
        try:
            run(test(), loop)
        finally:
            ended.set()
            socket.create_connection(listener.getsockname()).close()
            closing.join()


def close_each(listener: socket.socket, ended: threading.Event) -> None:
    """Reset all connections to a server."""
    while not ended.is_set():
        connection, _ = listener.accept()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
