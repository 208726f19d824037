"""One backend of a pool: its connections, and how it stands."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from proxy.backend.policies.affinity import Load
from proxy.backend.policies.breaker import Breaker
from proxy.backend.policies.health import FAILURES, Finding
from proxy.backend.served_models import BackendSpec, Catalogue
from proxy.backend.transport.client import Backend


@dataclass(frozen=True, slots=True)
class Share:
    """What falls to one of several processes that send to the same backends; they are numbered from 0."""

    number: int = 0
    of: int = 1

    def part(self, limit: int) -> int:
        """Of a limit for all: the parts add up to it, but none is less than 1."""
        return max(1, limit // self.of + (self.number % self.of < limit % self.of))


#: Of a process that has the backends to itself.
ALL = Share()


class Member:
    """What a pool knows of a backend. Create it inside the running event loop."""

    def __init__(
        self, spec: BackendSpec, breaker: Breaker, share: Share, connect_timeout: float, answer_timeout: float | None
    ) -> None:
        self.spec = spec
        self._share = share
        self._most = self._part_of_limit()
        self.name = spec.name
        self.backend = Backend(
            spec.url,
            api_key=spec.api_key,
            connect_timeout=connect_timeout,
            answer_timeout=answer_timeout,
            forward_authorization=spec.forward_authorization,
        )
        self.catalogue = Catalogue(spec.models, spec.aliases)
        self.breaker = breaker
        self.in_flight = 0
        self.healthy = True
        self.problem = ""  # of the last check that failed
        self.draining = False  # takes no new requests
        self.leaving = False  # is removed once it is idle
        self.usage_reported = False
        self.checked = asyncio.Event()
        self.watch: asyncio.Task[None] | None = None
        self.last = 0  # the number of the request that came last
        self._failed_checks = 0

    @property
    def has_room(self) -> bool:
        """It may get one more request at once."""
        return self._most is None or self.in_flight < self._most

    @property
    def load(self) -> Load:
        """For the choice among several."""
        return Load(self.name, self.in_flight, self.spec.weight, self.last)

    @property
    def is_vllm(self) -> bool:
        """One of its models is served by vLLM."""
        return "vllm" in (self.catalogue.listed or {}).values()

    def take(self, finding: Finding) -> bool:
        """What a check found; True if the backend is healthy now and was not, or the other way round."""
        before = self.healthy
        self.problem = finding.problem
        self._failed_checks = self._failed_checks + 1 if finding.problem else 0
        self.healthy = self._failed_checks < FAILURES and not (finding.problem and not self.checked.is_set())
        if finding.models is not None:  # else the last list stands
            self.catalogue.listed = finding.models
        self.checked.set()
        return self.healthy != before

    def describe(self, spec: BackendSpec) -> None:
        """The settings say something else about the same server now; what it listed still stands."""
        listed = self.catalogue.listed
        self.spec = spec
        self._most = self._part_of_limit()
        self.catalogue = Catalogue(spec.models, spec.aliases)
        self.catalogue.listed = listed

    def _part_of_limit(self) -> int | None:
        limit = self.spec.max_concurrency
        return None if limit is None else self._share.part(limit)
