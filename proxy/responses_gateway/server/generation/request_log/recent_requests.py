"""The requests that ended last in this process, and the counts of the last hour in intervals of ten seconds.

Neither has content: no text of a request or an answer, and no name that a client has chosen except the model's."""

from __future__ import annotations

import secrets
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from operator import itemgetter
from typing import Any, Generic, TypeVar

import msgspec

from responses_gateway.request import Loss
from responses_gateway.server.generation.request_log.metrics import GAP_BUCKETS
from responses_gateway.stream.writer.interface import Span
from responses_gateway.telemetry.instruments import LATENCY_BUCKETS

# The number of requests that are kept after their end, and of those that were refused before a response began.
REMEMBERED = 500
REFUSALS_REMEMBERED = 100
T = TypeVar("T")
# Seconds of one interval, and how many there are.
INTERVAL = 10
_INTERVALS = 3600 // INTERVAL


class Interval(msgspec.Struct):
    """The counts of ten seconds. Latencies are counted in the buckets of the metrics, longer ones in one more bucket."""

    began: int  # a Unix time in seconds, a multiple of `INTERVAL`
    outcomes: dict[str, int]  # requests that ended
    first_token: list[int]
    gaps: list[int]
    in_flight: int = 0  # at most
    input_tokens: int = 0
    output_tokens: int = 0


class LastEnded(Generic[T]):
    """The requests that ended last, each with a number that never decreases. Refusals are kept apart: however many there are,
    they push nothing else out."""

    def __init__(self) -> None:
        self._answered: deque[tuple[int, T]] = deque(maxlen=REMEMBERED)
        self._refused: deque[tuple[int, T]] = deque(maxlen=REFUSALS_REMEMBERED)

    def add(self, number: int, request: T, *, refused: bool) -> None:
        """Keep a request; `refused`: before a response began."""
        (self._refused if refused else self._answered).append((number, request))

    def since(self, number: int) -> list[T]:
        """Return the requests with higher numbers, by their numbers."""
        entries = [entry for kept in (self._answered, self._refused) for entry in kept if entry[0] > number]
        return [request for _, request in sorted(entries, key=itemgetter(0))]


class RequestSummary(msgspec.Struct, eq=False):
    """One line of the window. It refers to the counts of the request's log and translator, which are converted to plain data on
    demand (`shown`, `details`).

    `line` has the fields of its log line. `refused`: before a response began, so that there is no such line. `state` is the
    kind of the open item. `gaps` counts the times between reads by the buckets of the metrics, `gap_sum` is their sum in
    seconds. `record` names the file with the recorded exchange."""

    id: str
    line: Mapping[str, Any]
    started: float  # a Unix time in seconds, like `ended`
    client: str
    losses: Sequence[Loss] = ()
    gaps: Sequence[int] = ()
    gap_sum: float = 0.0
    record: str | None = None
    ended: float | None = None
    phase: str | None = None
    produced: int = 0  # output tokens, or chunks where the backend reported none
    chunks: int = 0
    state: str = ""
    spans: Mapping[int, Span] = msgspec.field(default_factory=dict)
    repairs: Mapping[str, int] = msgspec.field(default_factory=dict)
    tokens: Mapping[str, int] = msgspec.field(default_factory=dict)
    events: Mapping[str, int] = msgspec.field(default_factory=dict)
    refused: bool = False

    @property
    def outcome(self) -> str:
        """How the request ended; `running` before its end."""
        return "running" if self.ended is None else self.line["outcome"]

    def shown(self) -> dict[str, Any]:
        """Return the fields of the list of requests."""
        return {
            **self.line,
            "id": self.id,
            "outcome": self.outcome,
            "started": self.started,
            "ended": self.ended,
            "client": self.client,
            "chunks": self.chunks,
            "items": [self._item(span) for span in self.spans.values()],
            "repairs": self.repairs,
            "record": self.record,
            "refused": self.refused,
        }

    def details(self) -> dict[str, Any]:
        """Return all fields."""
        return {
            **self.shown(),
            "phase": self.phase or self.line.get("phase"),
            "losses": [loss._asdict() for loss in self.losses],
            "tokens": self.tokens,
            "events": self.events,
            "gaps": self.gaps,
            "gap_sum": self.gap_sum,
        }

    def _item(self, span: Span) -> dict[str, Any]:
        return {"type": span.kind or self.state, "opened": span.opened, "closed": span.closed, "size": span.size}


class RecentRequests:
    """Keeps the requests that end (`add`), and counts; `sample` has to be called about once a second."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns the Unix time in seconds."""
        # Identifies this process: the ids of its requests begin with it.
        self.process = secrets.token_hex(4)
        self._ended = LastEnded[RequestSummary]()
        self.intervals: deque[Interval] = deque(maxlen=_INTERVALS)
        self._clock = clock
        self._ids = count(1)
        self._ends = 0
        self._produced = 0  # tokens of the requests that have ended
        self._counted = 0  # tokens that are in some interval

    @property
    def last(self) -> int:
        """The number of the last request that ended; 0 before the first one."""
        return self._ends

    def since(self, number: int) -> list[RequestSummary]:
        """Return the requests that ended after the one of this number, the oldest first."""
        return self._ended.since(number)

    def find(self, request_id: str) -> RequestSummary | None:
        """Return a request that has ended, by its id."""
        return next((summary for summary in self.since(0) if summary.id == request_id), None)

    def new_id(self) -> str:
        """Return an id for a request, unique among those of all workers."""
        return f"{self.process}-{next(self._ids)}"

    def add(self, summary: RequestSummary) -> None:
        """Remember a request that has ended."""
        self._ends += 1
        self._ended.add(self._ends, summary, refused=summary.refused)
        self._produced += summary.produced
        interval = self._interval()
        outcome = summary.outcome
        interval.outcomes[outcome] = interval.outcomes.get(outcome, 0) + 1
        interval.input_tokens += summary.line.get("input_tokens", 0)
        first_token = summary.line.get("first_token")
        if first_token is not None:
            interval.first_token[bisect_left(LATENCY_BUCKETS, first_token)] += 1
            if any(summary.gaps):
                interval.gaps = [one + more for one, more in zip(interval.gaps, summary.gaps, strict=True)]

    def sample(self, in_flight: int, producing: int) -> None:
        """Count the running requests (`in_flight`) and the tokens that they have produced so far (`producing`)."""
        interval = self._interval()
        interval.in_flight = max(interval.in_flight, in_flight)
        produced = self._produced + producing
        # A backend may report fewer tokens at the end than it sent chunks.
        interval.output_tokens += max(0, produced - self._counted)
        self._counted = max(produced, self._counted)

    def _interval(self) -> Interval:
        began = int(self._clock()) // INTERVAL * INTERVAL
        if not self.intervals or self.intervals[-1].began < began:
            new = Interval(began, {}, [0] * (len(LATENCY_BUCKETS) + 1), [0] * (len(GAP_BUCKETS) + 1))
            self.intervals.append(new)
        return self.intervals[-1]
