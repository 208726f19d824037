"""Token buckets: no more than a minute's worth at once, no more than the rate over any time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.server.access.rate_limits import MINUTE, Bucket
from responses_gateway.server.protocols.responses import duration

LIMITS = st.integers(1, 1_000_000)
WAITS = st.lists(st.floats(0, 200, allow_nan=False), min_size=1, max_size=60)


@given(st.integers(1, 300), WAITS)
def test_what_is_let_through_is_never_more_than_burst_and_rate(limit: int, waits: list[float]) -> None:
    bucket = Bucket(limit, 0.0)
    now = 0.0
    taken = 0
    for wait in waits:
        now += wait
        while bucket.remaining(now) and taken < 2_000:
            bucket.take(1, now)
            taken += 1
    assert taken <= limit + now * limit / MINUTE + 1e-3 * (1 + limit)


@given(LIMITS, st.lists(st.tuples(st.floats(0, 200), st.floats(0, 3)), min_size=1, max_size=60))
def test_the_time_that_is_told_is_enough_and_not_more_than_that(limit: int, uses: list[tuple[float, float]]) -> None:
    """Take a part of the limit after each wait, perhaps more than there is."""
    bucket = Bucket(limit, 0.0)
    now = 0.0
    for wait, part in uses:
        now += wait
        bucket.take(int(part * limit), now)
        told = bucket.seconds_until(1, now)
        if told * limit / MINUTE > 1e-5:  # more than a rounding error
            assert bucket.remaining(now + told * 0.9) == 0
            now += told
            assert bucket.remaining(now) >= 1
        assert bucket.remaining(now) <= limit


@given(LIMITS, WAITS)
def test_a_clock_that_stands_or_goes_back_gives_nothing(limit: int, waits: list[float]) -> None:
    bucket = Bucket(limit, 1000.0)
    bucket.take(limit, 1000.0)
    for wait in waits:
        assert bucket.remaining(1000.0 - wait) == 0


def test_what_is_taken_on_credit_is_paid_back_first() -> None:
    bucket = Bucket(60, 0.0)
    bucket.take(180, 0.0)  # a response's tokens are known when it has ended
    assert bucket.seconds_until(1, 0.0) == 121.0
    assert bucket.remaining(119.0) == 0
    assert bucket.remaining(121.0) == 1
    assert bucket.seconds_until(bucket.limit, 121.0) == 59.0
    assert bucket.remaining(1000.0) == 60


DURATIONS = {
    0: "0s",
    0.0001: "1ms",
    0.12: "120ms",
    0.9995: "1s",
    1: "1s",
    1.2: "2s",
    59.2: "1m0s",
    360: "6m0s",
    86_399.5: "24h0m0s",
}


@pytest.mark.parametrize(("seconds", "text"), DURATIONS.items())
def test_durations_are_written_as_openai_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text
