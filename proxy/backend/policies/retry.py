"""When a request may be tried again at another backend, and after how long.

Retries multiply the load when there is least room for it: a budget allows one for every few requests. A backend that is gone
has no load any more: what it leaves behind goes to one that is well without a budget, however much it is at once. No clock, no
randomness of its own.
"""

from __future__ import annotations

from typing import Literal

#: Why a request leaves a backend for another one. `broke`: its stream broke off before the client saw anything of it.
Reason = Literal["connect", "connect_timeout", "dropped", "silent", "status_502", "status_503", "status_504", "busy", "broke"]

#: The backend, or the way to it, is gone.
GONE: frozenset[Reason] = frozenset({"connect", "dropped", "broke"})
_STATUSES: dict[int, Reason] = {429: "busy", 502: "status_502", 503: "status_503", 504: "status_504"}
_FIRST_WAIT = 0.05
_LONGEST_WAIT = 1.0


def reason_of(status: int) -> Reason | None:
    """Why an answer with this status is worth another try elsewhere, or None. 500 is not: it may well be the request's doing,
    and would fell one backend after the other."""
    return _STATUSES.get(status)


def backoff(attempt: int, random: float) -> float:
    """Seconds to wait before a retry: exponential with full jitter. `attempt` is 1 for the first, `random` from 0 to 1."""
    return random * float(min(_FIRST_WAIT * 2 ** (attempt - 1), _LONGEST_WAIT))


class RetryBudget:
    """A token bucket: each request pays in a fraction of a retry, and so does each second; a retry takes a whole one."""

    def __init__(self, per_request: float = 0.2, per_second: float = 1.0, size: float = 10.0) -> None:
        """Full at the beginning; `size` is the most retries that can come at once."""
        self._per_request = per_request
        self._per_second = per_second
        self._size = self._left = size
        self._at: float | None = None

    def request(self) -> None:
        """A request came."""
        self._left = min(self._size, self._left + self._per_request)

    def take(self, now: float) -> bool:
        """Take one retry if there is one. `now` is in seconds."""
        if self._at is not None:
            self._left = min(self._size, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
