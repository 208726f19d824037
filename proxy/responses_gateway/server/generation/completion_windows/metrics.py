"""The metrics of completion windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from responses_gateway.telemetry.registry import Registry

Reason = Literal["idle", "deadline"]


class WindowMetrics:
    """Declares the metrics, and counts into them. Windows are those of the API."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._waiting = registry.gauge(
            "waiting_responses",
            "Background responses that wait for their completion window, in the store that all gateways share.",
            "window",
            together="livemax",
        )
        self._oldest = registry.gauge(
            "waiting_oldest_seconds", "For how long the oldest of them has waited.", "window", together="livemax"
        )
        self._begun = registry.counter(
            "waiting_begun_total",
            "Those that began: because backends were idle, or because of their deadline.",
            "window",
            "reason",
        )
        self._missed = registry.counter("missed_windows_total", "Those that ended after their deadline.", "window")

    def show(self, waiting: Mapping[str, tuple[int, float]]) -> None:
        """Show how many wait in each window, and for how many seconds the oldest has."""
        for window, (count, seconds) in waiting.items():
            self._registry.child(self._waiting, window).set(count)
            self._registry.child(self._oldest, window).set(seconds)

    def begun(self, window: str, reason: Reason) -> None:
        """Count a response that begins."""
        self._registry.count(self._begun, window, reason)

    def missed(self, window: str) -> None:
        """Count a response that ended too late."""
        self._registry.count(self._missed, window)
