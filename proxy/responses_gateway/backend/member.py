"""One backend of a pool: its client, and how it stands."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Literal, TypeAlias

from responses_gateway.backend.policies.affinity import Load
from responses_gateway.backend.policies.breaker import Breaker
from responses_gateway.backend.policies.health import FAILURES, HealthReport
from responses_gateway.backend.policies.server_load import ServerLoad
from responses_gateway.backend.pool_options import PoolObserver, PoolOptions
from responses_gateway.backend.served_models import BackendSpec, ModelCatalogue
from responses_gateway.backend.transport.client import Backend
from responses_gateway.wire.added_fields import LIMIT

# How a backend is, in a word for people.
MemberState: TypeAlias = Literal["ready", "draining", "unhealthy"]
# What checks and requests say of a backend. `suspect`: there was no connection to it, and neither a check nor a request has
# succeeded since.
Health: TypeAlias = Literal["well", "suspect", "unhealthy"]
# The endpoint of a backend that takes the ids of the tokens to continue from.
ContinuationEndpoint: TypeAlias = Literal["completions", "chat"]


class Member:
    """What a pool knows about a backend. Create it inside the running event loop."""

    def __init__(self, spec: BackendSpec, options: PoolOptions, observer: PoolObserver) -> None:
        self.spec = spec
        self.name = spec.name
        self.label = spec.pool or spec.name  # in metrics: members come and go, and each would leave time series behind
        self.backend = Backend(
            spec.url,
            api_key=spec.api_key,
            connect_timeout=options.connect_timeout,
            answer_timeout=options.answer_timeout,
            forward_authorization=spec.forward_authorization,
            forward_provider_keys=spec.forward_provider_keys,
            on_repeat=partial(observer.request_retried, self.label, "stale_connection"),
            on_refused_field=partial(_log_refused_field, observer, spec.name),
        )
        self.catalogue = ModelCatalogue(spec.models, spec.aliases)
        self.breaker = Breaker(options.breaker_failures, options.breaker_time)
        self._share = options.share
        self.limit = self._part_of_limit()  # most requests that this process may send to it at a time; None: any number
        self.in_flight = 0
        self.last = 0  # the number of its last request
        self.reported = ServerLoad(0)  # the requests that it has from others, and how full its cache is, as far as it tells
        self.router = bool(spec.router)  # many servers behind one URL, as the settings say or its answers show
        self.answered = False  # an answer was looked at
        self.health: Health = "well"
        self.problem = ""  # of the last failed check
        self.draining = False  # by an order
        self.usage_reported = False
        self.continues_by: ContinuationEndpoint | None = "completions"  # None: it takes no ids
        self.checked = asyncio.Event()
        self.check_wanted = asyncio.Event()
        self.left = asyncio.Event()  # it was removed
        self._failed_checks = 0

    @property
    def drains(self) -> bool:
        """Whether it gets no new requests, by an order or because it is shutting down."""
        return self.draining or self.spec.draining

    @property
    def healthy(self) -> bool:
        """Whether checks find it healthy, or a single one answered."""
        return self.health != "unhealthy"

    def state(self, now: float) -> MemberState:
        """Return how it is, in a word."""
        if self.drains or self.left.is_set():
            return "draining"
        return "ready" if self.healthy and self.breaker.state(now) == "closed" else "unhealthy"

    @property
    def has_room(self) -> bool:
        """Whether it may get one more request now."""
        return self.limit is None or self.in_flight < self.limit

    @property
    def load(self) -> Load:
        """Its load, for the choice among several backends."""
        return Load(self.name, self.in_flight + self.reported.requests, self.spec.weight, self.last, self.reported.cache)

    @property
    def vouched_for(self) -> bool:
        """Whether the settings say that its answers may be continued: the servers behind a router are alike."""
        return bool(self.spec.continue_answers) or (self.router and self.spec.continue_answers is None)

    @property
    def is_vllm(self) -> bool:
        """Whether vLLM serves one of its models."""
        listed = self.catalogue.listed
        return listed is not None and "vllm" in listed.owners.values()

    @property
    def tells_load(self) -> bool:
        """Whether its metrics may tell how busy it is; those of a router are not those of its servers."""
        return self.healthy and self.is_vllm and not self.router

    def continues(self, model: str) -> bool:
        """Tell whether it can continue answers of other backends, and others its own, unless the settings forbid it."""
        able = self.spec.continue_answers != 0 and self.continues_by is not None
        return able and self.catalogue.owner(model) == "vllm"

    def update_health(self, report: HealthReport) -> bool:
        """Take the result of a check; return whether that made a healthy backend unhealthy, or the other way round."""
        before = self.healthy
        self.problem = report.problem
        self._failed_checks = self._failed_checks + 1 if report.problem else 0
        if not report.problem:
            self.health = "well"
        elif self._failed_checks >= FAILURES or not self.checked.is_set():
            self.health = "unhealthy"
        if report.listed is not None:  # otherwise the last list remains valid
            self.catalogue.listed = report.listed
        self.check_wanted.clear()
        self.checked.set()
        return self.healthy != before

    def update_spec(self, spec: BackendSpec) -> None:
        """Take new settings of the same server; the models that it listed remain valid."""
        self.spec = spec
        if spec.router is not None:
            self.router = spec.router
        self.limit = self._part_of_limit()
        self.catalogue = ModelCatalogue(spec.models, spec.aliases, self.catalogue.listed)

    def _part_of_limit(self) -> int | None:
        limit = self.spec.max_concurrency
        return None if limit is None else self._share.part(limit)


def described(member: Member, now: float) -> dict[str, Any]:
    """Return how a backend is, for operators, without its key."""
    spec = member.spec
    return {
        "name": member.name,
        "url": spec.url,
        "source": spec.source,
        "pool": spec.pool or None,
        "pod": spec.pod or None,
        "state": member.state(now),
        "healthy": member.healthy,
        "problem": member.problem or None,
        "breaker": member.breaker.state(now),
        "draining": member.drains,
        "in_flight": member.in_flight,
        "max_concurrency": spec.max_concurrency,
        "weight": spec.weight,
        "models": None if member.catalogue.listed is None else member.catalogue.names(),
        "aliases": member.catalogue.aliases,
    }


def _log_refused_field(observer: PoolObserver, backend: str, model: str, path: str, instead: str) -> None:
    change = "left out" if not instead else f"at most {instead}" if path == LIMIT else f"sent as {instead}"
    observer.log(f"the backend refuses an optional field: {change} from now on", backend, model=model, field=path)
