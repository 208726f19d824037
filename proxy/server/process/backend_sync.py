"""Keeps the backends of all workers the same: which there are, which are drained, and the settings that fit them.

A worker reports each change that it made, and what it found out about the backends, to the parent. The parent holds the state
of all. It sends the whole of it to each worker after every report, and to a new one before that serves; taking over a state
changes only what differs. Reports of several workers count in the order in which the parent reads them. Until it has read all
reports of a worker, that one ignores states, so that none takes back what was just done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import msgspec
from pydantic import ValidationError

from proxy.backend.served_models import BackendSpec
from proxy.probing.autoconfiguration import Autoconfiguration
from proxy.probing.known_models import KnownModel, KnownModels
from proxy.server.lifespan import Parts
from proxy.server.process.worker_link import Worker
from proxy.server.setup.backends import spec_of, specs_of
from proxy.settings import BackendDetails
from proxy.telemetry import logs

AUTOCONFIGURE = b"autoconfigure\n"  # to the worker that is to do it for all
_STATE = b"state "


class Change(msgspec.Struct, frozen=True):
    """How one backend differs from what the settings say."""

    fields: dict[str, Any] | None = None  # of a backend that was added
    removed: bool = False
    draining: bool = False


_UNCHANGED = Change()
Changes = dict[str, Change]  # by the name of the backend; those without a change are absent


def merged(changes: Changes, more: Changes) -> Changes:
    """Return the changes with more of them, which replace those of the same backends."""
    return {name: change for name, change in {**changes, **more}.items() if change != _UNCHANGED}


class Found(msgspec.Struct, frozen=True):
    """What autoconfiguration has found out so far."""

    settings: dict[str, Any] = {}  # those that fit the backends
    looked: bool = False  # each backend was tried once
    finished: bool = False


_NOTHING_FOUND = Found()


class State(msgspec.Struct, frozen=True):
    """What a worker has to know of the others, or in a report: what is new."""

    changes: Changes = {}
    specs: list[BackendSpec] | None = None  # of the settings, if they were read again
    found: Found = _NOTHING_FOUND
    received: int = 0  # reports of this worker that are part of the state
    known: dict[str, KnownModel] = {}  # what was learned of the models

    def line(self) -> bytes:
        """Return the state as a line of the link."""
        return _STATE + msgspec.json.encode(self) + b"\n"


def state_of(line: bytes) -> State | None:
    """Return the state of a line; None if it is another kind of line, or one that this version cannot read."""
    try:
        return msgspec.json.decode(line[len(_STATE) :], type=State) if line.startswith(_STATE) else None
    except msgspec.DecodeError:
        return None


class SharedState:
    """The parent's part: holds the state, and names the worker that autoconfigures."""

    def __init__(self, workers: Set[Worker]) -> None:
        """Watch over `workers`: all that there are, a set that changes."""
        self.generation = 0  # workers of the same one have the same settings
        self._workers = workers
        self._changes: Changes = {}
        self._specs: list[BackendSpec] | None = None
        self._found: dict[int, Found] = {}  # by generation
        self._known: dict[int, KnownModels] = {}  # by generation
        self._autoconfiguring: dict[int, Worker] = {}

    def begin_generation(self) -> None:
        """Prepare for workers with the settings as they are now: what was found out for the old ones may not fit."""
        self.generation += 1
        self._specs = None

    def reload(self, specs: Sequence[BackendSpec]) -> None:
        """Take the backends from settings that were read again. Only what is drained stays so."""
        self._specs = list(specs)
        self._changes = {name: Change(draining=True) for name, change in self._changes.items() if change.draining}
        self._broadcast()

    def hear(self, worker: Worker, line: bytes) -> None:
        """Take a line from a worker: a report, or a sign that it is ready."""
        report = state_of(line)
        if report is not None:
            worker.reports += 1
            self._changes = merged(self._changes, report.changes)
            if report.found != _NOTHING_FOUND:
                self._found[worker.generation] = report.found
            if report.known:
                self._known.setdefault(worker.generation, KnownModels()).take_over(report.known)
            self._broadcast()
        self._name_autoconfiguring()

    def lost(self, worker: Worker) -> None:
        """Let another worker autoconfigure if the one that did is gone."""
        if self._autoconfiguring.get(worker.generation) is worker:
            del self._autoconfiguring[worker.generation]
            self._name_autoconfiguring()

    def for_worker(self, worker: Worker) -> State:
        """Return what a worker has to know now."""
        generation = worker.generation
        found = self._found.get(generation, _NOTHING_FOUND)
        return State(self._changes, self._specs, found, worker.reports, self._known.get(generation, {}))

    def _broadcast(self) -> None:
        for worker in self._workers:
            worker.send(self.for_worker(worker).line())

    def _name_autoconfiguring(self) -> None:
        for worker in self._workers:
            generation = worker.generation
            finished = self._found.get(generation, _NOTHING_FOUND).finished
            if worker.serves and not finished and generation not in self._autoconfiguring:
                self._autoconfiguring[generation] = worker
                worker.send(AUTOCONFIGURE)


class WorkerSync:
    """A worker's part: takes over states, and reports."""

    def __init__(self, parts: Parts, send: Callable[[bytes], None]) -> None:
        """Take part with this process. `send` writes a line to the parent."""
        self._parts = parts
        self._send = send
        self._reports = 0
        self._specs = {spec.name: spec for spec in specs_of(parts.settings)}
        self._changes: Changes = {}
        self._found = _NOTHING_FOUND
        parts.autoconfiguration.report = self._report_found
        parts.autoconfiguration.expect()
        parts.known_models.report = self._report_known

    def report_change(self, done: str, name: str, fields: dict[str, Any]) -> None:
        """Report a change of a backend: it was `added` with these fields, `removed`, `drained` or `resumed`."""
        if done == "added":
            change = Change(fields)
        elif done == "removed":
            change = Change(removed=name in self._specs)
        else:
            change = msgspec.structs.replace(self._changes.get(name, _UNCHANGED), draining=done == "drained")
        self._changes = merged(self._changes, {name: change})
        self._report(State({name: change}))

    def hear(self, line: bytes) -> None:
        """Take a line from the parent."""
        state = state_of(line)
        if state is not None and state.received == self._reports:
            self._take_over(state)
        elif line == AUTOCONFIGURE and self._parts.autoconfiguration.enabled:
            self._parts.autoconfiguration.begin()
        elif line == AUTOCONFIGURE:
            self._report(State(found=Found(finished=True)))

    def _take_over(self, state: State) -> None:
        if state.specs is not None:
            self._specs = {spec.name: spec for spec in state.specs}
        self._changes = state.changes
        members = self._parts.pool.members
        members.apply(self._wanted())
        for name, member in list(members.by_name.items()):
            draining = self._changes.get(name, _UNCHANGED).draining
            if member.draining != draining:
                members.drain(name, draining)
        if state.found.settings != self._found.settings:
            self._parts.autoconfiguration.take_over(state.found.settings)
        if state.found.looked or state.found.finished:
            self._parts.autoconfiguration.looked.set()
        self._found = state.found
        self._parts.known_models.take_over(state.known)

    def _wanted(self) -> list[BackendSpec]:
        specs = dict(self._specs)
        for name, change in self._changes.items():
            if change.removed:
                specs.pop(name, None)
            elif change.fields is not None:
                try:
                    specs[name] = spec_of(name, BackendDetails.model_validate(change.fields), self._parts.settings)
                except ValidationError:
                    fields = logs.fields(backend=name, reason="its fields are those of another version")
                    logs.logger().warning("an added backend is ignored", extra=fields)
        return list(specs.values())

    def _report_found(self, found: Autoconfiguration) -> None:
        self._found = Found(found.taken, found.looked.is_set(), found.finished)
        self._report(State(found=self._found))

    def _report_known(self, learned: Mapping[str, KnownModel]) -> None:
        self._report(State(known=dict(learned)))

    def _report(self, news: State) -> None:
        self._reports += 1
        self._send(news.line())
