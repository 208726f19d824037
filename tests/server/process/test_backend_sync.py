"""What workers have in common of their backends, whatever several of them change at the same time."""

from __future__ import annotations

import random
from collections import deque
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from responses_gateway.backend.served_models import BackendSpec
from responses_gateway.parsers import PromptEnd
from responses_gateway.probing.known_models import KnownModel
from responses_gateway.server.lifespan import open_parts
from responses_gateway.server.parts import Parts
from responses_gateway.server.process.backend_state import (
    AUTOCONFIGURE,
    Autoconfigured,
    BackendState,
    Change,
    Changes,
    SharedState,
    read_state,
)
from responses_gateway.server.process.backend_sync import WorkerSync
from responses_gateway.server.process.worker_link import Worker
from responses_gateway.server.setup.backend_specs import specs_of
from responses_gateway.settings import Settings
from tests.server.running_gateway import gateway, run

ONE = BackendSpec("one", "http://127.0.0.1:9/v1")


class FakeWorker:
    """A worker as the parent sees it, whose lines are collected."""

    def __init__(self, generation: int = 0) -> None:
        self.generation = generation
        self.serves = True
        self.reports = 0
        self.lines: deque[bytes] = deque()

    def send(self, line: bytes) -> None:
        self.lines.append(line)


class Parent:
    """The parent's part, with workers that there are."""

    def __init__(self, *workers: FakeWorker) -> None:
        self.workers = set(workers)
        self.state = SharedState(cast(set[Worker], self.workers))

    def receive(self, worker: FakeWorker, *reports: BackendState) -> None:
        for report in reports:
            self.state.receive(cast(Worker, worker), report.line())

    def told(self, worker: FakeWorker) -> BackendState:
        """What a worker that starts now would be told."""
        return self.state.for_worker(cast(Worker, worker))


class Linked:
    """A gateway as a worker: lines to and from its parent wait until they are delivered."""

    def __init__(self, parts: Parts, parent: Parent) -> None:
        self.parts = parts
        self.seen = FakeWorker()
        self._parent = parent
        self._reports: deque[bytes] = deque()
        self.sync = WorkerSync(parts, self._reports.append)
        parent.workers.add(self.seen)

    @property
    def backends(self) -> dict[str, bool]:
        return {name: member.draining for name, member in self.parts.pool.members.by_name.items()}

    def add(self, name: str) -> None:
        fields = {"url": f"http://127.0.0.1:9/{name}"}
        self.parts.pool.members.add(BackendSpec(name, f"http://127.0.0.1:9/{name}/v1"))
        self.sync.report_change("added", name, fields)

    def remove(self, name: str) -> None:
        self.parts.pool.members.remove(name)
        self.sync.report_change("removed", name, {})

    def drain(self, name: str, draining: bool) -> None:
        self.parts.pool.members.drain(name, draining)
        self.sync.report_change("drained" if draining else "resumed", name, {})

    def deliver_report(self) -> bool:
        if self._reports:
            self._parent.state.receive(cast(Worker, self.seen), self._reports.popleft())
            return True
        return False

    def deliver_line(self) -> bool:
        if self.seen.lines:
            self.sync.receive(self.seen.lines.popleft())
            return True
        return False

    def deliver_all(self) -> bool:
        delivered = False
        while self.deliver_report() or self.deliver_line():
            delivered = True
        return delivered

    def change_something(self, chance: random.Random) -> None:
        name = chance.choice(["one", "two", "three", "four"])
        if name not in self.backends:
            self.add(name)
        elif chance.random() < 0.5:
            self.remove(name)
        else:
            self.drain(name, chance.random() < 0.5)


def test_what_one_worker_learns_of_a_model_all_know() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            parent = Parent()
            settings = Settings(backend=["http://127.0.0.1:9"], store="none")
            served = [await stack.enter_async_context(open_parts(settings)) for _ in range(3)]
            first, second, third = (Linked(parts, parent) for parts in served)
            first.parts.autoconfiguration.known_models.learn(
                "m",
                KnownModel(marked=True, prompt_end=PromptEnd({"<think>": 7}, frozenset({1, 2})), enforcement={"a": "enforced"}),
            )
            second.parts.autoconfiguration.known_models.learn("m", KnownModel(opens=True, enforcement={"b": "ignored"}))
            while any(worker.deliver_all() for worker in (first, second, third)):
                pass
            known = KnownModel(
                marked=True,
                opens=True,
                prompt_end=PromptEnd({"<think>": 7}, frozenset({1, 2})),
                enforcement={"a": "enforced", "b": "ignored"},
            )
            assert [worker.parts.autoconfiguration.known_models for worker in (first, second, third)] == [{"m": known}] * 3
            assert parent.told(FakeWorker()).known == {"m": known}
            assert parent.told(FakeWorker(generation=1)).known == {}  # its settings are others

    run(test())


@pytest.mark.parametrize(
    ("reports", "told"),
    [
        ([{"a": Change(draining=True)}, {"b": Change(draining=True)}, {"b": Change()}], {"a": Change(draining=True)}),
        ([{"a": Change({"url": "x"})}, {"a": Change({"url": "x"}, draining=True)}], {"a": Change({"url": "x"}, draining=True)}),
        ([{"a": Change({"url": "x"})}, {"a": Change()}], {}),
        ([{"a": Change(removed=True)}, {"a": Change({"url": "x"})}], {"a": Change({"url": "x"})}),
        ([{"a": Change(removed=True)}], {"a": Change(removed=True)}),
    ],
)
def test_a_later_worker_is_told_what_still_holds(reports: list[Changes], told: Changes) -> None:
    worker = FakeWorker()
    parent = Parent(worker)
    parent.receive(worker, *(BackendState(changes) for changes in reports))
    assert parent.told(FakeWorker()).changes == told


def test_settings_that_are_read_again_leave_only_what_is_drained() -> None:
    worker = FakeWorker()
    parent = Parent(worker)
    parent.receive(worker, BackendState({"a": Change({"url": "x"}), "b": Change(removed=True), "c": Change(draining=True)}))
    parent.state.reload([ONE])
    assert parent.told(worker) == BackendState({"c": Change(draining=True)}, [ONE], received=1)
    parent.state.begin_generation()  # whose workers read the settings themselves
    assert parent.told(FakeWorker(1)) == BackendState({"c": Change(draining=True)})


def test_what_was_found_is_for_workers_with_the_same_settings() -> None:
    old = FakeWorker()
    new = FakeWorker(1)
    parent = Parent(old)
    found = Autoconfigured({"rescue": True}, looked=True, finished=True)
    parent.receive(old, BackendState(found=found), BackendState({"a": Change(draining=True)}))
    assert parent.told(FakeWorker()).found == found
    parent.state.begin_generation()
    assert parent.told(new).found == Autoconfigured()
    assert parent.told(new).changes == {"a": Change(draining=True)}
    parent.workers.add(new)
    parent.receive(old, BackendState(found=Autoconfigured({"rescue": False}, looked=True, finished=True)))
    assert parent.told(new).found == Autoconfigured()
    assert AUTOCONFIGURE in new.lines


def test_one_worker_of_each_generation_autoconfigures() -> None:
    first = FakeWorker()
    second = FakeWorker()
    parent = Parent(first, second)
    for worker in (first, second):
        parent.state.receive(cast(Worker, worker), b"ready\n")
    named, other = (first, second) if AUTOCONFIGURE in first.lines else (second, first)
    assert AUTOCONFIGURE not in other.lines
    parent.workers.discard(named)
    parent.state.lost(cast(Worker, named))
    assert other.lines.count(AUTOCONFIGURE) == 1
    parent.receive(other, BackendState(found=Autoconfigured(finished=True)))
    parent.workers.discard(other)
    parent.state.lost(cast(Worker, other))
    late = FakeWorker()
    parent.workers.add(late)
    parent.state.receive(cast(Worker, late), b"ready\n")
    assert AUTOCONFIGURE not in late.lines


def test_what_is_no_state_is_passed_over() -> None:
    state = BackendState({"a": Change({"url": "http://x"})}, [ONE], Autoconfigured({"rescue": True}), 3)
    assert read_state(state.line()) == state
    for line in (
        b"ready\n",
        b"state \n",
        b"state []\n",
        b'state {"changes": 1}\n',
        b"state \xff\n",
        b'notice {"about": "x"}\n',
    ):
        assert read_state(line) is None
    assert read_state(b'state {"unknown": 1}\n') == BackendState()


def test_a_worker_without_autoconfiguration_says_that_it_is_done() -> None:
    async def test() -> None:
        async with gateway("http://127.0.0.1:9", adapt=False) as served:
            parent = Parent()
            worker = Linked(served.parts, parent)
            parent.state.receive(cast(Worker, worker.seen), b"ready\n")
            worker.deliver_all()
            assert parent.told(worker.seen) == BackendState(found=Autoconfigured(finished=True), received=1)

    run(test())


def test_backends_that_come_and_go_leave_nothing_behind() -> None:
    async def test() -> None:
        async with gateway("http://127.0.0.1:9") as served:
            parent = Parent()
            worker = Linked(served.parts, parent)
            for number in range(500):
                worker.add(str(number))
                worker.remove(str(number))
            worker.deliver_all()
            assert parent.told(worker.seen).changes == {}

    run(test())


def test_a_state_that_was_sent_before_takes_nothing_back() -> None:
    async def test() -> None:
        async with gateway("http://127.0.0.1:9") as served:
            parent = Parent()
            worker = Linked(served.parts, parent)
            other = FakeWorker()
            worker.add("mine")
            added = served.parts.pool.members.find("mine")
            # before the worker's own report is read
            parent.receive(other, BackendState({"127.0.0.1:9": Change(draining=True)}))
            while worker.deliver_line():
                assert worker.backends == {"127.0.0.1:9": False, "mine": False}
            worker.deliver_all()
            assert worker.backends == {"127.0.0.1:9": True, "mine": False}
            assert served.parts.pool.members.find("mine") is added

    run(test())


def test_an_unknown_backend_that_drains_is_ignored() -> None:
    async def test() -> None:
        async with gateway("http://127.0.0.1:9") as served:
            worker = Linked(served.parts, Parent())
            before = worker.backends
            worker.sync.receive(BackendState({"unknown": Change(draining=True)}).line())
            assert worker.backends == before

    run(test())


@pytest.mark.parametrize("seed", range(20))
def test_workers_agree_in_the_end_whoever_changes_what_at_the_same_time(seed: int) -> None:
    chance = random.Random(seed)
    backends: dict[str, Any] = {"one": {"url": "http://127.0.0.1:9/one"}, "two": {"url": "http://127.0.0.1:9/two"}}
    settings = Settings(backends=backends, store="none")

    async def test() -> None:
        async with AsyncExitStack() as stack:
            parent = Parent()
            workers = []
            for _ in range(3):
                parts = await stack.enter_async_context(open_parts(settings))
                workers.append(Linked(parts, parent))
            for _ in range(60):
                worker = chance.choice(workers)
                step = chance.random()
                if step < 0.35:
                    worker.change_something(chance)
                elif step < 0.4:
                    parent.state.reload(specs_of(settings))
                elif step < 0.7:
                    worker.deliver_report()
                else:
                    worker.deliver_line()
            while any(worker.deliver_all() for worker in workers):
                pass
            assert workers[0].backends == workers[1].backends == workers[2].backends

    run(test())
