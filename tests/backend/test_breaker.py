"""The states of a circuit breaker over time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.backend.policies.breaker import Breaker


def opened(failures: int = 3, seconds: float = 10) -> Breaker:
    """Return a breaker that opened at 0."""
    breaker = Breaker(failures, seconds)
    for _ in range(failures):
        assert breaker.allows(0)
        breaker.begin(0)
        breaker.failed(0)
    return breaker


def test_it_opens_after_failures_in_a_row() -> None:
    breaker = Breaker(2, 10)
    breaker.failed(0)
    breaker.succeeded()
    breaker.failed(0)
    assert breaker.state(0) == "closed"
    breaker.failed(0)
    assert breaker.state(0) == "open"
    assert not breaker.allows(9.9)
    assert breaker.opens_in(4) == 6


def test_one_request_tries_whether_it_is_well_again() -> None:
    breaker = opened()
    assert breaker.state(10) == "half_open"
    assert breaker.allows(10)
    breaker.begin(10)
    assert not breaker.allows(10)
    assert breaker.opens_in(11) > 0
    breaker.succeeded()
    assert (breaker.state(11), breaker.allows(11), breaker.opens_in(11)) == ("closed", True, 0)


def test_each_trial_that_fails_doubles_the_time_up_to_a_limit() -> None:
    breaker = opened()
    now = 0.0
    waits = []
    for _ in range(6):
        waits.append(breaker.opens_in(now))
        now += breaker.opens_in(now)
        breaker.begin(now)
        breaker.failed(now)
    assert waits == [10, 20, 40, 80, 80, 80]
    breaker.begin(now + 80)
    breaker.succeeded()
    for _ in range(3):
        breaker.failed(now)
    assert breaker.opens_in(now) == 10


def test_a_trial_that_nobody_saw_the_end_of_is_repeated() -> None:
    breaker = opened()
    breaker.begin(10)
    breaker.abandoned()
    assert breaker.allows(10)


def test_what_was_sent_before_it_opened_and_fails_later_changes_nothing() -> None:
    breaker = opened()
    breaker.failed(9)
    assert breaker.allows(10)


@given(st.lists(st.sampled_from(["begin", "succeeded", "failed", "abandoned", "wait"]), max_size=40))
def test_it_never_locks_anybody_out_for_ever(actions: list[str]) -> None:
    breaker = Breaker(2, 1)
    now = 0.0
    under_way = 0
    for action in actions:
        if action == "wait":
            now += 0.7
        elif action == "begin":
            if breaker.allows(now):
                breaker.begin(now)
                under_way += 1
        elif under_way:
            under_way -= 1
            if action == "failed":
                breaker.failed(now)
            else:
                {"succeeded": breaker.succeeded, "abandoned": breaker.abandoned}[action]()
    while under_way:
        breaker.abandoned()
        under_way -= 1
    assert breaker.allows(now + 8)


def test_a_health_check_that_succeeds_closes_it_after_connections_that_failed() -> None:
    breaker = Breaker(2, 10)
    for _ in range(2):
        breaker.failed(0, unreachable=True)
    assert breaker.check_ended(succeeded=True)
    assert (breaker.state(0), breaker.allows(0), breaker.no_recent_failures) == ("closed", True, False)
    breaker.failed(1, unreachable=True)
    assert breaker.state(1) == "open"  # one failure is enough now
    assert not breaker.check_ended(succeeded=True)  # the checks were wrong before
    assert not breaker.check_ended(succeeded=False)
    assert breaker.check_ended(succeeded=True)  # they noticed the failure this time


def test_a_health_check_that_succeeded_all_the_time_closes_nothing() -> None:
    breaker = opened()
    assert not breaker.check_ended(succeeded=True)
    breaker.check_ended(succeeded=False)
    assert breaker.check_ended(succeeded=True)
    breaker.succeeded()
    breaker.check_ended(succeeded=False)
    for _ in range(3):
        breaker.failed(0)
    assert breaker.check_ended(succeeded=True)  # the last check before it opened had failed


def test_an_early_trial_is_one_at_a_time_and_costs_no_time() -> None:
    breaker = opened()
    assert (breaker.may_try(0.4), breaker.may_try(0.6), breaker.allows(0.6)) == (False, True, False)
    breaker.begin(0.6)
    assert not breaker.may_try(5)
    breaker.failed(0.7)
    assert not breaker.may_try(0.8)
    assert breaker.opens_in(1) == 9
    breaker.begin(2)
    breaker.succeeded()
    assert breaker.state(2) == "closed"
