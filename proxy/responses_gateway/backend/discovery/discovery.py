"""Watches the sources of all pools, and tells what they hold.

A source that fails keeps what it said last. Changes are reported together, a few times a second at most: many members that
come or go at once cost little more than one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import random

from responses_gateway.backend.discovery.interface import MOST_TARGETS, Source, SourceKind, Target
from responses_gateway.ended_tasks import end_tasks

# Least seconds between two times that changes are reported, because those that come together are reported as one.
_INTERVAL = 0.1
_AFTER_DEFECT = 10.0  # seconds until a source is watched again whose own code failed

# Called when the problem of a pool changes: with its name, the kind of its source, and the problem; empty: it is over.
OnProblem = Callable[[str, SourceKind, str], None]


class Found:
    """What is known of one pool. `since` is when its source could be read last, by the loop's clock; None: it can be read."""

    def __init__(self, source: Source, now: float) -> None:
        self.source = source
        self.targets: Sequence[Target] = ()
        self.problem = ""
        self.since: float | None = now
        self.answered = asyncio.Event()  # with targets or a problem


class Discovery:
    """Watches sources, by the name of their pool. Create it inside the running event loop.

    `use` is called after changes; `found` has what is known by then. `on_defect` is called for an error in a source's code."""

    def __init__(self, use: Callable[[], None], on_problem: OnProblem, on_defect: Callable[[BaseException], None]) -> None:
        self.found: dict[str, Found] = {}
        self._use = use
        self._on_problem = on_problem
        self._on_defect = on_defect
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._reported_at = self._loop.time() - _INTERVAL
        self._telling: asyncio.TimerHandle | None = None

    def watch(self, sources: Mapping[str, Source]) -> None:
        """Watch these sources from now on, and no others. One that is watched already goes on."""
        for name, known in list(self.found.items()):
            if sources.get(name) != known.source:
                self._tasks.pop(name).cancel()
                del self.found[name]
        for name, source in sources.items():
            if name not in self.found:
                source_state = self.found[name] = Found(source, self._loop.time())
                self._tasks[name] = asyncio.create_task(self._watch(name, source_state))

    async def first_answers(self, seconds: float) -> None:
        """Wait until each source has said something, at most so many seconds; what they said is reported then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for source_state in list(self.found.values()):
                    await source_state.answered.wait()
        self._tell()

    async def close(self) -> None:
        """Stop watching."""
        if self._telling is not None:
            self._telling.cancel()
        await end_tasks(*self._tasks.values())

    async def _watch(self, name: str, source_state: Found) -> None:
        while True:
            try:
                await source_state.source.watch(partial(self._report, name, source_state))
            except Exception as error:  # a defect in the code of one source must not stop the others
                self._on_defect(error)
                self._report(name, source_state, None, "a defect of the gateway")
            await asyncio.sleep(_AFTER_DEFECT * (1 + random()))

    def _report(self, name: str, source_state: Found, targets: Sequence[Target] | None, problem: str = "") -> None:
        if self.found.get(name) is not source_state:
            return
        if targets is not None and len(targets) > MOST_TARGETS:
            problem = f"the source names {len(targets)} backends, more than {MOST_TARGETS}"
            targets = None
        if targets is None:
            targets = source_state.targets
        if source_state.answered.is_set() and (targets, problem) == (source_state.targets, source_state.problem):
            return
        if problem != source_state.problem:
            self._on_problem(name, source_state.source.kind, problem)
            source_state.problem = problem
        if not problem:
            source_state.since = None
        elif source_state.since is None:
            source_state.since = self._loop.time()
        source_state.targets = targets
        source_state.answered.set()
        if self._telling is None:
            due = max(self._loop.time(), self._reported_at + _INTERVAL)
            self._telling = self._loop.call_at(due, self._tell)

    def _tell(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        self._reported_at = self._loop.time()
        self._use()
