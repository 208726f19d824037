"""A circuit breaker: a backend that fails repeatedly gets no requests for a while, then a single one as a trial.

    closed --(failures in a row)--> open --(its time is over)--> half-open --(the trial succeeds)--> closed
                                     ^                              |
                                     +------(the trial fails: twice the time)

A health check that succeeds closes it at once where it tells something new: after a check that failed, or after connections
that failed; but not where requests are refused or hang while the checks succeed, and not twice before a request succeeds.
Where no better backend is left, a trial may come early (`may_try`).

It has no clock of its own: `now` is in seconds, of any clock that does not run backwards."""

from __future__ import annotations

from typing import Literal

State = Literal["closed", "open", "half_open"]
# The time that the breaker stays open doubles with each failed trial, up to this many times the first.
_LONGEST = 8
_PAUSE = 0.5  # seconds after a failure before an early trial


class Breaker:
    """The breaker of one backend. Ask `allows`, then call `begin`, and at the end one of `succeeded`, `failed`, `abandoned`."""

    def __init__(self, failures: int, seconds: float) -> None:
        """Open after so many failures in a row, for so many seconds the first time."""
        # The last request succeeded, or none was sent: then `begin` and `succeeded` need not be called.
        self.no_recent_failures = True
        # A check closed it, and no request has ended well since.
        self.closed_by_check = False
        self._limit = failures
        self._seconds = seconds
        self._open_for = seconds
        self._failures = 0
        self._failed_at = 0.0
        self._opened_at: float | None = None
        self._trying = False
        self._early = False  # the trial came before the time was over
        self._check_failed = False  # the last health check
        self._checks_count = False  # one that succeeds closes the breaker

    def state(self, now: float) -> State:
        """Return the state; it is half-open from the moment that a trial is due until the trial has ended."""
        if self._opened_at is None:
            return "closed"
        return "half_open" if self._trying or now - self._opened_at >= self._open_for else "open"

    def allows(self, now: float) -> bool:
        """Tell whether a request may be sent now."""
        return self._opened_at is None or (not self._trying and now - self._opened_at >= self._open_for)

    def may_try(self, now: float) -> bool:
        """Tell whether a request may be sent now if there is no better backend: one at a time, not at once after a failure."""
        return self.allows(now) or (not self._trying and now - self._failed_at >= min(_PAUSE, self._seconds))

    def opens_in(self, now: float) -> float:
        """Return the seconds until a request may be sent: 0 if one may now, the first open time while a trial runs."""
        if self.allows(now):
            return 0.0
        assert self._opened_at is not None
        return self._seconds if self._trying else self._opened_at + self._open_for - now

    def begin(self, now: float) -> None:
        """Note that a request that is allowed is sent."""
        if self._opened_at is not None:
            self._trying = True
            self._early = now - self._opened_at < self._open_for

    def succeeded(self) -> None:
        """Note that a request succeeded."""
        self.no_recent_failures = True
        self.closed_by_check = False
        self._failures = 0
        self._open_for = self._seconds
        self._opened_at = None
        self._trying = False

    def failed(self, now: float, *, unreachable: bool = False) -> None:
        """Note that a request failed; `unreachable`: the connection did. One that was sent before the breaker opened, and
        fails later, changes nothing."""
        self.no_recent_failures = False
        if self._opened_at is None:
            self._failed_at = now
            self._failures += 1
            if self._failures >= self._limit:
                self._opened_at = now
                self._checks_count = self._check_failed or (unreachable and not self.closed_by_check)
        elif self._trying:
            self._failed_at = now
            self._trying = False
            if not self._early:
                self._opened_at = now
                self._open_for = min(self._open_for * 2, self._seconds * _LONGEST)

    def abandoned(self) -> None:
        """Note that a request ended without a result, because its client left, for example. The next one is the trial."""
        self._trying = False

    def check_ended(self, *, succeeded: bool) -> bool:
        """Take the result of a health check; return whether that closed the breaker. The next failure opens it again."""
        self._check_failed = not succeeded
        if self._opened_at is None:
            return False
        if not succeeded:
            self._checks_count = True
        if not (succeeded and self._checks_count):
            return False
        self.closed_by_check = True
        self._opened_at = None
        self._trying = False
        self._failures = self._limit - 1
        return True
