"""The options of the pool, and its events, as metrics and log lines."""

from __future__ import annotations

from typing import Any

from responses_gateway.backend.members import Members, PoolObserver, PoolOptions, Share
from responses_gateway.backend.policies.breaker import State
from responses_gateway.backend.policies.retry import Reason, Repeated
from responses_gateway.settings import Settings
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.metrics import Metrics

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
            metrics.child(metrics.pool_members, pool.name, pool.source, state).set(number)
        metrics.child(metrics.pool_stale, pool.name, pool.source).set(pool.stale_for(now))


class PoolMetrics(PoolObserver):
    """Counts and logs the events of a pool."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def request_started(self, backend: str) -> None:
        self._metrics.count(self._metrics.backend_requests, backend)
        self._metrics.count(self._metrics.backend_in_flight, backend)

    def request_ended(self, backend: str) -> None:
        self._metrics.count(self._metrics.backend_in_flight, backend, amount=-1)

    def request_retried(self, backend: str, reason: Reason | Repeated) -> None:
        self._metrics.count(self._metrics.backend_retries, backend, reason)
        logs.logger().debug("retry", extra=logs.fields(backend=backend, reason=reason))

    def queue_length_changed(self, length: int) -> None:
        self._metrics.queued.set(length)

    def queue_wait_ended(self, seconds: float) -> None:
        self._metrics.observe(self._metrics.queue_wait, seconds)

    def queue_rejected(self, reason: str) -> None:
        self._metrics.count(self._metrics.queue_rejections, reason)

    def backend_state(self, backend: str, healthy: bool, breaker: State) -> None:
        self._metrics.child(self._metrics.backend_up, backend).set(healthy)
        for state in _STATES:
            self._metrics.child(self._metrics.backend_breaker, backend, state).set(state == breaker)

    def backend_removed(self, backend: str) -> None:
        metrics = self._metrics
        # Left behind, its series would look like an outage.
        metrics.remove(metrics.backend_up, backend)
        metrics.remove(metrics.backend_in_flight, backend)
        for state in _STATES:
            metrics.remove(metrics.backend_breaker, backend, state)

    def log(self, message: str, backend: str, **fields: Any) -> None:
        logs.logger().info(message, extra=logs.fields(backend=backend, **fields))

    def warn(self, message: str, backend: str, **fields: Any) -> None:
        logs.logger().warning(message, extra=logs.fields(backend=backend, **fields))
