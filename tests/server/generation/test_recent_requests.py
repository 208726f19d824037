"""What a process remembers of the requests that ended, and what it counts for the plots."""

from __future__ import annotations

from responses_gateway.server.generation.request_log import recent_requests
from responses_gateway.server.generation.request_log.recent_requests import INTERVAL, RecentRequests
from responses_gateway.telemetry.instruments import LATENCY_BUCKETS
from tests.server.ended_requests import ended_facts, refused


class Clock:
    """A clock that one sets by hand."""

    def __init__(self) -> None:
        self.now = 1_000_005.0

    def __call__(self) -> float:
        return self.now


def test_ends_are_told_from_the_last_one_that_was_seen() -> None:
    known = RecentRequests(Clock())
    for name in "abc":
        known.add([ended_facts(name)])
    assert [facts.id for facts in known.since(0)] == ["a", "b", "c"]
    assert [facts.id for facts in known.since(2)] == ["c"]
    assert known.since(known.last) == []
    assert known.find("b") is known.since(0)[1]
    assert known.find("x") is None


def test_intervals_begin_at_round_times_and_the_oldest_go() -> None:
    clock = Clock()
    counted = RecentRequests(clock)
    for _ in range(3600 // INTERVAL + 5):
        counted.sample(1, 0)
        clock.now += INTERVAL
    begins = [interval.began for interval in counted.intervals]
    assert len(begins) == 3600 // INTERVAL
    assert begins[0] == 1_000_000 + 5 * INTERVAL
    assert all(began % INTERVAL == 0 for began in begins)


def test_latencies_are_counted_in_the_buckets_of_the_metrics() -> None:
    counted = RecentRequests(Clock())
    first = ended_facts("a", first_token=0.05, input_tokens=9)
    first.times.gaps[2] = 7
    first.times.gap_count = 7
    counted.add([first, ended_facts("b", "failed", first_token=1e6)])
    counted.add([ended_facts("c", "rejected")])
    (interval,) = counted.intervals
    assert interval.outcomes == {"completed": 1, "failed": 1, "rejected": 1}
    assert interval.first_token[LATENCY_BUCKETS.index(0.05)] == 1
    assert interval.first_token[-1] == 1
    assert sum(interval.first_token) == 2
    assert interval.gaps[2] == 7
    assert interval.input_tokens == 9


def test_tokens_count_while_they_come_and_never_twice() -> None:
    clock = Clock()
    counted = RecentRequests(clock)
    counted.sample(1, 100)
    clock.now += INTERVAL
    counted.sample(2, 250)
    counted.add([ended_facts("a", output_tokens=260)])  # the backend counts differently from the chunks
    counted.sample(1, 0)
    clock.now += INTERVAL
    counted.add([ended_facts("b", output_tokens=10)])
    counted.sample(0, 0)
    assert [interval.output_tokens for interval in counted.intervals] == [100, 160, 10]
    assert [interval.in_flight for interval in counted.intervals] == [1, 2, 0]


def test_memory_is_bounded() -> None:
    known = RecentRequests(Clock())
    for number in range(recent_requests.REMEMBERED + 10):
        known.add([ended_facts(str(number))])
    assert len(known.since(0)) == recent_requests.REMEMBERED
    assert known.find("9") is None
    assert [facts.id for facts in known.since(recent_requests.REMEMBERED + 8)] == ["508", "509"]
    assert len(known.since(3)) == recent_requests.REMEMBERED


def test_refusals_push_nothing_else_out() -> None:
    known = RecentRequests(Clock())
    known.add([ended_facts("answered")])
    for number in range(2 * recent_requests.REMEMBERED):
        known.add([refused(str(number))])
    found = [facts.id for facts in known.since(0)]
    assert found[0] == "answered"
    assert len(found) == 1 + recent_requests.REFUSALS_REMEMBERED
    assert found[-1] == str(2 * recent_requests.REMEMBERED - 1)
