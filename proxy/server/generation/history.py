"""The last requests that ended in this process, and what all of them came to, in intervals of the last hour.

Nothing here is content: no text of a request or of an answer, and no name that a client has made up but the model's."""

from __future__ import annotations

import secrets
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import msgspec

from proxy.telemetry.metrics import INTER_TOKEN_BUCKETS, LATENCY_BUCKETS

# Requests that are remembered once they have ended.
REMEMBERED = 500
# Seconds of one interval, and how many there are.
INTERVAL = 10
_INTERVALS = 3600 // INTERVAL


class Interval(msgspec.Struct):
    """What happened in ten seconds. Latencies are counted by the buckets of the metrics; the last of all longer ones."""

    began: int  # a Unix time in seconds, a multiple of `INTERVAL`
    outcomes: dict[str, int]  # requests that ended
    first_token: list[int]
    gaps: list[int]
    in_flight: int = 0  # at most
    input_tokens: int = 0
    output_tokens: int = 0


class Ended(msgspec.Struct, frozen=True):
    """A request that has ended: the number in the order of their ends, and what is known of it."""

    number: int
    summary: dict[str, Any]


class History:
    """Is told of each request that ends; `sample` is called every second or so."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns the Unix time in seconds."""
        # Names this process among others, in the ids of its requests.
        self.process = secrets.token_hex(4)
        self.ended: deque[Ended] = deque(maxlen=REMEMBERED)
        self.intervals: deque[Interval] = deque(maxlen=_INTERVALS)
        self._clock = clock
        self._numbers = count(1)
        self._ends = 0
        self._produced = 0  # tokens of the requests that have ended
        self._counted = 0  # tokens that are in some interval

    def new_id(self) -> str:
        """Return an id for a request, unique among all workers."""
        return f"{self.process}-{next(self._numbers)}"

    @property
    def last(self) -> int:
        """The number of the last request that ended; 0 before the first one."""
        return self._ends

    def since(self, number: int) -> list[dict[str, Any]]:
        """Return the requests that ended after the one of this number, the oldest first."""
        return [ended.summary for ended in self.ended if ended.number > number]

    def find(self, request_id: str) -> dict[str, Any] | None:
        """Return a request that has ended, by the id that `new_id` gave it."""
        return next((ended.summary for ended in reversed(self.ended) if ended.summary["id"] == request_id), None)

    def add(self, summary: dict[str, Any], gaps: Sequence[int], produced: int) -> None:
        """Remember a request that has ended. `gaps`: the times between its tokens, by bucket; `produced`: its tokens."""
        self._ends += 1
        self.ended.append(Ended(self._ends, summary))
        self._produced += produced
        interval = self._interval()
        outcome = summary["outcome"]
        interval.outcomes[outcome] = interval.outcomes.get(outcome, 0) + 1
        interval.input_tokens += summary.get("input_tokens", 0)
        first_token = summary.get("first_token")
        if first_token is not None:
            interval.first_token[bisect_left(LATENCY_BUCKETS, first_token)] += 1
            for bucket, number in enumerate(gaps):
                interval.gaps[bucket] += number

    def sample(self, in_flight: int, producing: int) -> None:
        """Note how many requests run, and how many tokens they have produced so far."""
        interval = self._interval()
        interval.in_flight = max(interval.in_flight, in_flight)
        produced = self._produced + producing
        # A backend may report fewer tokens at the end than it sent chunks.
        interval.output_tokens += max(0, produced - self._counted)
        self._counted = max(produced, self._counted)

    def _interval(self) -> Interval:
        began = int(self._clock()) // INTERVAL * INTERVAL
        if not self.intervals or self.intervals[-1].began < began:
            new = Interval(began, {}, [0] * (len(LATENCY_BUCKETS) + 1), [0] * (len(INTER_TOKEN_BUCKETS) + 1))
            self.intervals.append(new)
        return self.intervals[-1]
