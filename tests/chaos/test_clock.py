"""The clock is set by hours while the gateway runs, or the machine slept: nothing that lives is taken for dead."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.server.generation.background.response import end_lost
from responses_gateway.server.generation.background.runner import BEAT
from responses_gateway.state import EventRow, ResponseRecord, Running, Sqlite, Store
from responses_gateway.state.interfaces import Sql
from tests.chaos.faults import ask, at_end, simulators
from tests.server.gateway_process import Program, program
from tests.server.running_gateway import Event, events_of, run, until
from tests.state.database_servers import postgres_running

# `time.time` of a gateway is that of the machine and as many seconds as are in a file.
SET = """
import os, time
machine = time.time
time.time = lambda: machine() + float(open(os.environ["CLOCK"]).read())
"""
HOURS = 3 * 3600.0
JUMPS = pytest.mark.parametrize("jump", [HOURS, -HOURS], ids=["forwards", "backwards"])


async def response(running: Program, name: str) -> Event:
    answer: Event = (await ask(running, "GET", f"/v1/responses/{name}")).json
    return answer


@JUMPS
def test_background_responses_limits_and_streams_go_on(jump: float, tmp_path: Path) -> None:
    """Run two replicas, one of which looks up what the other runs before that one has given a sign of life."""
    clock = tmp_path / "clock"
    clock.write_text("0", encoding="utf-8")
    flags = ("--no-adapt", "--store", str(tmp_path / "x.sqlite3"), "--requests-per-minute", "100", "--idle-timeout", "5")

    async def test() -> None:
        async with (
            simulators() as (behind_us,),
            program("--backend", behind_us.url, *flags, first=SET, CLOCK=str(clock)) as one,
            program("--backend", behind_us.url, *flags, first=SET, CLOCK=str(clock)) as other,
        ):
            name = (await ask(one, background=True, stream=False, input="tokens: 100 tps: 25")).json["id"]
            early = (await ask(one, input="scenario: plain")).final
            streaming = asyncio.create_task(ask(one, input="tokens: 60 tps: 40"))
            await until(lambda: behind_us.connections >= 2)
            clock.write_text(str(jump), encoding="utf-8")
            assert (await response(other, name))["status"] in ("queued", "in_progress")
            for _ in range(20):
                assert (await response(other, name))["status"] in ("queued", "in_progress", "completed")
            assert (await streaming).final["status"] == "completed"
            fresh = await ask(one, input="scenario: plain")
            assert abs(fresh.final["created_at"] - (time.time() + jump)) < 60
            assert int(fresh.headers["x-ratelimit-remaining-requests"]) > 90
            last = await at_end(other, name)
            assert last["status"] == "completed"
            events = events_of((await ask(other, "GET", f"/v1/responses/{name}?stream=true")).body)
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            for kept in (early, fresh.final):
                assert (await response(other, kept["id"]))["status"] == "completed"
            assert " lost " not in one.said + other.said
            await one.says(f"clock was set seconds={jump:.0f}")
            await other.says(f"clock was set seconds={jump:.0f}")

    run(test())


def test_windows_are_kept_though_the_clock_was_set_back_while_a_response_ran(tmp_path: Path) -> None:
    """How long responses take is learned from those that end: from a time below zero the next one would begin too late."""
    clock = tmp_path / "clock"
    clock.write_text("0", encoding="utf-8")
    window = {"background": True, "stream": False, "background_options": {"completion_window": "8h"}}

    async def test() -> None:
        flags = ("--no-adapt", "--store", str(tmp_path / "x.sqlite3"), "--idle-requests", "1")
        async with (
            simulators() as (behind_us,),
            program("--backend", behind_us.url, *flags, first=SET, CLOCK=str(clock)) as one,
        ):
            first = (await ask(one, **window, input="tokens: 60 tps: 20")).json["id"]
            await one.says("response has waited")
            clock.write_text(str(-HOURS), encoding="utf-8")
            assert (await at_end(one, first))["status"] == "completed"
            busy = asyncio.create_task(ask(one, input="tokens: 2000 tps: 20"))
            await until(lambda: behind_us.connections >= 1)
            second = (await ask(one, **window, input="scenario: plain")).json
            assert (await response(one, second["id"]))["status"] == "queued"
            clock.write_text(str(second["created_at"] + 8 * 3600 - 620 - time.time()), encoding="utf-8")
            assert (await at_end(one, second["id"]))["status"] == "completed"
            await one.says("reason=deadline")
            assert "window missed" not in one.said
            busy.cancel()

    run(test())


@pytest.mark.parametrize("apart", [60.0, -60.0])
def test_a_replica_whose_clock_differs_ends_nothing_that_another_one_runs(apart: float, tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text(str(apart), encoding="utf-8")

    async def test(store: str) -> None:
        async with (
            simulators() as (behind_us,),
            program("--backend", behind_us.url, "--no-adapt", "--store", store) as one,
            program("--backend", behind_us.url, "--no-adapt", "--store", store, first=SET, CLOCK=str(clock)) as other,
        ):
            both = (one, other)
            fields = {"background": True, "stream": False, "input": "tokens: 80 tps: 20"}
            names = [(await ask(running, **fields)).json["id"] for running in both]
            for _ in range(3):
                for running in both:
                    for name in names:
                        assert (await response(running, name))["status"] != "failed"
                await asyncio.sleep(BEAT / 2)
            for name in names:
                assert (await at_end(one, name))["status"] == "completed"
            for running in both:
                assert " lost " not in running.said
                assert "clock was set" not in running.said

    with postgres_running() as server:
        run(test(server.fresh_database()))


class Clocks:
    """One that is set, and one that is not."""

    def __init__(self) -> None:
        self.wall = 1_000_000.0
        self.steady = 0.0

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


def test_processes_that_were_halted_together_are_not_taken_for_dead() -> None:
    """Containers are frozen and thawed: each finds the heartbeats of the others old, though they live."""

    async def test() -> None:
        clocks = Clocks()
        store = Store(Sqlite(None), 1e9, lambda: clocks.wall, steady=lambda: clocks.steady)
        await store.open()
        head = '{"id":"resp_1","status":"in_progress","output":['
        record = ResponseRecord("resp_1", "a", clocks.wall, "in_progress", head, "]}", background=True, detached=True)
        await store.running.begin(record, Running("w", clocks.wall + 15), EventRow(0, 1, b""))
        assert await store.running.end_abandoned(end_lost) == []
        clocks.pass_(60)
        assert await store.running.end_abandoned(end_lost) == []
        clocks.pass_(1)
        await store.running.still_alive(["resp_1"], Running("w", clocks.wall + 15))
        assert await store.running.end_abandoned(end_lost) == []
        for _ in range(16):
            clocks.pass_(1)
            found = await store.running.end_abandoned(end_lost)
        assert found == ["resp_1"]
        await store.close()

    run(test())


def test_nobody_is_taken_for_dead_because_the_store_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeats of all processes waited for it, and are old when it goes on."""

    async def test() -> None:
        clocks = Clocks()
        database = Sqlite(None)
        store = Store(database, 1e9, lambda: clocks.wall, steady=lambda: clocks.steady)
        await store.open()
        head = '{"id":"resp_1","status":"in_progress","output":['
        record = ResponseRecord("resp_1", "a", clocks.wall, "in_progress", head, "]}", background=True, detached=True)
        await store.running.begin(record, Running("w", clocks.wall + 15), EventRow(0, 1, b""))
        works = database.run
        waiting: list[asyncio.Task[list[str]]] = []
        goes_on = asyncio.Event()

        async def waits(work: Callable[[Sql], Any]) -> Any:
            await goes_on.wait()
            return await works(work)

        async def hangs(work: Callable[[Sql], Any]) -> Any:
            monkeypatch.setattr(database, "run", waits)
            for _ in range(5):
                clocks.pass_(4)
                waiting.append(
                    asyncio.create_task(store.running.end_abandoned(end_lost))
                )  # others look for dead ones, and wait as well
                await asyncio.sleep(0)
            goes_on.set()
            return await works(work)

        monkeypatch.setattr(database, "run", hangs)
        assert await store.running.end_abandoned(end_lost) == []
        assert await asyncio.gather(*waiting) == [[]] * 5
        monkeypatch.setattr(database, "run", works)
        clocks.pass_(1)
        assert await store.running.end_abandoned(end_lost) == []
        await store.running.still_alive(["resp_1"], Running("w", clocks.wall + 15))
        found: list[str] = []
        for _ in range(16):
            clocks.pass_(1)
            found += await store.running.end_abandoned(end_lost)
        assert found == ["resp_1"]
        await store.close()

    run(test())


@JUMPS
def test_who_is_dead_is_found_all_the_same(jump: float) -> None:
    """Look for it a while after the clock was set, whether its last sign of life is then long ago or yet to come."""

    async def test() -> None:
        clocks = Clocks()
        store = Store(Sqlite(None), 1e9, lambda: clocks.wall, steady=lambda: clocks.steady)
        await store.open()
        for name in ("resp_dead", "resp_alive"):
            head = json.dumps({"id": name, "status": "in_progress"})[:-1] + ',"output":['
            record = ResponseRecord(name, "a", clocks.wall, "in_progress", head, "]}", background=True, detached=True)
            await store.running.begin(record, Running("w", clocks.wall + 15), EventRow(0, 1, b""))
        clocks.wall += jump
        assert await store.running.end_abandoned(end_lost) == []
        found = []
        for _ in range(20):
            clocks.pass_(1)
            await store.running.still_alive(["resp_alive"], Running("w", clocks.wall + 15))
            found += await store.running.end_abandoned(end_lost)
        assert found == ["resp_dead"]
        await store.close()

    run(test())
