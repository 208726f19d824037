"""A day of two backends, simulated: interactive requests by the hour, with and without a night queue beside them.

    python -m bench.night_queue

The schedule is the gateway's own (`completion_windows/schedule.py`); backends, queue and clock are simulated, and every run
gives the same numbers. Each backend answers `PLACES` requests at a time, and what comes then waits, as in the pool."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from math import cos, inf, pi
from random import Random
from typing import NamedTuple

from responses_gateway.backend.idle import ModelLoad
from responses_gateway.server.features.completion_windows.schedule import AT_ONCE, ModelSchedule
from responses_gateway.state.waiting import Due, Waiting

BACKENDS = 2
PLACES = 16
_HOUR = 3600
DAY = 24 * _HOUR
# The least and the most interactive requests per second, at 4:00 and at 16:00, and how long one takes, in seconds.
QUIET = 0.1
BUSY = 2.0
INTERACTIVE_SECONDS = 12.0
NIGHT_SECONDS = 25.0
_MINUTE = 60


@dataclass
class Day:
    """A day of so many hours; `night` responses with a window, in hours, are queued evenly between two hours of it."""

    night: int
    begins: int = 12
    hours: int = 24
    window: float = 8
    filled_from: float = 20
    filled_until: float = 22


class Outcome(NamedTuple):
    """What came of a day: how long interactive requests waited for a place (percentiles in seconds), and how many responses of
    the night queue ended, how many of them too late, and at which hour the last one did."""

    interactive: int
    p99: float
    p999: float
    night: int
    missed: int
    last: float


class _Simulation:
    def __init__(self, day: Day) -> None:
        self.day = day
        self.now = 0.0
        self.waits: list[float] = []
        self.ended_at: list[float] = []
        self.missed = 0
        self._random = Random(7)
        self._night_random = Random(11)
        self._length_random = Random(13)
        self._busy_places = 0
        self._queue: deque[tuple[float, float]] = deque()  # when the interactive requests came that wait, and their lengths
        self._ends: list[tuple[float, int, Waiting | None, float]] = []  # (when, number, of the night, when it began)
        self._number = 0
        self._schedule = ModelSchedule()
        self._night: deque[Waiting] = deque()
        self._due: dict[int, int] = {}

    def run(self) -> Outcome:
        """Return what comes of the day, and of what is still waiting at its end."""
        day = self.day
        filled_from = day.filled_from * _HOUR
        filled_within = (day.filled_until - day.filled_from) * _HOUR
        begins = day.begins * _HOUR
        arrival = self._next_arrival(begins)
        filled = 0
        for tick in range(begins, begins + day.hours * _HOUR):
            self.now = float(tick)
            while min(arrival, self._next_end) <= tick:
                if arrival < self._next_end:
                    self._arrive(arrival)
                    arrival = self._next_arrival(arrival)
                else:
                    self._end()
            while filled < day.night and filled_from + filled_within * filled / day.night <= tick:
                self._queue_night(filled, tick)
                filled += 1
            if self._night:
                self._look()
        waits = sorted(self.waits)
        p99, p999 = (waits[int(part * (len(waits) - 1))] for part in (0.99, 0.999))
        last = max(self.ended_at, default=0.0) / _HOUR % 24
        return Outcome(len(waits), p99, p999, len(self.ended_at), self.missed, last)

    @property
    def _next_end(self) -> float:
        return self._ends[0][0] if self._ends else inf

    def _next_arrival(self, after: float) -> float:
        rate = QUIET + (BUSY - QUIET) * (1 - cos(2 * pi * (after / DAY - 1 / 6))) / 2
        return after + self._random.expovariate(rate)

    def _arrive(self, now: float) -> None:
        length = self._length_random.expovariate(1 / INTERACTIVE_SECONDS)
        if self._busy_places < BACKENDS * PLACES:
            self.waits.append(0.0)
            self._begin(now, None, length)
        else:
            self._queue.append((now, length))

    def _begin(self, now: float, night: Waiting | None, seconds: float) -> None:
        self._busy_places += 1
        self._number += 1
        heapq.heappush(self._ends, (now + seconds, self._number, night, now))

    def _end(self) -> None:
        now, _, night, began = heapq.heappop(self._ends)
        self._busy_places -= 1
        if night is not None:
            self._schedule.ended(night.tenant, now - began)
            self.ended_at.append(now)
            self.missed += now > night.deadline
        if self._queue:
            came, length = self._queue.popleft()
            self.waits.append(now - came)
            self._begin(now, None, length)

    def _queue_night(self, number: int, now: float) -> None:
        deadline = now + self.day.window * _HOUR
        self._night.append(Waiting(f"resp_{number:06}", "night", "8h", False, now, deadline))
        minute = int(deadline // _MINUTE)
        self._due[minute] = self._due.get(minute, 0) + 1

    def _look(self) -> None:
        places = BACKENDS * PLACES
        free = 0 if self._queue else places - self._busy_places
        load = ModelLoad(self._busy_places, places // 2, free)
        due = [Due("m", "8h", (minute + 1) * float(_MINUTE), count, 0.0) for minute, count in sorted(self._due.items())]
        allowed = self._schedule.places(load, due, self.now)
        if not allowed.any:
            return
        first = [self._night[at] for at in range(min(AT_ONCE, len(self._night)))]
        for waiting in self._schedule.choose(first, allowed):
            self._night.popleft()
            minute = int(waiting.deadline // _MINUTE)
            self._due[minute] -= 1
            if not self._due[minute]:
                del self._due[minute]
            self._schedule.begun(waiting.tenant)
            self._begin(self.now, waiting, self._night_random.expovariate(1 / NIGHT_SECONDS))


def simulate(day: Day) -> Outcome:
    """Return what comes of a day."""
    return _Simulation(day).run()


def main() -> None:
    """Print the days: without a night queue, with it, and with one whose windows end while the backends are busy."""
    for day in (Day(0), Day(10_000), Day(1_500, window=2, filled_from=14, filled_until=14.5)):
        outcome = simulate(day)
        print(
            f"{day.night:>6} x {day.window} h: {outcome.interactive} interactive requests wait {outcome.p99:.2f} s (p99), "
            f"{outcome.p999:.2f} s (p99.9); {outcome.night} of the night queue ended, {outcome.missed} too late, "
            f"the last at {outcome.last:.1f} h"
        )


if __name__ == "__main__":
    main()
