"""The options of the pool, and its events, as metrics and log lines."""

from __future__ import annotations

from typing import Any

from responses_gateway.backend.members import Members
from responses_gateway.backend.policies.breaker import State
from responses_gateway.backend.policies.retry import Reason, Repeated
from responses_gateway.backend.pool_options import PoolObserver, PoolOptions, Share
from responses_gateway.settings import Settings
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import DURATION_BUCKETS, Counter, Gauge, Histogram
from responses_gateway.telemetry.metrics import Metrics

BACKEND_REQUESTS = Counter("backend_requests_total", "Requests sent to a backend, including retries.", ("backend",))
BACKEND_IN_FLIGHT = Gauge("backend_requests_in_flight", "Requests under way at a backend.", ("backend",))
BACKEND_UP = Gauge("backend_up", "1 if a backend is healthy, as far as the gateway knows.", ("backend",), together="livemin")
BACKEND_BREAKER = Gauge(
    "backend_breaker_state", "1 for the present state of a circuit breaker.", ("backend", "state"), together="livemax"
)
BACKEND_RETRIES = Counter(
    "backend_retries_total",
    "Requests that failed at a backend and were retried at another one, or on a new connection, by reason.",
    ("backend", "reason"),
)
POOL_MEMBERS = Gauge(
    "pool_members",
    "Members of a pool, by the kind of its source and their state.",
    ("pool", "source", "state"),
    together="livemax",
)
POOL_STALE = Gauge(
    "pool_source_stale_seconds",
    "How long the source of a pool has been unreadable; 0 while it can be read.",
    ("pool", "source"),
    together="livemax",
)
QUEUED = Gauge("queued_requests", "Requests that wait for a free backend.")
QUEUE_WAIT = Histogram("queue_wait_seconds", "How long requests waited until they got a backend.", DURATION_BUCKETS)
QUEUE_REJECTIONS = Counter(
    "queue_rejections_total", "Requests that got no backend: the queue was full, or they waited too long.", ("reason",)
)
POOL_METRICS = (
    BACKEND_REQUESTS, BACKEND_IN_FLIGHT, BACKEND_UP, BACKEND_BREAKER, BACKEND_RETRIES, POOL_MEMBERS, POOL_STALE, QUEUED,
    QUEUE_WAIT, QUEUE_REJECTIONS,
)  # fmt: skip
_STATES: tuple[State, ...] = ("closed", "half_open", "open")


def pool_options(settings: Settings, *, identify: bool, share: Share) -> PoolOptions:
    """Return the options of the pool. `identify`: ask even a single backend what it serves; `share`: of this worker."""
    return PoolOptions(
        connect_timeout=settings.connect_timeout,
        answer_timeout=settings.idle_timeout,
        queue_size=share.part(settings.queue_size) if settings.queue_size else 0,
        queue_timeout=settings.queue_timeout,
        retries=settings.retries,
        health_interval=settings.health_interval,
        breaker_failures=settings.breaker_failures,
        breaker_time=settings.breaker_time,
        identify=identify,
        share=share,
        load_interval=settings.load_interval,
    )


def sample_pools(members: Members, metrics: Metrics) -> None:
    """Show how many members each pool has, and whether its source can be read."""
    now = members.clock()
    for pool, states in members.counted(now).items():
        for state, number in states.items():
            metrics.set(POOL_MEMBERS, number, pool.name, pool.source, state)
        metrics.set(POOL_STALE, pool.stale_for(now), pool.name, pool.source)


class PoolMetrics(PoolObserver):
    """Counts and logs the events of a pool."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def request_started(self, backend: str) -> None:
        counted = self._metrics.counted  # three calls less for each request
        counted[BACKEND_REQUESTS, (backend,)] += 1
        counted[BACKEND_IN_FLIGHT, (backend,)] += 1

    def request_ended(self, backend: str) -> None:
        self._metrics.counted[BACKEND_IN_FLIGHT, (backend,)] -= 1

    def request_retried(self, backend: str, reason: Reason | Repeated) -> None:
        self._metrics.count(BACKEND_RETRIES, backend, reason)
        logs.logger().debug("retry", extra=logs.fields(backend=backend, reason=reason))

    def queue_length_changed(self, length: int) -> None:
        self._metrics.set(QUEUED, length)

    def queue_wait_ended(self, seconds: float) -> None:
        self._metrics.observe(QUEUE_WAIT, seconds)

    def queue_rejected(self, reason: str) -> None:
        self._metrics.count(QUEUE_REJECTIONS, reason)

    def backend_state(self, backend: str, healthy: bool, breaker: State) -> None:
        self._metrics.set(BACKEND_UP, healthy, backend)
        for state in _STATES:
            self._metrics.set(BACKEND_BREAKER, state == breaker, backend, state)

    def backend_removed(self, backend: str) -> None:
        metrics = self._metrics
        # Left behind, its series would look like an outage.
        metrics.remove(BACKEND_UP, backend)
        metrics.remove(BACKEND_IN_FLIGHT, backend)
        for state in _STATES:
            metrics.remove(BACKEND_BREAKER, backend, state)

    def defect(self, error: Exception) -> None:
        self._metrics.report(error)

    def log(self, message: str, backend: str, **fields: Any) -> None:
        logs.logger().info(message, extra=logs.fields(backend=backend, **fields))

    def warn(self, message: str, backend: str, **fields: Any) -> None:
        logs.logger().warning(message, extra=logs.fields(backend=backend, **fields))
