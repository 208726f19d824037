"""One backend of a pool: its connections and its present state."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from proxy.backend.policies.affinity import Load
from proxy.backend.policies.breaker import Breaker
from proxy.backend.policies.health import FAILURES, HealthReport
from proxy.backend.served_models import BackendSpec, ModelCatalogue
from proxy.backend.transport.client import Backend


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one of several processes that use the same backends; they are numbered from 0."""

    number: int = 0
    of: int = 1

    def part(self, limit: int) -> int:
        """Return this process's part of a limit for all. The parts add up to the limit, but none is less than 1."""
        return max(1, limit // self.of + (self.number % self.of < limit % self.of))


# For a process that is the only one.
ALL = Share()


class Member:
    """What a pool knows about a backend. Create it inside the running event loop."""

    def __init__(
        self, spec: BackendSpec, breaker: Breaker, share: Share, connect_timeout: float, answer_timeout: float | None
    ) -> None:
        self.spec = spec
        self._share = share
        self._limit = self._part_of_limit()
        self.name = spec.name
        self.backend = Backend(
            spec.url,
            api_key=spec.api_key,
            connect_timeout=connect_timeout,
            answer_timeout=answer_timeout,
            forward_authorization=spec.forward_authorization,
        )
        self.catalogue = ModelCatalogue(spec.models, spec.aliases)
        self.breaker = breaker
        self.in_flight = 0
        self.healthy = True
        self.problem = ""  # of the last failed check
        self.draining = False  # gets no new requests
        self.usage_reported = False
        self.checked = asyncio.Event()
        self.watch: asyncio.Task[None] | None = None
        self.last = 0  # the number of its last request
        self._failed_checks = 0

    @property
    def has_room(self) -> bool:
        """Whether it may get one more request now."""
        return self._limit is None or self.in_flight < self._limit

    @property
    def load(self) -> Load:
        """Its load, for the choice among several backends."""
        return Load(self.name, self.in_flight, self.spec.weight, self.last)

    @property
    def is_vllm(self) -> bool:
        """Whether vLLM serves one of its models."""
        return "vllm" in (self.catalogue.listed or {}).values()

    def update_health(self, report: HealthReport) -> bool:
        """Take the result of a check; return whether that made a healthy backend unhealthy, or the other way round."""
        before = self.healthy
        self.problem = report.problem
        self._failed_checks = self._failed_checks + 1 if report.problem else 0
        self.healthy = self._failed_checks < FAILURES and not (report.problem and not self.checked.is_set())
        if report.models is not None:  # otherwise the last list remains valid
            self.catalogue.listed = report.models
        self.checked.set()
        return self.healthy != before

    def update_spec(self, spec: BackendSpec) -> None:
        """Take new settings of the same server; the models that it listed remain valid."""
        listed = self.catalogue.listed
        self.spec = spec
        self._limit = self._part_of_limit()
        self.catalogue = ModelCatalogue(spec.models, spec.aliases)
        self.catalogue.listed = listed

    def _part_of_limit(self) -> int | None:
        limit = self.spec.max_concurrency
        return None if limit is None else self._share.part(limit)
