"""The backends of a pool: how each of them stands, how they come and go, how they are watched, and who serves which model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import random
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from responses_gateway.backend.policies.affinity import Load
from responses_gateway.backend.policies.alike import AlikeLog, difference
from responses_gateway.backend.policies.breaker import Breaker, State
from responses_gateway.backend.policies.health import FAILURES, HealthReport, asks_many, check_health
from responses_gateway.backend.policies.retry import Reason, Repeated
from responses_gateway.backend.policies.routers import PAUSES
from responses_gateway.backend.policies.server_load import LoadReports
from responses_gateway.backend.served_models import BackendSpec, Discovered, ModelCatalogue, PoolSpec, no_such_model
from responses_gateway.backend.transport.client import Backend
from responses_gateway.wire.errors import ApiError


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


# How long a request waits for what backends say of themselves, in seconds.
_MOMENT = 2.0
# A health check comes up to this fraction of its interval earlier or later, so that gateways do not check in step.
_JITTER = 0.2
# Least seconds between two health checks, on average, where nothing is wrong.
_SPACING = 0.02
# Seconds until what more than a few backends list is compared.
_COMPARING = 0.5
_FEW = 32
# The longest interval in seconds of the checks of a backend that gets no requests: it is needed as soon as it is back.
_RECHECK = 1.0


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How a pool treats its backends. Times are in seconds; `answer_timeout` limits the wait for the head of an answer.

    `queue_size` requests for the same backends wait at most `queue_timeout`. `retries`: how often a request may go to
    another backend. `breaker_failures` in a row open a breaker for `breaker_time`. `identify`: ask even a single backend what
    it serves. `share`: this pool's share of the limits for a backend; `queue_size` is for this pool alone.
    `load_interval`: how often vLLM servers are asked how busy they are; 0: never."""

    connect_timeout: float = 10
    answer_timeout: float | None = None
    queue_size: int = 100
    queue_timeout: float = 30
    retries: int = 2
    health_interval: float = 10
    breaker_failures: int = 5
    breaker_time: float = 10
    identify: bool = False
    share: Share = ALL
    load_interval: float = 0


class PoolObserver(Protocol):
    """Receives the events of a pool, for metrics and logs. All calls come from the event loop, and have to return at once."""

    def request_started(self, backend: str) -> None:
        """Note that a request was sent to a backend."""

    def request_ended(self, backend: str) -> None:
        """Note that a request to a backend has ended, in whatever way."""

    def request_retried(self, backend: str, reason: Reason | Repeated) -> None:
        """Note that a request left a backend to be sent to another one, or is sent to the same one again."""

    def queue_length_changed(self, length: int) -> None:
        """Note how many requests wait for a free backend."""

    def queue_wait_ended(self, seconds: float) -> None:
        """Note how long a request waited before it got a backend."""

    def queue_rejected(self, reason: str) -> None:
        """Note that a request got no backend: the queue was `full`, or it waited too long (`late`)."""

    def backend_state(self, backend: str, healthy: bool, breaker: State) -> None:
        """Note the present state of a backend."""

    def backend_removed(self, backend: str) -> None:
        """Note that a backend was removed and is idle."""

    def log(self, message: str, backend: str, **fields: Any) -> None:
        """Log an event that operators want to know."""

    def warn(self, message: str, backend: str, **fields: Any) -> None:
        """Log an event about which operators may have to do something."""


MemberState: TypeAlias = Literal["ready", "draining", "unhealthy"]
# The endpoint of a backend that takes the ids of the tokens to continue from.
ContinuationEndpoint: TypeAlias = Literal["completions", "chat"]


class Member:
    """What a pool knows about a backend. Create it inside the running event loop."""

    def __init__(self, spec: BackendSpec, options: PoolOptions, observer: PoolObserver) -> None:
        self.spec = spec
        self._share = options.share
        self._limit = self._part_of_limit()
        self.name = spec.name
        self.label = spec.pool or spec.name  # in metrics: members come and go, and each would leave time series behind
        self.backend = Backend(
            spec.url,
            api_key=spec.api_key,
            connect_timeout=options.connect_timeout,
            answer_timeout=options.answer_timeout,
            forward_authorization=spec.forward_authorization,
            on_repeat=partial(observer.request_retried, self.label, "stale_connection"),
        )
        self.catalogue = ModelCatalogue(spec.models, spec.aliases)
        self.breaker = Breaker(options.breaker_failures, options.breaker_time)
        self.in_flight = 0
        self.elsewhere = 0  # requests that it has from others, as far as it tells
        self.router = bool(spec.router)  # many servers behind one URL, as the settings say or its answers show
        self.answered = False  # an answer was looked at
        self.cache = 0.0  # the part of its KV cache that is taken, as far as it tells
        self.healthy = True
        self.problem = ""  # of the last failed check
        self.suspect = False  # there was no connection to it, and neither a check nor a request has succeeded since
        self.draining = False  # gets no new requests
        self.usage_reported = False
        self.continues_by: ContinuationEndpoint | None = "completions"  # None: it takes no ids
        self.checked = asyncio.Event()
        self.left = asyncio.Event()  # it was removed
        self.watch: asyncio.Task[None] | None = None
        self.asked: asyncio.Task[None] | None = None  # whether it is a router
        self.last = 0  # the number of its last request
        self._failed_checks = 0
        self._check_wanted = asyncio.Event()

    @property
    def drains(self) -> bool:
        """Whether it gets no new requests, by an order or because it is shutting down."""
        return self.draining or self.spec.draining

    def state(self, now: float) -> MemberState:
        """Return how it is, in a word."""
        if self.drains or self.left.is_set():
            return "draining"
        return "ready" if self.healthy and self.breaker.state(now) == "closed" else "unhealthy"

    @property
    def has_room(self) -> bool:
        """Whether it may get one more request now."""
        return self._limit is None or self.in_flight < self._limit

    @property
    def limit(self) -> int | None:
        """Most requests that this process may send to it at a time; None: any number."""
        return self._limit

    @property
    def load(self) -> Load:
        """Its load, for the choice among several backends."""
        return Load(self.name, self.in_flight + self.elsewhere, self.spec.weight, self.last, self.cache)

    @property
    def vouched_for(self) -> bool:
        """Whether the settings say that its answers may be continued: the servers behind a router are alike."""
        return bool(self.spec.continue_answers) or (self.router and self.spec.continue_answers is None)

    @property
    def is_vllm(self) -> bool:
        """Whether vLLM serves one of its models."""
        return "vllm" in (self.catalogue.listed or {}).values()

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
        self.suspect = self.suspect and bool(report.problem)
        self._failed_checks = self._failed_checks + 1 if report.problem else 0
        self._check_wanted.clear()
        self.healthy = self._failed_checks < FAILURES and not (report.problem and not self.checked.is_set())
        if report.models is not None:  # otherwise the last list remains valid
            self.catalogue.listed = report.models
            self.catalogue.contexts = report.contexts
            self.catalogue.checkpoints = report.checkpoints
        self.checked.set()
        return self.healthy != before

    def check_soon(self) -> None:
        """Have its health checked now."""
        self._check_wanted.set()

    async def check_wanted(self, seconds: float) -> None:
        """Wait so long, or until a health check is wanted."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._check_wanted.wait()

    def update_spec(self, spec: BackendSpec) -> None:
        """Take new settings of the same server; the models that it listed remain valid."""
        known = self.catalogue
        self.spec = spec
        if spec.router is not None:
            self.router = spec.router
        self._limit = self._part_of_limit()
        self.catalogue = ModelCatalogue(spec.models, spec.aliases)
        self.catalogue.listed = known.listed
        self.catalogue.contexts = known.contexts
        self.catalogue.checkpoints = known.checkpoints

    def _part_of_limit(self) -> int | None:
        limit = self.spec.max_concurrency
        return None if limit is None else self._share.part(limit)


class Partners(NamedTuple):
    """The backends that may continue each other's answers to a model. `checkpoint`: what all of them list of it; empty if they
    were not compared, because the settings vouch for them."""

    members: list[Member]
    checkpoint: str = ""

    @property
    def attempts(self) -> int:
        """How often an answer may be continued."""
        return max((_attempts(member) for member in self.members), default=0)


NOBODY = Partners([])


class Members:
    """The backends by name. `has_room` is called with a backend that may take a waiting request."""

    def __init__(
        self, specs: Iterable[BackendSpec], options: PoolOptions, observer: PoolObserver, has_room: Callable[[Member], None]
    ) -> None:
        self.by_name: dict[str, Member] = {}
        self.leaving: set[Member] = set()  # removed, but not idle yet
        self.only: Member | None = None  # the only one, if there is no choice, nor will be
        self.pools: dict[str, PoolSpec] = {}  # whose members come and go
        self._last_catalogues: dict[str, ModelCatalogue] = {}  # of pools by name, of the last member that left
        self.came = asyncio.Event()  # set whenever backends came
        self._options = options
        self._observer = observer
        self._has_room = has_room
        self.clock = asyncio.get_running_loop().time
        self._identify = options.identify
        self._finds_routers = False
        self._closing: set[asyncio.Task[None]] = set()
        # One of several workers logs for all.
        self._alike = AlikeLog(observer.log) if options.share.number % options.share.of == 0 else None
        self._comparing: asyncio.TimerHandle | None = None
        self._load_reports: LoadReports | None = None
        self._started = False
        for spec in specs:
            self._join(spec)
        self._settle()

    async def start(self) -> None:
        """Begin the health checks. Return when each of several backends, or the only one whose answers may be continued, was
        checked once, or `connect_timeout` is over."""
        self._started = True
        self._settle()
        await self.first_checks()

    async def first_checks(self) -> None:
        """Wait until each of several backends was checked once, or `connect_timeout` is over."""
        if self.only is None or self.only.vouched_for:
            await self._all_checked(self._options.connect_timeout)

    async def _all_checked(self, within: float) -> None:
        waits = [asyncio.create_task(member.checked.wait()) for member in self.by_name.values() if not member.checked.is_set()]
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=within)
        for wait in late:
            wait.cancel()

    def identify(self) -> None:
        """Ask a single backend what it serves, if that has not been done."""
        if not self._identify:
            self._identify = True
            self._settle()

    def find_routers(self) -> None:
        """Ask each backend of which the settings do not say it whether it is a router, and those that come; no members of
        pools, which are many."""
        self._finds_routers = True
        self._settle()

    async def identified(self) -> None:
        """Return once each backend was asked what it serves, even a single one; requests wait no longer than a moment."""
        self.identify()
        await self._all_checked(_MOMENT)

    async def close(self) -> None:
        """Close all connections."""
        if self._comparing is not None:
            self._comparing.cancel()
        if self._load_reports is not None:
            self._load_reports.close()
        for member in [*self.by_name.values(), *self.leaving]:
            self._retire(member)
        await asyncio.gather(*self._closing)

    # ---- adding and removing --------------------------------------------------------------------------------------

    def find(self, name: str) -> Member:
        """Return a backend by its name. Raises `ApiError` 404."""
        if name not in self.by_name:
            raise ApiError(404, f"There is no backend named `{name[:100]}`.", code="not_found")
        return self.by_name[name]

    def add(self, spec: BackendSpec) -> Member:
        """Add a backend and check its health from now on. Raises `ApiError` 409 if there is one by this name."""
        if spec.name in self.by_name:
            raise ApiError(409, f"There is a backend named `{spec.name}` already.", param="name", code="already_exists")
        member = self._join(spec)
        self._settle()
        self._observer.log("backend added", spec.name, url=spec.url)
        return member

    def drain(self, name: str, draining: bool = True) -> Member:
        """Send no new requests to a backend, and let those under way end. `draining=False` reverts that."""
        member = self.find(name)
        member.draining = draining
        self._observer.log("backend draining" if draining else "backend accepts requests again", name)
        self._has_room(member)
        return member

    def remove(self, name: str) -> Member:
        """Remove a backend; its connections are closed once its requests under way have ended. Raises `ApiError` 404, and 409
        for one that a source would name again."""
        member = self.find(name)
        if member.spec.pool:
            message = (
                f"`{name}` is a member of the pool `{member.spec.pool}`, and stays as long as its source names it: drain it."
            )
            raise ApiError(409, message, param="name", code="member_of_a_pool")
        self._leave(member)
        self._settle()
        return member

    def apply(self, specs: Iterable[BackendSpec], pools: Iterable[PoolSpec] = ()) -> None:
        """Add, remove and change backends as `specs` say, and know the `pools` whose members come and go. Requests under way
        are not affected."""
        wanted = {spec.name: spec for spec in specs}
        before = self.by_name.copy()
        had_pools = bool(self.pools)
        self.pools = {pool.name: pool for pool in pools}
        for name, member in before.items():
            spec = wanted.get(name)
            if spec is None or not _same_server(spec, member.spec):
                self._leave(member)
            elif spec != member.spec:
                self._change(member, spec)
        for name, spec in wanted.items():
            if name not in self.by_name:
                self._join(spec)
                self._observer.log("backend added", name, url=spec.url, **_origin(spec))
        if self.by_name != before or had_pools != bool(self.pools):
            self._settle()
        self._last_catalogues = {name: last for name, last in self._last_catalogues.items() if name in self.pools}

    def apply_discovered(self, found: Discovered) -> None:
        """Take what the sources of pools say. Other backends stay as they are."""
        others = [member.spec for member in self.by_name.values() if not member.spec.pool]
        self.apply([*others, *found.specs], found.pools)

    async def _ask_whether_router(self, member: Member) -> None:
        found = None
        while found is None:
            found = await asks_many(member.backend, self._options.connect_timeout)
            if found is None:
                await asyncio.sleep(self._options.health_interval)
        if found and member.spec.router is None:
            self.found_router(member)

    def found_router(self, member: Member) -> None:
        """Note that an answer of a backend shows that it is a router."""
        if member.router:
            return
        member.router = True
        self._observer.log("the backend is a router: the failure of one of its servers is not its own", member.name)
        self._settle()

    def _leave(self, member: Member) -> Member:
        del self.by_name[member.name]
        self.leaving.add(member)
        member.left.set()
        if member.spec.pool:
            self._last_catalogues[member.spec.pool] = member.catalogue
        self._observer.log("backend removed", member.name, in_flight=member.in_flight, **_origin(member.spec))
        self.retire_idle(member)
        return member

    def _change(self, member: Member, spec: BackendSpec) -> None:
        before = member.spec
        member.update_spec(spec)
        if spec.draining != before.draining:
            message = "backend draining" if spec.draining else "backend accepts requests again"
            self._observer.log(message, member.name, in_flight=member.in_flight, **_origin(spec))
        else:
            self._observer.log("backend changed", member.name)
        self._has_room(member)

    async def first_of(self, pool: str) -> Member:
        """Return a member of a pool as soon as there is one."""
        while True:
            came = self.came
            for member in self.by_name.values():
                if member.spec.pool == pool and not member.drains:
                    return member
            await came.wait()

    def counted(self, now: float) -> dict[PoolSpec, dict[MemberState, int]]:
        """Return how many members of each pool are in each state."""
        found: dict[str, dict[MemberState, int]] = {name: {"ready": 0, "draining": 0, "unhealthy": 0} for name in self.pools}
        for member in self.by_name.values() if found else ():
            if member.spec.pool in found:
                found[member.spec.pool][member.state(now)] += 1
        return {self.pools[name]: states for name, states in found.items()}

    def retire_idle(self, member: Member) -> None:
        """Close the connections of a removed backend if it is idle."""
        if not member.in_flight:
            self._retire(member)
            self.leaving.discard(member)
            if member.name not in self.by_name and not member.spec.pool:
                self._observer.backend_removed(member.name)

    def _join(self, spec: BackendSpec) -> Member:
        member = Member(spec, self._options, self._observer)
        member.backend.on_refused_field = partial(self._note_refused_field, spec.name)
        self.by_name[spec.name] = member
        self.report_state(member)
        return member

    def _note_refused_field(self, name: str, field: str) -> None:
        self._observer.log("the backend refuses an optional field: left out from now on", name, field=field)

    def _settle(self) -> None:
        """Find out, after backends came or went, whether there is a choice and which health checks have to begin."""
        alone = len(self.by_name) == 1 and not self.pools
        self.only = next(iter(self.by_name.values())) if alone else None
        self._log_alike_soon()
        if self.by_name:
            self.came.set()
            self.came = asyncio.Event()
        if not self._started:
            return
        for member in self.by_name.values():
            if member.watch is None and (self.only is None or self._identify or member.vouched_for):
                member.watch = asyncio.create_task(self._watch(member))
            if self._finds_routers and member.asked is None and member.spec.router is None and not member.spec.pool:
                member.asked = asyncio.create_task(self._ask_whether_router(member))
            self._has_room(member)
        if self._options.load_interval and self.only is None and self._load_reports is None:
            self._load_reports = LoadReports(self.by_name.values, self._options.load_interval)

    def _retire(self, member: Member) -> None:
        for task in (member.watch, member.asked):
            if task is not None:
                task.cancel()
        task = asyncio.create_task(member.backend.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    # ---- health ---------------------------------------------------------------------------------------------------

    async def _watch(self, member: Member) -> None:
        """Check a backend repeatedly; a single one until it has listed its models."""
        while True:
            report = await check_health(member.backend, self._options.connect_timeout)
            listed = member.catalogue.listed, member.catalogue.checkpoints
            changed = member.update_health(report)
            if (member.catalogue.listed, member.catalogue.checkpoints) != listed:
                self._log_alike_soon()
            if changed:
                problem = report.problem or None
                if member.healthy:
                    self._observer.log("backend healthy", member.name, problem=problem)
                else:
                    self._observer.warn("backend unhealthy", member.name, problem=problem)
            if member.breaker.check_ended(succeeded=not report.problem):
                self._observer.log("breaker closed", member.name, by="health check")
            self.report_state(member)
            self._has_room(member)
            if self.only is member and report.models is not None:
                member.watch = None
                return
            interval = max(self._options.health_interval, len(self.by_name) * _SPACING)
            if report.problem or member.breaker.state(self.clock()) != "closed":
                interval = min(interval, _RECHECK)
            await member.check_wanted(interval * (1 + _JITTER * (2 * random() - 1)))

    def report_state(self, member: Member) -> None:
        """Report the present state of a backend to the observer; those of pools are counted together."""
        if member.spec.pool:
            return
        self._observer.backend_state(member.name, member.healthy, member.breaker.state(self.clock()))

    # ---- models ---------------------------------------------------------------------------------------------------

    def serving(self, model: str) -> list[Member]:
        """Return the backends that are known to serve a model, or else those of which that is not known. A single one serves
        any model, unless the settings say what it serves. Raises `ApiError` 404."""
        members = list(self.by_name.values())
        if not model or (self.only is not None and not self.only.catalogue.restricted):
            return members
        answers = [(member.catalogue.serves(model), member) for member in members]
        found = [member for answer, member in answers if answer] or [member for answer, member in answers if answer is None]
        if not found and members and not self.awaits(model):
            raise no_such_model(model, (member.catalogue for member in members))
        return found

    def awaits(self, model: str) -> bool:
        """Tell whether a member that serves the model may come: there is a pool without members that could have one."""
        if not self.pools:
            return False
        filled = {member.spec.pool for member in self.by_name.values()}
        empty = (pool for name, pool in self.pools.items() if name not in filled)
        return any(self._of_pool(pool).serves(model) is not False for pool in empty)

    def _of_pool(self, pool: PoolSpec) -> ModelCatalogue:
        """Return what the last member of a pool served, or what the settings say that its members serve."""
        return self._last_catalogues.get(pool.name) or ModelCatalogue(pool.models, pool.aliases)

    def candidates(self, model: str) -> list[Member]:
        """Return the same as `serving`, or an empty list if no backend serves the model."""
        try:
            return self.serving(model)
        except ApiError:
            return []

    def partners(self, model: str, least: int = 2) -> Partners:
        """Return which backends may continue each other's answers to a model: those that the settings vouch for, or else those
        about which they say nothing, if these are alike and there are `least` of them."""
        able = [member for member in self.candidates(model) if member.spec.continue_answers != 0]
        vouched = [member for member in able if member.vouched_for]
        if vouched:
            return Partners([member for member in vouched if member.continues(model)])
        checkpoints = [member.catalogue.checkpoint(model) for member in able]
        if len(able) < least or difference(checkpoints):
            return NOBODY
        return Partners([member for member in able if member.continues(model)], checkpoints[0] or "")

    def _log_alike_soon(self) -> None:
        """Compare what the backends list; many that come together are compared once."""
        if len(self.by_name) <= _FEW:
            self._log_alike()
        elif self._alike is not None and self._comparing is None:
            self._comparing = asyncio.get_running_loop().call_later(_COMPARING, self._log_alike)

    def _log_alike(self) -> None:
        self._comparing = None
        if self._alike is None:
            return
        found: dict[str, dict[str, str | None]] = {}
        for member in self.by_name.values():
            if member.spec.continue_answers is None:
                for model in member.catalogue.names():
                    found.setdefault(model, {})[member.name] = member.catalogue.checkpoint(model)
        self._alike.update({model: checkpoints for model, checkpoints in found.items() if any(checkpoints.values())})

    def own_name(self, model: str) -> str:
        """Return the backends' name for a model: the first alias counts."""
        for member in self.by_name.values():
            if model in member.catalogue.aliases:
                return member.catalogue.aliases[model]
        return model

    def context_of(self, model: str) -> int | None:
        """Return how many tokens the context of a model has at every backend that may get a request for it; None if one of them
        does not tell."""
        name = self.own_name(model)
        lengths = [member.catalogue.contexts.get(name) for member in self.candidates(model)]
        known = [length for length in lengths if length is not None]
        return min(known) if known and len(known) == len(lengths) else None

    def all_vllm(self, model: str) -> bool:
        """Tell whether every backend that may get a request for this model is vLLM."""
        if self.only is not None:
            return self.only.is_vllm
        return all(member.catalogue.owner(model) == "vllm" for member in self.candidates(model))

    def all_report_usage(self, model: str) -> bool:
        """Tell whether every backend that may get a request for this model has reported the usage of one before."""
        return all(member.usage_reported for member in self.candidates(model))

    def usage_reported(self, name: str) -> None:
        """Note that a backend reported the usage of a request."""
        if name in self.by_name:
            self.by_name[name].usage_reported = True


def _same_server(one: BackendSpec, other: BackendSpec) -> bool:
    """Tell whether two specs are equal in all that connections depend on."""
    return (one.url, one.api_key, one.forward_authorization) == (other.url, other.api_key, other.forward_authorization)


def _attempts(member: Member) -> int:
    """Return how often an answer may be continued."""
    return member.spec.continue_answers or (len(PAUSES) if member.router else 1)


def _origin(spec: BackendSpec) -> dict[str, str | None]:
    """Return where a backend comes from, for the log; nothing of those of the settings."""
    return {"source": spec.source, "pool": spec.pool, "pod": spec.pod or None} if spec.pool else {}
