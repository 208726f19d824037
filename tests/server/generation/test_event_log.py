"""The events of all responses of a process, written together: what fails is written again, and one defect harms nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from responses_gateway.server.generation.background.event_log import EventLog
from responses_gateway.state import EventRow, NewEvents, ResponseRecord, StoreUnavailable
from responses_gateway.state.events import EventTable
from tests.server.running_gateway import run, until

pytestmark = pytest.mark.usefixtures("fast")


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.server.generation.background.event_log.RETRY", 0.001)


class Stream:
    """A stream that a test writes to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting = b""
        self.in_store = b""
        self.is_displaced = False

    def take(self) -> NewEvents:
        data, self.waiting = self.waiting, b""
        first = len(self.in_store)
        record = ResponseRecord(self.name, "", 0.0, "in_progress", "", "")
        return NewEvents(record, EventRow(first, first + len(data), data))

    def stored(self, events: NewEvents) -> None:
        self.in_store += events.row.data

    def not_stored(self, events: NewEvents) -> None:
        self.waiting = events.row.data + self.waiting

    def displaced(self) -> None:
        self.is_displaced = True


class Written:
    """A table that takes the events of all streams but some."""

    def __init__(self) -> None:
        self.writes: list[list[str]] = []
        self.failures: list[Exception] = []
        self.poison = ""
        self.gone = ""
        self.opened = asyncio.Event()
        self.opened.set()

    async def append(self, pieces: Sequence[NewEvents]) -> dict[str, bool]:
        names = [piece.record.id for piece in pieces]
        self.writes.append(names)
        await self.opened.wait()
        if self.failures:
            raise self.failures.pop()
        if self.poison in names:
            raise ValueError("it cannot be written")
        return {name: name != self.gone for name in names}


def new_log() -> tuple[Written, EventLog, list[Exception]]:
    store = Written()
    defects: list[Exception] = []
    return store, EventLog(cast("EventTable", store), defects.append), defects


def add(log: EventLog, stream: Stream, data: bytes) -> None:
    stream.waiting += data
    log.add(stream)


def test_what_comes_together_is_one_write() -> None:
    async def test() -> None:
        store, log, _ = new_log()
        streams = [Stream(str(number)) for number in range(100)]
        for stream in streams * 3:
            add(log, stream, b"x")
        await until(lambda: log.idle)
        assert [stream.in_store for stream in streams] == [b"xxx"] * 100
        assert store.writes == [[stream.name for stream in streams]]
        await log.close()

    run(test())


def test_what_failed_is_written_again_in_order() -> None:
    async def test() -> None:
        store, log, defects = new_log()
        store.failures = [StoreUnavailable("gone"), StoreUnavailable("gone")]
        stream = Stream("a")
        add(log, stream, b"a")
        await until(lambda: len(store.writes) > 1)
        add(log, stream, b"b")
        await until(lambda: log.idle)
        assert stream.in_store == b"ab"
        assert defects == []
        await log.close()

    run(test())


def test_a_defect_of_one_stream_does_not_stop_the_others() -> None:
    async def test() -> None:
        store, log, defects = new_log()
        store.poison = "bad"
        bad, *good = streams = [Stream("bad"), Stream("a"), Stream("b")]
        for stream in streams:
            add(log, stream, b"x")
        await until(lambda: log.idle)
        assert [stream.in_store for stream in good] == [b"x", b"x"]
        assert (bad.in_store, bad.waiting) == (b"", b"x")
        assert len(defects) == 2  # of all, and of the one to blame
        for stream in good:
            add(log, stream, b"y")
        await until(lambda: log.idle)
        assert store.writes[-1] == ["a", "b"]
        await log.close()

    run(test())


def test_after_a_defect_that_does_not_come_again_all_are_written_together_as_before() -> None:
    async def test() -> None:
        store, log, defects = new_log()
        store.failures = [ValueError("once")]
        streams = [Stream("a"), Stream("b")]
        for data in (b"x", b"y"):
            for stream in streams:
                add(log, stream, data)
            await until(lambda: log.idle)
        assert store.writes == [["a", "b"], ["a"], ["b"], ["a", "b"]]
        assert ([stream.in_store for stream in streams], len(defects)) == ([b"xy", b"xy"], 1)
        await log.close()

    run(test())


def test_a_response_that_runs_elsewhere_is_reported() -> None:
    async def test() -> None:
        store, log, _ = new_log()
        store.gone = "a"
        streams = [Stream("a"), Stream("b")]
        for stream in streams:
            add(log, stream, b"x")
        await until(lambda: log.idle)
        assert [stream.is_displaced for stream in streams] == [True, False]
        await log.close()

    run(test())


@pytest.mark.parametrize("fails", [False, True])
def test_a_stream_settles_when_its_last_write_has_ended(fails: bool) -> None:
    """What could not be written stays with it, and is not tried again."""

    async def test() -> None:
        store, log, _ = new_log()
        store.opened.clear()
        if fails:
            store.failures = [StoreUnavailable("gone")]
        stream = Stream("a")
        add(log, stream, b"x")
        await until(lambda: store.writes)
        add(log, stream, b"y")
        settling = asyncio.create_task(log.settle(stream))
        await asyncio.sleep(0.01)
        assert not settling.done()
        store.opened.set()
        await settling
        assert (stream.in_store, stream.waiting) == ((b"", b"xy") if fails else (b"x", b"y"))
        await until(lambda: log.idle)
        assert len(store.writes) == 1
        await log.flush(stream)
        assert stream.in_store == b"xy"
        await log.close()

    run(test())
