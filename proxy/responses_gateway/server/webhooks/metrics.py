"""The metrics of webhooks. They exist where the settings name an endpoint."""

from __future__ import annotations

from responses_gateway.telemetry.registry import Registry


class WebhookMetrics:
    """Declares the metrics, and counts into them. The names of endpoints are those of the settings."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._deliveries = registry.counter(
            "webhook_deliveries_total",
            "Attempts to tell a webhook endpoint of an event: delivered, failed (to be tried again), or given_up.",
            "endpoint",
            "outcome",
        )
        self._waiting = registry.gauge(
            "webhook_deliveries_waiting",
            "Events that wait for a webhook endpoint to take them, in the store that all gateways share.",
            "endpoint",
            together="livemax",
        )

    def count(self, endpoint: str, outcome: str) -> None:
        """Count an attempt."""
        self._registry.count(self._deliveries, endpoint, outcome)

    def set_waiting(self, endpoint: str, amount: int) -> None:
        """Note how many events wait for an endpoint."""
        self._registry.child(self._waiting, endpoint).set(amount)
