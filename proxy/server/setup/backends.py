"""The backends of the settings as the pool takes them, and the pool's notes as metrics and log lines."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from proxy.backend.member import Share
from proxy.backend.members import PoolOptions
from proxy.backend.policies.breaker import State
from proxy.backend.policies.retry import Reason
from proxy.backend.served_models import BackendSpec
from proxy.settings import BackendDetails, Settings
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics

_STATES: tuple[State, ...] = ("closed", "half_open", "open")


def specs_of(settings: Settings) -> list[BackendSpec]:
    """All backends of the settings: those with a URL alone, named by host and port, then those with details."""
    plain: dict[str, BackendDetails] = {}
    for url in settings.backend:
        name, number = name_of(url), 2
        while name in plain:  # http and https, say
            name, number = f"{name_of(url)}-{number}", number + 1
        plain[name] = BackendDetails(url=url)
    return [spec_of(name, details, settings) for name, details in {**plain, **settings.backends}.items()]


def spec_of(name: str, details: BackendDetails, settings: Settings) -> BackendSpec:
    """A backend with its details; what it does not say is as the settings have it for all."""
    key = details.api_key or settings.backend_api_key
    return BackendSpec(
        name=name,
        url=details.url,
        api_key=key.get_secret_value() if key is not None else None,
        models=tuple(details.models),
        aliases=details.aliases,
        max_concurrency=details.max_concurrency or settings.max_concurrency,
        weight=details.weight,
        forward_authorization=details.forward_authorization,
    )


def name_of(url: str) -> str:
    """Host and port; with the path behind it where that is not the usual one."""
    parts = urlsplit(url)
    path = parts.path.strip("/").removesuffix("v1").strip("/")
    return parts.netloc + (":" + path.replace("/", "-") if path else "")


def pool_options(settings: Settings, *, identify: bool, share: Share) -> PoolOptions:
    """How the pool treats its backends. `identify`: it matters what a single one is; `share`: among the workers."""
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


class PoolJournal:
    """Keeps a pool's notes as metrics and log lines."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def began(self, backend: str) -> None:
        """A request was sent to a backend."""
        self._metrics.count(self._metrics.backend_requests, backend)
        self._metrics.count(self._metrics.backend_in_flight, backend)

    def ended(self, backend: str) -> None:
        """It is over, in whatever way."""
        self._metrics.count(self._metrics.backend_in_flight, backend, amount=-1)

    def retried(self, backend: str, reason: Reason) -> None:
        """A request left a backend, for this reason, to be sent to another one."""
        self._metrics.count(self._metrics.backend_retries, backend, reason)
        logs.logger().debug("retry", extra=logs.fields(backend=backend, reason=reason))

    def queued(self, length: int) -> None:
        """So many requests wait for a backend with room."""
        self._metrics.queued.set(length)

    def waited(self, seconds: float) -> None:
        """A request waited, and got its backend."""
        self._metrics.observe(self._metrics.queue_wait, seconds)

    def turned_away(self, reason: str) -> None:
        """A request got none: the line was `full`, or it waited too long (`late`)."""
        self._metrics.count(self._metrics.turned_away, reason)

    def state(self, backend: str, healthy: bool, breaker: State) -> None:
        """How a backend stands now."""
        self._metrics.of(self._metrics.backend_up, backend).set(healthy)
        for state in _STATES:
            self._metrics.of(self._metrics.backend_breaker, backend, state).set(state == breaker)

    def removed(self, backend: str) -> None:
        """A backend is gone: a series of something that is not there would look like an outage."""
        metrics = self._metrics
        metrics.forget(metrics.backend_up, backend)
        metrics.forget(metrics.backend_in_flight, backend)
        for state in _STATES:
            metrics.forget(metrics.backend_breaker, backend, state)

    def note(self, message: str, backend: str, **fields: Any) -> None:
        """Something that an operator wants to read in the log."""
        level = 30 if message in {"backend unhealthy", "breaker open"} else 20
        logs.logger().log(level, message, extra=logs.fields(backend=backend, **fields))
