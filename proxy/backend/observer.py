"""What a pool tells about itself, for metrics and logs that it does not know."""

from __future__ import annotations

from typing import Any, Protocol

from proxy.backend.policies.breaker import State
from proxy.backend.policies.retry import Reason


class Journal(Protocol):
    """Takes notes. All calls come from the event loop, and return at once."""

    def began(self, backend: str) -> None:
        """A request was sent to a backend."""

    def ended(self, backend: str) -> None:
        """It is over, in whatever way."""

    def retried(self, backend: str, reason: Reason) -> None:
        """A request left a backend, for this reason, to be sent to another one."""

    def queued(self, length: int) -> None:
        """So many requests wait for a backend with room."""

    def waited(self, seconds: float) -> None:
        """A request waited, and got its backend."""

    def turned_away(self, reason: str) -> None:
        """A request got none: the line was `full`, or it waited too long (`late`)."""

    def state(self, backend: str, healthy: bool, breaker: State) -> None:
        """How a backend stands now."""

    def removed(self, backend: str) -> None:
        """A backend is gone."""

    def note(self, message: str, backend: str, **fields: Any) -> None:
        """Something that an operator wants to read in the log."""
