"""How much data the tests go through: all of it with THOROUGH=1, as in `make test-all`, else an even part.

Every test runs in both cases. These are variables of the environment, because hypothesis and pytest ask while test files are
imported, in each process of a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

THOROUGH = os.environ.get("THOROUGH") == "1"
# In CI (COVERAGE=1) and in a thorough run a failure belongs to a change. Brief runs try other data each time, by people who can
# look.
REPEATABLE = THOROUGH or os.environ.get("COVERAGE") == "1"

T = TypeVar("T")


def examples(number: int) -> int:
    """Return how many examples a property test makes, which are so many in a thorough run."""
    return number if THOROUGH else min(number, max(10, number // 16))


def one_in(step: int, cases: Sequence[T]) -> Sequence[T]:
    """Return one of `step` cases; all of them in a thorough run."""
    return cases if THOROUGH else cases[::step]
