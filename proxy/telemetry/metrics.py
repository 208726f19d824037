"""Prometheus metrics. Every label has a bounded set of values; times are seconds, sizes bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import nan
from typing import Any, Literal, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from proxy.telemetry import logs, multiprocess
from proxy.telemetry.process import ProcessMetrics

_PREFIX = "responses_proxy_"
_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_DURATION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
#: Upper bounds of the inter-token latency histogram; streams count into these by themselves.
INTER_TOKEN_BUCKETS = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 10)
_MODELS = 100
_LONGEST_MODEL = 200  # it stands in some eighty lines
CONTENT_TYPE = CONTENT_TYPE_LATEST
#: Bookkeeping of so many responses at most is put off: it holds them in memory, and tokens wait while it is done.
_MOST_PUT_OFF = 8

_M = TypeVar("_M", Counter, Gauge, Histogram)
_C = TypeVar("_C", Counter, Gauge)


class Metrics:
    """All metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._models: set[str] = set()
        self._children: dict[tuple[Any, tuple[str, ...]], Any] = {}
        self._counted: dict[Counter | Gauge, float] = {}  # not added yet, by child
        self._observed: list[tuple[Histogram, float]] = []
        self._put_off: list[Callable[[], None]] = []

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(_PREFIX + name, text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str, together: Literal["livesum", "livemin", "livemax"] = "livesum") -> Gauge:
            """`together`: what several processes have together, of those that live."""
            return Gauge(_PREFIX + name, text, labels, registry=registry, multiprocess_mode=together)

        def histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(_PREFIX + name, text, labels, buckets=buckets, registry=registry)

        self.requests = counter("requests_total", "Requests for a response, by how they ended.", "model", "outcome", "stream")
        self.in_flight = gauge("requests_in_flight", "Requests being answered now.")
        self.workers = gauge("workers", "Processes that serve.")
        text = "1, with the version and the commit of what runs."
        self.build_info = gauge("build_info", text, "version", "commit", together="livemax")
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
        self.backend_requests = counter("backend_requests_total", "Requests sent to a backend, retries among them.", "backend")
        self.backend_in_flight = gauge("backend_requests_in_flight", "Requests that a backend works on now.", "backend")
        self.backend_up = gauge("backend_up", "1 if a backend is well, as far as is known.", "backend", together="livemin")
        self.backend_breaker = gauge(
            "backend_breaker_state", "1 for the state that a breaker is in.", "backend", "state", together="livemax"
        )
        self.backend_retries = counter(
            "backend_retries_total", "Requests that left a backend to be tried at another one, by reason.", "backend", "reason"
        )
        self.queued = gauge("queued_requests", "Requests that wait for a backend with room.")
        self.queue_wait = histogram("queue_wait_seconds", "How long requests waited that got a backend.", _DURATION_BUCKETS)
        self.turned_away = counter(
            "queue_rejections_total", "Requests that got no backend: too many waited, or too long.", "reason"
        )
        self.malformed = counter("malformed_chunks_total", "Payloads of a backend that were no chat chunk.")
        self.repairs = counter("repairs_total", "What had to be mended in backends' streams, by kind.", "kind")
        self.keep_alives = counter("keep_alives_total", "Keep-alives sent, by kind.", "kind")
        self.violations = counter("invariant_violations_total", "Broken laws of a stream, found in sampled responses.", "rule")
        self.sampled = counter("sampled_streams_total", "Streams checked against the laws of a stream.")
        self.losses = counter("losses_total", "What of a request could not be carried as it was.", "kind", "name", "outcome")
        self.custom_tool_inputs = counter(
            "custom_tool_inputs_total",
            "Inputs of custom tools that have a grammar: valid, invalid, repaired, unrepaired, or skipped (not judged).",
            "outcome",
        )
        self.disconnects = counter("client_disconnects_total", "Clients that left early, by phase.", "phase")
        self.access_refusals = counter(
            "access_refusals_total", "Requests refused for want of a key, or because a limit was reached.", "reason"
        )
        self.key_requests = counter("key_requests_total", "Requests of each API key that were let in.", "key")
        self.key_tokens = counter("key_tokens_total", "Tokens, input and output, of the responses of each API key.", "key")
        self.defects = counter("defects_total", "Failures of the gateway itself.")
        # Processor, memory, open files, under the names that all programs use.
        self._process = ProcessMetrics(registry) if multiprocess.shared() is not None else None
        if self._process is None:
            ProcessCollector(registry=registry)

    def of(self, metric: _M, *labels: str) -> _M:
        """`metric.labels(*labels)`, remembered: the library checks and locks at each call."""
        key = (metric, labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child

    def count(self, metric: _C, *labels: str, amount: float = 1) -> None:
        """Add to a counter, at the next `settle`: the library locks for each addition, and a request has a dozen of them."""
        child = self.of(metric, *labels) if labels else metric
        self._counted[child] = self._counted.get(child, 0) + amount

    def observe(self, metric: Histogram, value: float, *labels: str) -> None:
        """Add an observation, at the next `settle`."""
        self._observed.append((self.of(metric, *labels) if labels else metric, value))

    def put_off(self, task: Callable[[], None]) -> None:
        """Bookkeeping that can wait until the next `settle`: done for many at once it costs a part."""
        self._put_off.append(task)
        if len(self._put_off) >= _MOST_PUT_OFF:
            self.settle()

    def settle(self) -> None:
        """Do what was put off, and add what was counted since. Called by the event loop, about once a second and before a
        scrape."""
        tasks, self._put_off = self._put_off, []
        for task in tasks:
            try:
                task()
            except Exception:  # the books of one response must not close those of all others
                self.defects.inc()
                logs.logger().exception("defect")
        counted, self._counted = self._counted, {}
        for child, amount in counted.items():
            child.inc(amount)
        observed, self._observed = self._observed, []
        for histogram, value in observed:
            histogram.observe(value)
        if self._process is not None:
            self._process.look()

    def forget(self, metric: Counter | Gauge | Histogram, *labels: str) -> None:
        """Show a child no more."""
        child = self._children.pop((metric, labels), None)
        if child is None:
            return
        if self._process is None:
            metric.remove(*labels)
        elif isinstance(metric, Gauge) and metric._multiprocess_mode != "livesum":  # a sum is 0 by now
            child.set(nan)  # nothing can be taken out of the files of several: what is NaN there is not shown

    def model(self, name: str) -> str:
        """The label for a model name: the first hundred that backends answered for, then `other`, as are very long ones."""
        if name in self._models:
            return name
        if len(self._models) >= _MODELS or len(name) > _LONGEST_MODEL:
            return "other"
        self._models.add(name)
        return name

    def count_all(self, metric: Counter, counts: Mapping[str, int]) -> None:
        """Count by the metric's only label."""
        for label, count in counts.items():
            self.count(metric, label, amount=count)

    def observe_gaps(self, model: str, counts: Sequence[int], total: float) -> None:
        """Add a whole stream's inter-token gaps: how many fell into each bucket (the last is +Inf), and their sum."""
        child = self.of(self.inter_token, model)
        for bucket, count in zip(child._buckets, counts, strict=True):
            if count:
                bucket.inc(count)
        if total:
            child._sum.inc(total)

    def exposition(self) -> bytes:
        """The text that Prometheus scrapes."""
        self.settle()
        return self.text()

    def text(self) -> bytes:
        """What was settled: by this process, or by all workers. For any thread."""
        folder = multiprocess.shared()
        return generate_latest(self.registry) if folder is None else multiprocess.sum_of(folder)
