"""How a pool is set up: what it is told of its backends' treatment, and whom it tells of its events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from responses_gateway.backend.policies.breaker import State
from responses_gateway.backend.policies.retry import Reason, Repeated


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one of several processes that use the same backends; they are numbered from 0."""

    number: int = 0
    of: int = 1

    def part(self, limit: int) -> int:
        """Return this process's part of a limit for all. The parts add up to the limit, but none is less than 1."""
        return max(1, limit // self.of + (self.number % self.of < limit % self.of))


# For a process that is the only one.
ALL = Share()


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How a pool treats its backends. Times are in seconds; `answer_timeout` limits the wait for the head of an answer.

    `queue_size` requests for the same backends wait at most `queue_timeout`. `retries`: how often a request may go to
    another backend. `breaker_failures` in a row open a breaker for `breaker_time`. `identify`: ask even a single backend what
    it serves. `share`: this pool's share of the limits for a backend; `queue_size` is for this pool alone.
    `load_interval`: how often vLLM servers are asked how busy they are; 0: never."""

    connect_timeout: float = 10
    answer_timeout: float | None = None
    queue_size: int = 100
    queue_timeout: float = 30
    retries: int = 2
    health_interval: float = 10
    breaker_failures: int = 5
    breaker_time: float = 10
    identify: bool = False
    share: Share = ALL
    load_interval: float = 0


class PoolObserver(Protocol):
    """Receives the events of a pool, for metrics and logs. All calls come from the event loop, and have to return at once."""

    def request_started(self, backend: str) -> None:
        """Note that a request was sent to a backend."""

    def request_ended(self, backend: str) -> None:
        """Note that a request to a backend has ended, in whatever way."""

    def request_retried(self, backend: str, reason: Reason | Repeated) -> None:
        """Note that a request left a backend to be sent to another one, or is sent to the same one again."""

    def queue_length_changed(self, length: int) -> None:
        """Note how many requests wait for a free backend."""

    def queue_wait_ended(self, seconds: float) -> None:
        """Note how long a request waited before it got a backend."""

    def queue_rejected(self, reason: str) -> None:
        """Note that a request got no backend: the queue was `full`, or it waited too long (`late`)."""

    def backend_state(self, backend: str, healthy: bool, breaker: State) -> None:
        """Note the present state of a backend."""

    def backend_removed(self, backend: str) -> None:
        """Note that a backend was removed and is idle."""

    def defect(self, error: Exception) -> None:
        """Note an exception that nobody expects."""

    def log(self, message: str, backend: str, **fields: Any) -> None:
        """Log an event that operators want to know."""

    def warn(self, message: str, backend: str, **fields: Any) -> None:
        """Log an event about which operators may have to do something."""
