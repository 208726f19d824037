"""The requests that ended last in this process, and the counts of the last hour in intervals of ten seconds.

Neither has content: no text of a request or an answer, and no name that a client has chosen except the model's."""

from __future__ import annotations

import secrets
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from responses_gateway.server.generation.request_log.facts import RequestFacts, outcome_of
from responses_gateway.server.generation.request_log.log_line import log_line
from responses_gateway.server.generation.request_log.metrics import GAP_BUCKETS
from responses_gateway.stream.writer.interface import Span
from responses_gateway.telemetry.instruments import LATENCY_BUCKETS

# The number of requests that are kept after their end: those that made a response, those that were refused before one began,
# and those that were only relayed. Each kind has a bound of its own, so that no kind pushes another one out.
REMEMBERED = 500
REFUSALS_REMEMBERED = 100
RELAYED_REMEMBERED = 100
T = TypeVar("T")
Kind: TypeAlias = Literal["response", "refused", "relayed"]
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
    """The requests that ended last, each with a number that never decreases."""

    def __init__(self) -> None:
        self._kept: dict[Kind, deque[tuple[int, T]]] = {
            "response": deque(maxlen=REMEMBERED),
            "refused": deque(maxlen=REFUSALS_REMEMBERED),
            "relayed": deque(maxlen=RELAYED_REMEMBERED),
        }

    def add(self, number: int, request: T, kind: Kind) -> None:
        """Keep a request."""
        self._kept[kind].append((number, request))

    def since(self, number: int) -> list[T]:
        """Return the requests with higher numbers, by their numbers."""
        entries = [entry for kept in self._kept.values() for entry in kept if entry[0] > number]
        return [request for _, request in sorted(entries, key=itemgetter(0))]


class RecentRequests:
    """Keeps the requests that end (`add`), and counts; `sample` has to be called about once a second."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns the Unix time in seconds."""
        # Identifies this process: the ids of its requests begin with it.
        self.process = secrets.token_hex(4)
        self._ended = LastEnded[RequestFacts]()
        self.intervals: deque[Interval] = deque(maxlen=_INTERVALS)
        self._clock = clock
        self._begun = 0
        self._ends = 0
        self._produced = 0  # tokens of the requests that have ended
        self._counted = 0  # tokens that are in some interval

    @property
    def last(self) -> int:
        """The number of the last request that ended; 0 before the first one."""
        return self._ends

    def since(self, number: int) -> list[RequestFacts]:
        """Return the requests that ended after the one of this number, the oldest first."""
        return self._ended.since(number)

    def find(self, request_id: str) -> RequestFacts | None:
        """Return a request that has ended, by its id."""
        return next((facts for facts in self.since(0) if facts.id == request_id), None)

    def new_id(self) -> str:
        """Return an id for a request, unique among those of all workers."""
        self._begun += 1
        return f"{self.process}-{self._begun}"

    def add(self, ended: Iterable[RequestFacts]) -> None:
        """Remember requests that have ended."""
        interval = self._interval()
        outcomes = interval.outcomes
        for facts in ended:
            self._ends += 1
            self._ended.add(self._ends, facts, _kind(facts))
            outcome = outcome_of(facts)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            times = facts.times
            if times.first is not None:
                interval.first_token[bisect_left(LATENCY_BUCKETS, times.first - facts.began)] += 1
            if times.gap_count:
                interval.gaps = [one + more for one, more in zip(interval.gaps, times.gaps, strict=True)]
            answer = facts.answer
            usage = facts.relayed if answer is None else answer.usage
            chunks = 0 if answer is None else answer.chunks
            self._produced += chunks if usage is None or usage.output is None else usage.output
            interval.input_tokens += 0 if usage is None or usage.input is None else usage.input

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


def shown(facts: RequestFacts) -> dict[str, Any]:
    """Return the fields of a request in the list of requests, one that runs included."""
    answer = facts.answer
    used = facts.relayed if answer is None else None
    line = facts.rejected or log_line(facts)
    return {
        **line,
        "session_id": facts.session_id,
        "id": facts.id,
        "outcome": "running" if facts.ended is None else line["outcome"],
        "started": facts.started,
        "ended": facts.ended,
        "client": facts.client,
        "chunks": answer.chunks if answer is not None else (used and used.output) or 0,
        "items": [] if answer is None else [_item(span, answer.state) for span in answer.spans.values()],
        "repairs": {} if answer is None else answer.repairs,
        "record": facts.record,
        "kept_as": _kind(facts),
    }


def _kind(facts: RequestFacts) -> Kind:
    if facts.rejected is not None:
        return "refused"
    return "response" if facts.relayed is None else "relayed"


def details(facts: RequestFacts) -> dict[str, Any]:
    """Return all fields of a request."""
    return {
        **shown(facts),
        "phase": facts.phase if facts.ended is None or facts.client_left else None,
        "losses": [loss._asdict() for loss in facts.losses],
        "tokens": facts.tokens_by_kind,
        "events": {} if facts.answer is None else facts.answer.events,
        "gaps": facts.times.gaps,
        "gap_sum": facts.times.gap_sum,
    }


def _item(span: Span, state: str) -> dict[str, Any]:
    return {"type": span.kind or state, "opened": span.opened, "closed": span.closed, "size": span.size}
