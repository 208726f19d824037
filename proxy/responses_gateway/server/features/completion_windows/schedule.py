"""Which waiting responses begin now. No I/O and no clock: a simulation drives it through a day.

They begin while backends are idle: while the others' requests at their busiest moment of the last minutes, and ours, are fewer
than `idle`. Where not all deadlines would be kept in that way, though the backends stay as busy as they are for two hours and
are idle then, they take any free place, but no more at a time than are needed."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from responses_gateway.backend.idle import ModelLoad
from responses_gateway.state.waiting import Due, Waiting

MEMORY = 180.0  # for how long the busiest moment counts, in seconds
# For how long backends are expected to be as busy as in the last minutes, and over how many seconds that is measured.
_HORIZON = 7200.0
_MEASURED = 600.0
# How long a response takes of which none has ended yet, in seconds, and what the last one counts.
_FIRST_GUESS = 60.0
_WEIGHT = 0.1
# Seconds before a deadline at which a response is to have ended, and how much longer than expected all may take.
SAFETY = 600.0
_DOUBT = 1.2
# Seconds after a deadline for which a response waits for a backend that serves its model.
LATEST_START = 3600.0
AT_ONCE = 32  # responses of a model that begin at a time


class Startable(NamedTuple):
    """How many responses may begin: `idle` of any, or `pressed` of those with the first deadlines, whichever are more."""

    idle: int = 0
    pressed: int = 0

    @property
    def any(self) -> int:
        """How many may begin, for whatever reason."""
        return max(self.idle, self.pressed)


class ModelSchedule:
    """The waiting responses of one model. All times are in seconds, those of deadlines Unix times."""

    def __init__(self) -> None:
        self.expected = _FIRST_GUESS  # seconds that a response takes
        self.running: Counter[str] = Counter()  # responses that have waited and run here, by tenant
        self._capacity: float | None = None  # idle places lately, those that are ours included
        self._seen = 0.0  # when that was measured
        self._others: deque[tuple[float, int]] = deque()  # when others had how many requests: falling, the busiest first

    def begun(self, tenant: str) -> None:
        """Note that a response begins."""
        self.running[tenant] += 1

    def ended(self, tenant: str, seconds: float | None) -> None:
        """Note that a response has ended, after so many seconds; None if it did not begin."""
        self.running[tenant] -= 1
        if not self.running[tenant]:
            del self.running[tenant]
        if seconds is not None:
            self.expected += _WEIGHT * (seconds - self.expected)

    def places(self, load: ModelLoad, due: Sequence[Due], now: float) -> Startable:
        """Return how many of those that wait may begin. `due` are all of the model, the first deadlines first."""
        ours = self.running.total()
        others = max(0, load.used - ours)
        if self._others and now < self._others[-1][0]:  # the clock was set back
            self._others = deque([(now, self._others[0][1])])
        while self._others and self._others[-1][1] <= others:
            self._others.pop()
        self._others.append((now, others))
        while self._others[0][0] < now - MEMORY:
            self._others.popleft()
        if not load.idle:  # no backend: what was missed for too long ends with the reason
            return Startable(0, min(AT_ONCE, sum(each.number for each in due if each.deadline + LATEST_START < now)))
        idle = max(0, load.idle - self._others[0][1])
        needed = self._needed(self._measured(idle, now), load.idle, due, now)
        most = AT_ONCE if load.free is None else min(AT_ONCE, load.free)
        return Startable(max(0, min(idle - ours, most)), max(0, min(needed - ours, most)))

    def _measured(self, idle: int, now: float) -> float:
        """Return how many places were idle lately, given those of now."""
        if self._capacity is None:
            self._capacity = float(idle)
        self._capacity += min(1.0, max(0.0, now - self._seen) / _MEASURED) * (idle - self._capacity)
        self._seen = now
        return self._capacity

    def _needed(self, lately: float, later: int, due: Iterable[Due], now: float) -> int:
        """Return how many have to run at the same time so that all deadlines are kept; 0 while the idle places are enough that
        there are `lately`, and `later`."""
        work = 0.0
        needed = 0
        for each in due:
            work += _DOUBT * self.expected * each.number
            left = each.deadline - now - SAFETY
            if left <= _DOUBT * self.expected:
                needed = max(needed, round(work / (_DOUBT * self.expected)))
            elif work >= lately * min(left, _HORIZON) + later * max(0.0, left - _HORIZON):
                needed = max(needed, int(work / left))
        return needed

    def choose(self, waiting: Sequence[Waiting], places: Startable) -> list[Waiting]:
        """Return which begin: the first deadlines where they press, else turn by turn for each tenant, follow-ups first."""
        if places.pressed >= places.any:
            return sorted(waiting, key=_deadline)[: places.pressed]
        chosen: list[Waiting] = []
        counts = Counter(self.running)
        ranked: dict[str, list[Waiting]] = {}
        for each in sorted(waiting, key=_rank, reverse=True):
            ranked.setdefault(each.tenant, []).append(each)
        while ranked and len(chosen) < places.idle:
            tenant = min(ranked, key=lambda name: (counts[name], _rank(ranked[name][-1])))
            chosen.append(ranked[tenant].pop())
            counts[tenant] += 1
            if not ranked[tenant]:
                del ranked[tenant]
        return chosen


def _deadline(waiting: Waiting) -> tuple[float, str]:
    return waiting.deadline, waiting.response_id


def _rank(waiting: Waiting) -> tuple[bool, float, str]:
    return not waiting.follow_up, waiting.deadline, waiting.response_id
