"""When a request may be sent to another backend, and after how long. No clock and no randomness of its own.

Retries multiply the load when capacity is scarcest: a budget allows one for every few requests. A backend that cannot be
reached has no load any more: its requests move to a healthy one without a budget, however many they are. Those that were never
sent do not count as attempts while a backend is left that nothing speaks against, nor some of them where none is: health checks
may be late for all."""

from __future__ import annotations

from typing import Literal

from responses_gateway.backend.transport.client import Unanswered

# Why a request leaves a backend for another one. `broke`: its stream broke off before the client saw anything of it.
Reason = Literal[Unanswered, "status_502", "status_503", "status_504", "busy", "broke"]
# Why a request is sent again to the same backend: its connection, which had served another one, was closed without an answer.
Repeated = Literal["stale_connection"]

# There was no connection, so the request was not sent.
UNCONNECTED: frozenset[Reason] = frozenset({"dns", "tls", "connect", "connect_timeout"})
# The backend, or the network to it, has failed.
UNREACHABLE: frozenset[Reason] = UNCONNECTED | {"dropped", "broke"}
# 529 is what some servers answer that are overloaded.
_STATUSES: dict[int, Reason] = {429: "busy", 502: "status_502", 503: "status_503", 504: "status_504", 529: "busy"}
# The longest wait before the first retry, in seconds: doubled with each retry, up to the longest of all.
_FIRST_WAIT = 0.05
_LONGEST_WAIT = 1.0


def reason_of(status: int) -> Reason | None:
    """Return why an answer with this status is to be tried elsewhere, or None if it is not. 500 is not: the request itself may
    cause it, and would fail one backend after the other."""
    return _STATUSES.get(status)


def backoff(attempt: int, random: float) -> float:
    """Return the seconds to wait before a retry: exponential with full jitter. `attempt` begins at 1, `random` is 0 to 1."""
    return random * float(min(_FIRST_WAIT * 2 ** (attempt - 1), _LONGEST_WAIT))


class RetryBudget:
    """A token bucket: each request adds a fraction of a retry, and so does each second; a retry takes a whole one."""

    def __init__(self, per_request: float = 0.2, per_second: float = 1.0, size: float = 10.0) -> None:
        """Start full; `size` is the most retries that can come at once."""
        self._per_request = per_request
        self._per_second = per_second
        self._size = size
        self._left = size
        self._at: float | None = None

    def request(self) -> None:
        """Note that a request came."""
        self._left = min(self._size, self._left + self._per_request)

    def take(self, now: float) -> bool:
        """Take one retry, or return False if there is none. `now` is in seconds."""
        if self._at is not None:
            self._left = min(self._size, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
