"""The state of the backends that all workers share: which there are, which are drained, and the settings that fit them.

The parent holds the state. It sends all of it to each worker after every report, and to a new worker before that one serves.
Reports of several workers apply in the order in which the parent reads them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import msgspec

from responses_gateway.backend.served_models import BackendSpec, Discovered
from responses_gateway.probing.known_models import KnownModel, KnownModels
from responses_gateway.server.process.worker_link import Worker

RELOAD = b"reload\n"  # the order to read the settings again
AUTOCONFIGURE = b"autoconfigure\n"  # the order to the one worker that does it for all
_STATE = b"state "


class Change(msgspec.Struct, frozen=True):
    """How one backend differs from what the settings say."""

    fields: dict[str, Any] | None = None  # of a backend that was added
    removed: bool = False
    draining: bool = False


UNCHANGED = Change()
Changes = dict[str, Change]  # by the name of the backend; those without a change are absent


def merged(changes: Changes, more: Changes) -> Changes:
    """Return the changes with more of them, which replace those of the same backends."""
    return {name: change for name, change in {**changes, **more}.items() if change != UNCHANGED}


class Autoconfigured(msgspec.Struct, frozen=True):
    """What autoconfiguration has found out so far."""

    settings: dict[str, Any] = {}  # those that fit the backends
    looked: bool = False  # each backend was tried once
    finished: bool = False


NOTHING_FOUND = Autoconfigured()


class BackendState(msgspec.Struct, frozen=True):
    """What a worker has to know of the others, or in a report: what is new."""

    changes: Changes = {}
    specs: list[BackendSpec] | None = None  # of the settings, if they were read again
    found: Autoconfigured = NOTHING_FOUND
    received: int = 0  # reports of this worker that are part of the state
    known: dict[str, KnownModel] = {}  # what was learned about the models
    discovered: Discovered = Discovered()  # what the parent found in the sources of pools

    def line(self) -> bytes:
        """Return the state as a line of the link."""
        return _STATE + msgspec.json.encode(self) + b"\n"


def read_state(line: bytes) -> BackendState | None:
    """Return the state of a line; None if it is none."""
    try:
        return msgspec.json.decode(line[len(_STATE) :], type=BackendState) if line.startswith(_STATE) else None
    except msgspec.DecodeError:
        return None


class SharedState:
    """The parent's side: holds the state, and chooses the worker that autoconfigures."""

    def __init__(self, workers: Set[Worker]) -> None:
        """`workers` is the set of all workers, which its owner changes."""
        self.generation = 0  # workers of the same one have the same settings
        self._workers = workers
        self._changes: Changes = {}
        self._specs: list[BackendSpec] | None = None
        self._discovered = Discovered()
        self._found: dict[int, Autoconfigured] = {}  # by generation
        self._known: dict[int, KnownModels] = {}  # by generation
        self._autoconfiguring: dict[int, Worker] = {}

    def begin_generation(self) -> None:
        """Begin a generation of workers with new settings, for which the results of autoconfiguration may differ."""
        self.generation += 1
        self._specs = None

    def reload(self, specs: Sequence[BackendSpec]) -> None:
        """Replace the backends by those of reloaded settings, and let the workers read the rest. Of the changes only the
        drained backends are kept."""
        self._specs = list(specs)
        self._changes = {name: Change(draining=True) for name, change in self._changes.items() if change.draining}
        self._broadcast()
        for worker in self._workers:
            worker.send(RELOAD)

    def discover(self, discovered: Discovered) -> None:
        """Take what the sources of pools say."""
        self._discovered = discovered
        self._broadcast()

    def receive(self, worker: Worker, line: bytes) -> None:
        """Take a line from a worker: a report, or a sign that it is ready."""
        report = read_state(line)
        if report is not None:
            worker.reports += 1
            self._changes = merged(self._changes, report.changes)
            if report.found != NOTHING_FOUND:
                self._found[worker.generation] = report.found
            if report.known:
                self._known.setdefault(worker.generation, KnownModels()).take_over(report.known)
            self._broadcast()
        self._name_autoconfiguring()

    def lost(self, worker: Worker) -> None:
        """Let another worker autoconfigure if the one that did has ended."""
        if self._autoconfiguring.get(worker.generation) is worker:
            del self._autoconfiguring[worker.generation]
            self._name_autoconfiguring()

    def for_worker(self, worker: Worker) -> BackendState:
        """Return what a worker has to know now."""
        generation = worker.generation
        configuration = self._found.get(generation, NOTHING_FOUND)
        known: dict[str, KnownModel] = self._known.get(generation, {})
        return BackendState(self._changes, self._specs, configuration, worker.reports, known, self._discovered)

    def _broadcast(self) -> None:
        for worker in self._workers:
            worker.send(self.for_worker(worker).line())

    def _name_autoconfiguring(self) -> None:
        for worker in self._workers:
            generation = worker.generation
            finished = self._found.get(generation, NOTHING_FOUND).finished
            if worker.serves and not finished and generation not in self._autoconfiguring:
                self._autoconfiguring[generation] = worker
                worker.send(AUTOCONFIGURE)
