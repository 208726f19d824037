"""How often, and how soon, a request is tried again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.backend.policies.retry import RetryBudget, backoff, reason_of


def test_only_what_another_backend_may_do_better_is_tried_again() -> None:
    assert {status for status in range(200, 600) if reason_of(status) is not None} == {429, 502, 503, 504, 529}


@pytest.mark.parametrize(("attempt", "longest"), [(1, 0.05), (2, 0.1), (3, 0.2), (20, 1.0)])
def test_the_wait_is_anything_up_to_a_limit_that_doubles(attempt: int, longest: float) -> None:
    assert backoff(attempt, 0) == 0
    assert backoff(attempt, 0.5) == pytest.approx(longest / 2)
    assert backoff(attempt, 1) == pytest.approx(longest)


def test_a_budget_allows_a_retry_for_every_few_requests() -> None:
    budget = RetryBudget(per_request=0.2, per_second=0, size=3)
    assert [budget.take(0) for _ in range(4)] == [True, True, True, False]
    for _ in range(5):
        assert not budget.take(0)
        budget.request()
    assert [budget.take(0), budget.take(0)] == [True, False]


def test_a_quiet_gateway_may_retry_as_well() -> None:
    budget = RetryBudget(per_request=0, per_second=1, size=2)
    assert [budget.take(0), budget.take(0), budget.take(0)] == [True, True, False]
    assert not budget.take(0.5)
    assert budget.take(1.5)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 2)), max_size=200))
def test_a_budget_is_never_exceeded(events: list[tuple[bool, float]]) -> None:
    budget = RetryBudget()
    now = 0.0
    requests = 0
    retries = 0
    for is_request, passed in events:
        now += passed
        if is_request:
            budget.request()
            requests += 1
        else:
            retries += budget.take(now)
    assert retries <= 10 + 0.2 * requests + now + 1e-6
