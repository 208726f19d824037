"""The responses that run in this process, one timer for all of them, and the state of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import partial
from typing import Protocol

from responses_gateway.ended_tasks import becomes_true

# How long clients may take to read that their response has failed, and a store to take it, in seconds.
_CUT_TIMEOUT = 2


class State(IntEnum):
    """The states of a process, in the order in which they follow each other."""

    SERVING = 0
    RETIRING = 1  # connections end with their next answer; still ready
    LEAVING = 2  # not ready any more, though requests are still answered
    DRAINING = 3  # new responses are refused
    STOPPED = 4


class Activity(Protocol):
    """Something under way that is timed, and ended when the process stops."""

    @property
    def chunks(self) -> int: ...

    def tick(self, now: float) -> None: ...

    def shut_down(self) -> None: ...

    def abandon(self) -> object: ...


class InFlight:
    """The activities under way, one timer for all of them, and the state of the process."""

    def __init__(self) -> None:
        self.activities: set[Activity] = set()
        self.state = State.SERVING
        self.ending = asyncio.Event()  # set with the first later state

    def enter(self, state: State) -> None:
        """Enter a later state; an earlier one changes nothing."""
        self.state = max(self.state, state)
        if self.state is not State.SERVING:
            self.ending.set()

    async def drain(self, stop_now: asyncio.Event, seconds: float) -> None:
        """Let the activities under way end within so many seconds, or until `stop_now` is set; fail what is left then."""
        self.enter(State.DRAINING)
        await becomes_true(lambda: stop_now.is_set() or not self.activities, seconds)
        for activity in list(self.activities):
            activity.shut_down()
        await becomes_true(lambda: not self.activities, _CUT_TIMEOUT)
        for activity in list(self.activities):
            activity.abandon()
        await becomes_true(lambda: not self.activities, _CUT_TIMEOUT)

    async def run_timer(
        self, interval: float, on_defect: Callable[[Exception], None], *housekeeping: Callable[[], None]
    ) -> None:
        """Tick all activities every `interval` seconds, so that keep-alives and time limits cost nothing per chunk."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(interval)
            now = loop.time()
            _do_each([*housekeeping, *(partial(activity.tick, now) for activity in self.activities)], on_defect)


def _do_each(works: Iterable[Callable[[], None]], on_defect: Callable[[Exception], None]) -> None:
    """Do each; not in the loop of the timer, whose frame would keep the last activity until the next tick."""
    for work in works:
        try:
            work()
        except Exception as defect:  # it must not stop the others
            on_defect(defect)
