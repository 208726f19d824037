"""Keeps the backends of a worker the same as those of the others.

A worker reports its changes, and what it has found out about the backends, to the parent. It applies the states that the parent
sends (`backend_state.py`), changing only what differs. Until the parent has read all reports of a worker, that worker ignores
states: an older one would revert its latest change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from responses_gateway.backend.served_models import BackendSpec, Discovered
from responses_gateway.ended_tasks import KeptTasks
from responses_gateway.probing.autoconfiguration import Autoconfiguration
from responses_gateway.probing.known_models import KnownModel
from responses_gateway.server.parts import Parts
from responses_gateway.server.process import backend_state
from responses_gateway.server.process.reloading import Reloading
from responses_gateway.server.process.signals import Reload, reading
from responses_gateway.server.setup.backend_specs import spec_of, specs_of
from responses_gateway.settings import BackendDetails, Settings
from responses_gateway.settings.reloading import Reloaded


class WorkerSync:
    """The worker's side: applies states, and sends reports."""

    def __init__(
        self,
        parts: Parts,
        send: Callable[[bytes], None],
        reload: Reload | None = None,
        renew_certificate: Callable[[], None] = lambda: None,
    ) -> None:
        """`parts` are those of this process; `send` writes a line to the parent; `reload` reads the settings again, and
        `renew_certificate` the files of the certificate."""
        self._parts = parts
        self._send = send
        self._read = None if reload is None else reading(reload, self._put_in_force)
        self._reloading = Reloading(parts, renew_certificate)
        self._tasks: KeptTasks[Reloaded | str] = KeptTasks()
        self._reports = 0
        self._specs = {spec.name: spec for spec in specs_of(parts.settings)}
        self._changes: backend_state.Changes = {}
        self._discovered = Discovered()
        self._found = backend_state.NOTHING_FOUND
        parts.autoconfiguration.report = self._report_found
        parts.autoconfiguration.expect()
        parts.autoconfiguration.known_models.report = self._report_known

    def report_change(self, done: str, name: str, fields: dict[str, Any]) -> None:
        """Report a change of a backend: it was `added` with these fields, `removed`, `drained` or `resumed`."""
        if done == "added":
            change = backend_state.Change(fields)
        elif done == "removed":
            change = backend_state.Change(removed=name in self._specs)
        else:
            change = msgspec.structs.replace(self._changes.get(name, backend_state.UNCHANGED), draining=done == "drained")
        self._changes = backend_state.merged(self._changes, {name: change})
        self._report(backend_state.BackendState({name: change}))

    def receive(self, line: bytes) -> None:
        """Take a line from the parent."""
        state = backend_state.read_state(line)
        if state is not None and state.received == self._reports:
            self._take_over(state)
        elif line == backend_state.RELOAD and self._read is not None:
            self._tasks.begin(self._read())
        elif line == backend_state.AUTOCONFIGURE and self._parts.autoconfiguration.enabled:
            self._parts.autoconfiguration.begin()
        elif line == backend_state.AUTOCONFIGURE:
            self._report(backend_state.BackendState(found=backend_state.Autoconfigured(finished=True)))

    def _put_in_force(self, settings: Settings) -> Reloaded:
        """Use today's settings. The parent has found them to be right, says what has changed, and sends the backends."""
        result = self._reloading.apply(settings)
        self._parts.pool.members.apply(self._wanted(), self._discovered.pools)  # those that were added since may differ
        return result

    def _take_over(self, state: backend_state.BackendState) -> None:
        if state.specs is not None:
            self._specs = {spec.name: spec for spec in state.specs}
        self._changes = state.changes
        self._discovered = state.discovered
        members = self._parts.pool.members
        members.apply(self._wanted(), self._discovered.pools)
        for name, member in list(members.by_name.items()):
            draining = self._changes.get(name, backend_state.UNCHANGED).draining
            if member.draining != draining:
                members.drain(name, draining)
        if state.found.settings != self._found.settings:
            self._parts.autoconfiguration.take_over(state.found.settings)
        if state.found.looked or state.found.finished:
            self._parts.autoconfiguration.looked.set()
        self._found = state.found
        self._parts.autoconfiguration.known_models.take_over(state.known)

    def _wanted(self) -> list[BackendSpec]:
        specs = {**self._specs, **{spec.name: spec for spec in self._discovered.specs}}
        for name, change in self._changes.items():
            if change.removed:
                specs.pop(name, None)
            elif change.fields is not None:
                specs[name] = spec_of(name, BackendDetails.model_validate(change.fields), self._parts.live.given, "admin")
        return list(specs.values())

    def _report_found(self, configuration: Autoconfiguration) -> None:
        self._found = backend_state.Autoconfigured(configuration.taken, configuration.looked.is_set(), configuration.finished)
        self._report(backend_state.BackendState(found=self._found))

    def _report_known(self, learned: Mapping[str, KnownModel]) -> None:
        self._report(backend_state.BackendState(known=dict(learned)))

    def _report(self, news: backend_state.BackendState) -> None:
        self._reports += 1
        self._send(news.line())
