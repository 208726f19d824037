"""Prometheus metrics. Every label has a bounded set of values; times are seconds, sizes bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

_PREFIX = "responses_proxy_"
_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_DURATION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
#: Upper bounds of the inter-token latency histogram; streams count into these by themselves.
INTER_TOKEN_BUCKETS = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 10)
_MODELS = 100
CONTENT_TYPE = CONTENT_TYPE_LATEST

_M = TypeVar("_M", Counter, Gauge, Histogram)


class Metrics:
    """All metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._models: set[str] = set()
        self._children: dict[tuple[Any, tuple[str, ...]], Any] = {}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(_PREFIX + name, text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(_PREFIX + name, text, labels, buckets=buckets, registry=registry)

        self.requests = counter("requests_total", "Requests for a response, by how they ended.", "model", "outcome", "stream")
        self.in_flight = Gauge(_PREFIX + "requests_in_flight", "Requests being answered now.", registry=registry)
        self.first_token = histogram(
            "time_to_first_token_seconds", "From the request's arrival to the model's first token.", _LATENCY_BUCKETS, "model"
        )
        self.first_visible = histogram(
            "time_to_first_visible_token_seconds",
            "From the request's arrival to the first text, refusal or call, which is after the reasoning.",
            _LATENCY_BUCKETS,
            "model",
        )
        self.inter_token = histogram(
            "inter_token_latency_seconds", "Between two reads of one stream that brought tokens.", INTER_TOKEN_BUCKETS, "model"
        )
        self.duration = histogram(
            "request_duration_seconds", "From the request's arrival to the last byte.", _DURATION_BUCKETS, "model"
        )
        self.tokens = counter(
            "tokens_total",
            "Tokens: input, of it cached; output, of it reasoning, text, refusal, tool_arguments and other (markup).",
            "model",
            "kind",
        )
        self.disagreements = counter(
            "token_disagreements_total", "Responses whose output tokens the backend counts in another way than we do.", "model"
        )
        self.items = counter("output_items_total", "Output items closed, by type.", "type")
        self.events = counter("events_total", "Delta events sent, by type.", "type")
        self.terminals = counter("terminal_events_total", "Responses ended, by status and reason.", "status", "reason")
        self.backend_errors = counter("backend_errors_total", "Requests that the backend refused or broke.", "kind")
        self.malformed = counter("malformed_chunks_total", "Payloads of a backend that were no chat chunk.")
        self.repairs = counter("repairs_total", "What had to be mended in backends' streams, by kind.", "kind")
        self.keep_alives = counter("keep_alives_total", "Keep-alives sent, by kind.", "kind")
        self.violations = counter("invariant_violations_total", "Broken laws of a stream, found in sampled responses.", "rule")
        self.sampled = counter("sampled_streams_total", "Streams checked against the laws of a stream.")
        self.losses = counter("losses_total", "What of a request could not be carried as it was.", "kind", "name", "outcome")
        self.disconnects = counter("client_disconnects_total", "Clients that left early, by phase.", "phase")
        self.defects = counter("defects_total", "Failures of the gateway itself.")

    def of(self, metric: _M, *labels: str) -> _M:
        """`metric.labels(*labels)`, remembered: the library checks and locks at each call."""
        key = (metric, labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child

    def model(self, name: str) -> str:
        """The label for a model name: the first hundred that backends answered for, then `other`."""
        if name in self._models:
            return name
        if len(self._models) >= _MODELS:
            return "other"
        self._models.add(name)
        return name

    def add_all(self, metric: Counter, counts: Mapping[str, int]) -> None:
        """Add counts by the metric's only label."""
        for label, count in counts.items():
            self.of(metric, label).inc(count)

    def observe_gaps(self, model: str, counts: Sequence[int], total: float) -> None:
        """Add a whole stream's inter-token gaps: how many fell into each bucket (the last is +Inf), and their sum."""
        child = self.of(self.inter_token, model)
        for bucket, count in zip(child._buckets, counts, strict=True):
            if count:
                bucket.inc(count)
        child._sum.inc(total)

    def exposition(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)
