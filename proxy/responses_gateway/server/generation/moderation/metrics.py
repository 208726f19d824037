"""The metrics of judgements. They exist where there is a guard model."""

from __future__ import annotations

from responses_gateway.telemetry.registry import Registry

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class ModerationMetrics:
    """Declares the metrics, and counts into them."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._judgements = registry.counter(
            "moderation_judgements_total",
            "Answers of the guard model, by what it judged (input, output): safe, flagged, or failed.",
            "side",
            "outcome",
        )
        self._seconds = registry.histogram(
            "moderation_seconds", "How long the guard model took for an answer.", _SECONDS, "side"
        )

    def judged(self, side: str, outcome: str, seconds: float) -> None:
        """Count an answer."""
        self._registry.count(self._judgements, side, outcome)
        self._registry.observe(self._seconds, seconds, side)
