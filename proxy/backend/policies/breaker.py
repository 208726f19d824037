"""A circuit breaker: a backend that fails again and again is left alone for a while, then tried with one request.

    closed --(failures in a row)--> open --(its time is over)--> half-open --(the trial succeeds)--> closed
                                     ^                              |
                                     +------(the trial fails: twice the time)

No clock of its own: `now` is in seconds, of any clock that does not run backwards.
"""

from __future__ import annotations

from typing import Literal

State = Literal["closed", "open", "half_open"]
#: The time that it stays open doubles with each trial that fails, up to this many times the first.
_LONGEST = 8


class Breaker:
    """The breaker of one backend. Ask `allows`, then say `begin`, and at the end one of `succeeded`, `failed`, `abandoned`."""

    def __init__(self, failures: int, seconds: float) -> None:
        """Opens after so many failures in a row, for so many seconds the first time."""
        self._limit = failures
        self._seconds = self._open_for = seconds
        self._failures = 0
        self._opened_at: float | None = None
        self._trying = False

    def state(self, now: float) -> State:
        """What it is; half-open from the moment that a trial is due until that has ended."""
        if self._opened_at is None:
            return "closed"
        return "half_open" if self._trying or now - self._opened_at >= self._open_for else "open"

    @property
    def spotless(self) -> bool:
        """The backend did its part the last time, as far as is known."""
        return not self._failures and self._opened_at is None

    def allows(self, now: float) -> bool:
        """A request may be sent now."""
        return self._opened_at is None or (not self._trying and now - self._opened_at >= self._open_for)

    def opens_in(self, now: float) -> float:
        """Seconds until a request may be sent; 0 if one may now. While a trial runs nobody knows: its first time."""
        if self.allows(now):
            return 0.0
        assert self._opened_at is not None
        return self._seconds if self._trying else self._opened_at + self._open_for - now

    def begin(self, now: float) -> None:
        """A request that is allowed is sent."""
        if self._opened_at is not None:
            self._trying = True

    def succeeded(self) -> None:
        """The backend did its part."""
        self._failures = 0
        self._open_for = self._seconds
        self._opened_at = None
        self._trying = False

    def failed(self, now: float) -> None:
        """It did not. What was sent before the breaker opened and fails afterwards changes nothing."""
        if self._opened_at is None:
            self._failures += 1
            if self._failures >= self._limit:
                self._opened_at = now
        elif self._trying:
            self._trying = False
            self._opened_at = now
            self._open_for = min(self._open_for * 2, self._seconds * _LONGEST)

    def abandoned(self) -> None:
        """The request ended before anybody knows: its client left, say. The next one is the trial."""
        self._trying = False
