"""The Prometheus metrics of the gateway. Every label has a bounded set of values; times are in seconds, sizes in bytes."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from responses_gateway.telemetry.registry import Registry, runtime_folder

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_DURATION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_RELEASE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
# Streams count into these buckets themselves.
INTER_TOKEN_BUCKETS = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 10)
CONTENT_TYPE = CONTENT_TYPE_LATEST
# Seconds between two samples: open files are counted by listing them.
_SAMPLE_INTERVAL = 1.0
# Gauge -> its help text, and how those of several workers become one.
_GAUGES = {
    "process_resident_memory_bytes": ("Resident memory of all workers; shared memory counts for each of them.", "livesum"),
    "process_virtual_memory_bytes": ("Virtual memory of all workers.", "livesum"),
    "process_open_fds": ("Open files of the worker that has most.", "livemax"),
    "process_max_fds": ("Files that a worker may have open.", "livemin"),
    "process_start_time_seconds": ("When the youngest worker started, in seconds since 1970.", "livemax"),
}


def key_label(name: str) -> str:
    """Return the label for a client: the name of its key; for others, of whom there may be any number, who knows them
    (`jwt`)."""
    return name.partition(":")[0]


class ProcessMetrics:
    """The usual `process_*` metrics of one of several workers. A single process uses the library's own collector.

    The library leaves them out when processes share their metrics in files, and no platform knows the workers of one gateway.
    The processor time of workers that died still counts, as in any counter.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._collector = ProcessCollector(registry=None)
        self._cpu = Counter("process_cpu_seconds", "Processor time of all workers.", registry=registry)
        self._gauges = {
            name: Gauge(name, text, registry=registry, multiprocess_mode=together)  # type: ignore[arg-type]
            for name, (text, together) in _GAUGES.items()
        }
        self._cpu_seconds = 0.0
        self._sampled_at = float("-inf")
        self.sample()  # none of them is ever 0

    def sample(self) -> None:
        """Take the present values, at most once a second."""
        now = time.monotonic()
        if now - self._sampled_at < _SAMPLE_INTERVAL:
            return
        self._sampled_at = now
        for family in self._collector.collect():
            for sample in family.samples:
                if sample.name == "process_cpu_seconds_total":
                    self._cpu.inc(max(0.0, sample.value - self._cpu_seconds))
                    self._cpu_seconds = sample.value
                elif sample.name in self._gauges:
                    self._gauges[sample.name].set(sample.value)


class Metrics(Registry):
    """All metrics of one process."""

    def __init__(self) -> None:
        super().__init__()
        # Amounts by day, key, team and model, until they are stored; see `server/generation/request_log/usage.py`.
        self.usage: dict[tuple[int, str, str, str], list[int]] = {}
        counter = self.counter
        gauge = self.gauge
        histogram = self.histogram
        self.requests = counter("requests_total", "Requests for a response, by outcome.", "model", "outcome", "stream", "door")
        self._declare_those_of_http()
        self.in_flight = gauge("requests_in_flight", "Requests under way.")
        self.workers = gauge("workers", "Worker processes that serve requests.")
        text = "1, labelled with the version and the commit of the gateway."
        self.build_info = gauge("build_info", text, "version", "commit", together="livemax")
        self.first_token = histogram(
            "time_to_first_token_seconds", "From the request's arrival to the model's first token.", LATENCY_BUCKETS, "model"
        )
        self.first_visible = histogram(
            "time_to_first_visible_token_seconds",
            "From the request's arrival to the first text, refusal or tool call: after the reasoning.",
            LATENCY_BUCKETS,
            "model",
        )
        self.inter_token = histogram(
            "inter_token_latency_seconds",
            "Between two consecutive reads of a stream that brought tokens.",
            INTER_TOKEN_BUCKETS,
            "model",
        )
        self.duration = histogram(
            "request_duration_seconds", "From the request's arrival to the last byte.", _DURATION_BUCKETS, "model"
        )
        self.tokens = counter(
            "tokens_total",
            "Tokens: input (cached is a part of it); output (reasoning, text, refusal, tool_arguments, other are its parts).",
            "model",
            "kind",
        )
        self.unseen_tokens = counter(
            "unseen_tokens_total",
            "Output tokens that a backend used and of which nothing came: its parsers may not fit the model.",
            "model",
        )
        self.disagreements = counter(
            "token_disagreements_total",
            "Responses for which the backend reports another number of output tokens than the gateway counts.",
            "model",
        )
        self.warned: set[tuple[str, str]] = set()  # of what, for which model
        self.items = counter("output_items_total", "Finished output items, by type.", "type")
        self.events = counter("events_total", "Delta events sent, by type.", "type")
        self.terminals = counter("terminal_events_total", "Finished responses, by status and reason.", "status", "reason")
        self.backend_errors = counter(
            "backend_errors_total", "Requests that a backend refused, or whose answer broke off.", "kind"
        )
        self._add_backends()
        self.malformed = counter("malformed_chunks_total", "Events from a backend that are not valid chat completion chunks.")
        self.repairs = counter("repairs_total", "Repairs of what backends sent, by kind.", "kind")
        self.keep_alives = counter("keep_alives_total", "Keep-alives sent, by kind.", "kind")
        self.violations = counter(
            "invariant_violations_total", "Violations of the rules of its protocol, found in sampled responses.", "rule"
        )
        self.sampled = counter("sampled_streams_total", "Streams checked against the rules of their protocol.")
        self.losses = counter(
            "losses_total", "Parts of requests that could not be translated unchanged.", "kind", "name", "outcome"
        )
        self.custom_tool_inputs = counter(
            "custom_tool_inputs_total",
            "Inputs of custom tools that have a grammar: valid, invalid, repaired, unrepaired, or skipped (not checked).",
            "outcome",
        )
        self.hosted_calls = counter(
            "hosted_calls_total", "Calls of tools that the gateway runs itself, by kind and outcome.", "tool", "outcome"
        )
        self.hosted_duration = histogram(
            "hosted_call_duration_seconds", "How long calls of hosted tools took.", _DURATION_BUCKETS, "tool"
        )
        self.disconnects = counter("client_disconnects_total", "Clients that disconnected before the end, by phase.", "phase")
        self.release = histogram(
            "client_disconnect_release_seconds",
            "From the end of a client's connection until its request to the backend is closed.",
            _RELEASE_BUCKETS,
        )
        self._declare_those_of_the_store()
        self.access_refusals = counter(
            "access_refusals_total",
            "Requests refused because of a missing or wrong key, a limit, a used quota, the name of a host, or a foreign page.",
            "reason",
        )
        self.body_bytes = gauge("request_body_bytes", "Size of the bodies of all requests under way.")
        self.limits_gateways = gauge(
            "limits_gateways",
            "Gateways that count limits together in Redis; 0 without it, or while it cannot be reached.",
            together="livemin",
        )
        self._declare_those_of_the_keys()
        # Processor time, memory and open files, under the names that all programs use.
        if runtime_folder() is None:
            ProcessCollector(registry=self.registry)
        else:
            self.samplers.append(ProcessMetrics(self.registry).sample)

    def _add_backends(self) -> None:
        counter = self.counter
        gauge = self.gauge
        histogram = self.histogram
        self.backend_requests = counter("backend_requests_total", "Requests sent to a backend, including retries.", "backend")
        self.backend_in_flight = gauge("backend_requests_in_flight", "Requests under way at a backend.", "backend")
        self.backend_up = gauge("backend_up", "1 if a backend is healthy, as far as is known.", "backend", together="livemin")
        self.backend_breaker = gauge(
            "backend_breaker_state", "1 for the present state of a circuit breaker.", "backend", "state", together="livemax"
        )
        self.pool_members = gauge(
            "pool_members", "Members of a pool, by the kind of its source and their state.", "pool", "source", "state",
            together="livemax",
        )  # fmt: skip
        self.pool_stale = gauge(
            "pool_source_stale_seconds",
            "For how long the source of a pool could not be read; 0 while it can be.",
            "pool",
            "source",
            together="livemax",
        )
        self.backend_retries = counter(
            "backend_retries_total",
            "Requests that left a backend to be retried at another one, or on a new connection, by reason.",
            "backend",
            "reason",
        )
        self.continuations = counter(
            "continuations_total",
            "Answers that broke off at a backend: `continued` by another one, by what had happened; or not, by the reason.",
            "outcome",
            "reason",
        )
        self.queued = gauge("queued_requests", "Requests that wait for a free backend.")
        self.queue_wait = histogram(
            "queue_wait_seconds", "How long requests waited that got a backend in the end.", _DURATION_BUCKETS
        )
        self.queue_rejections = counter(
            "queue_rejections_total", "Requests that got no backend: the queue was full, or they waited too long.", "reason"
        )

    def _declare_those_of_the_store(self) -> None:
        self.store_up = self.gauge(
            "store_up", "1 while what the gateway stores in can be reached: the store, Redis.", "kind", together="livemin"
        )
        self.store_bytes = self.gauge("store_bytes", "Size of the stored data, without free space.", together="livemax")
        self.store_oldest = self.gauge("store_oldest_seconds", "Age of the oldest stored response.", together="livemax")
        self.store_expired = self.gauge(
            "store_expired_seconds", "How long ago a response expired that is still stored.", together="livemax"
        )
        self.store_deleted = self.counter(
            "store_deleted_total",
            "Responses and conversations that were deleted: expired, or no_room (`store_max_bytes`).",
            "reason",
        )

    def _declare_those_of_the_keys(self) -> None:
        self.key_requests = self.counter("key_requests_total", "Accepted requests, by API key.", "key")
        self.key_duration = self.histogram(
            "key_request_duration_seconds", "From a request's arrival to the last byte, by API key.", _DURATION_BUCKETS, "key"
        )
        self.key_first_token = self.histogram(
            "key_time_to_first_token_seconds", "To the model's first token, by API key.", LATENCY_BUCKETS, "key"
        )
        self.key_tokens = self.counter("key_tokens_total", "Input and output tokens, by API key.", "key")

        self.quota_used = self.gauge(
            "quota_used_ratio",
            "Used part of a quota (of the soft limit, if that is all there is), as of the last request, by its owner.",
            "owner",
            "period",
            together="livemax",
        )
        self.quota_warnings = self.counter(
            "quota_warnings_total", "Requests beyond a soft limit of a quota, by its owner.", "owner", "period"
        )

    def _declare_those_of_http(self) -> None:
        self.http_requests = self.counter(
            "http_requests_total",
            "HTTP requests of all kinds, by pattern of the path (`/v1/{path}`: relayed to a backend).",
            "method",
            "route",
            "status",
        )
        self.http_duration = self.histogram(
            "http_request_duration_seconds",
            "From the head of an HTTP request to the end of its answer, for all kinds of requests.",
            LATENCY_BUCKETS,
            "route",
        )
