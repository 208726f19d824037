"""What a pool reports about its requests and backends, for metrics and logs that it does not know."""

from __future__ import annotations

from typing import Any, Protocol

from proxy.backend.policies.breaker import State
from proxy.backend.policies.retry import Reason


class PoolObserver(Protocol):
    """Receives the events of a pool. All calls come from the event loop, and have to return at once."""

    def request_started(self, backend: str) -> None:
        """Note that a request was sent to a backend."""

    def request_ended(self, backend: str) -> None:
        """Note that a request to a backend has ended, in whatever way."""

    def request_retried(self, backend: str, reason: Reason) -> None:
        """Note that a request left a backend to be sent to another one."""

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

    def log(self, message: str, backend: str, **fields: Any) -> None:
        """Log an event that operators want to know."""
