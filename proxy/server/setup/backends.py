"""The backends of the settings, as the pool takes them, and the events of the pool, as metrics and log lines."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlsplit

from proxy.backend.members import PoolObserver, PoolOptions, Share
from proxy.backend.policies.breaker import State
from proxy.backend.policies.retry import Reason, Repeated
from proxy.backend.served_models import BackendSpec
from proxy.settings import BackendDetails, Settings
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics

_STATES: tuple[State, ...] = ("closed", "half_open", "open")
_WARNINGS = frozenset({"backend unhealthy", "breaker open", "backend refuses the gateway's key"})


def specs_of(settings: Settings) -> list[BackendSpec]:
    """Return all backends of the settings: first those with a URL alone, named by host and port, then those with details."""
    plain: dict[str, BackendDetails] = {}
    for url in settings.backend:
        name = name_of(url)
        number = 2
        while name in plain:  # the same host and port with http and https, for example
            name = f"{name_of(url)}-{number}"
            number += 1
        plain[name] = BackendDetails(url=url)
    return [spec_of(name, details, settings) for name, details in {**plain, **settings.backends}.items()]


def spec_of(name: str, details: BackendDetails, settings: Settings) -> BackendSpec:
    """Return a backend with its details; for what they leave out, the settings for all backends apply."""
    key = details.api_key or settings.backend_api_key
    return BackendSpec(
        name=name,
        url=details.url,
        api_key=key.get_secret_value() if key is not None else None,
        models=tuple(details.models),
        aliases=details.aliases,
        max_concurrency=details.max_concurrency or settings.max_concurrency,
        weight=details.weight,
        # A key for the gateway is not for the backend.
        forward_authorization=details.forward_authorization and settings.forward_authorization and not settings.api_keys,
    )


def name_of(url: str) -> str:
    """Name a backend by host and port, and by its path if that is not the usual one."""
    parts = urlsplit(url)
    path = parts.path.strip("/").removesuffix("v1").strip("/")
    return parts.netloc + (":" + path.replace("/", "-") if path else "")


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
    )


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
        level = logging.WARNING if message in _WARNINGS else logging.INFO
        logs.logger().log(level, message, extra=logs.fields(backend=backend, **fields))
