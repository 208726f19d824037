"""The backends of a pool: how they come and go, how they are watched, and who serves which model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import random

from proxy.backend.member import ALL, Member, Share
from proxy.backend.observer import Journal
from proxy.backend.policies.breaker import Breaker
from proxy.backend.policies.health import examine
from proxy.backend.served_models import BackendSpec, no_such_model
from proxy.wire.errors import ApiError

#: A health check comes this much earlier or later than its interval says, so that gateways do not ask in step.
_JITTER = 0.2


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How a pool treats its backends. Times are in seconds; `answer_timeout` is for the head of an answer to a chat request.

    `queue_size` requests for the same backends wait at most `queue_timeout` for room. `retries`: how often a request may go to
    another backend. `breaker_failures` in a row open a breaker for `breaker_time`. `identify`: it matters what a single one is.
    `share`: this pool's of what several may send to one backend together; `queue_size` is its own alone.
    """

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


class Members:
    """The backends by name. `has_room` is called with one that may have room for those who wait."""

    def __init__(
        self, specs: Iterable[BackendSpec], options: PoolOptions, journal: Journal, has_room: Callable[[Member], None]
    ) -> None:
        self.by_name: dict[str, Member] = {}
        self.leaving: set[Member] = set()  # taken out, but not idle yet
        #: The only one, where there is nothing to choose.
        self.only: Member | None = None
        self._options = options
        self._journal = journal
        self._has_room = has_room
        self._clock = asyncio.get_running_loop().time
        self._identify = options.identify
        self._closing: set[asyncio.Task[None]] = set()
        self._started = False
        for spec in specs:
            self._join(spec)
        self._settle()

    async def start(self) -> None:
        """Begin to watch; returns when each of several was checked once, or the time for a connection is over."""
        self._started = True
        self._settle()
        if self.only is None and self.by_name:
            waits = [asyncio.create_task(member.checked.wait()) for member in self.by_name.values()]
            _, late = await asyncio.wait(waits, timeout=self._options.connect_timeout)
            for wait in late:
                wait.cancel()

    def identify(self) -> None:
        """It matters what a single backend is: ask it, if that has not been done."""
        if not self._identify:
            self._identify = True
            self._settle()

    async def close(self) -> None:
        """Close all connections."""
        for member in [*self.by_name.values(), *self.leaving]:
            self._retire(member)
        await asyncio.gather(*self._closing)

    # ---- coming and going -----------------------------------------------------------------------------------------

    def find(self, name: str) -> Member:
        """A backend by its name. Raises `ApiError` 404."""
        if name not in self.by_name:
            raise ApiError(404, f"There is no backend named `{name[:100]}`.", code="not_found")
        return self.by_name[name]

    def add(self, spec: BackendSpec) -> Member:
        """A new backend, watched from now on. Raises `ApiError` 409 if there is one by this name."""
        if spec.name in self.by_name:
            raise ApiError(409, f"There is a backend named `{spec.name}` already.", param="name", code="already_exists")
        member = self._join(spec)
        self._settle()
        self._journal.note("backend added", spec.name, url=spec.url)
        return member

    def drain(self, name: str, draining: bool = True) -> Member:
        """Send nothing new to a backend; what is under way ends in peace. `draining=False` takes that back."""
        member = self.find(name)
        member.draining = draining
        self._journal.note("backend draining" if draining else "backend takes requests again", name)
        self._has_room(member)
        return member

    def remove(self, name: str) -> Member:
        """Take a backend out; its connections are closed once what is under way there has ended."""
        member = self.by_name.pop(self.find(name).name)
        self.leaving.add(member)
        self._settle()
        self._journal.note("backend removed", name, in_flight=member.in_flight)
        self.retire_idle(member)
        return member

    def apply(self, specs: Iterable[BackendSpec]) -> None:
        """Make the pool what `specs` say: add, remove and change backends. What is under way is left alone."""
        wanted = {spec.name: spec for spec in specs}
        for name, member in list(self.by_name.items()):
            spec = wanted.get(name)
            if spec is None or not _same_server(spec, member.spec):
                self.remove(name)
            elif spec != member.spec:
                member.describe(spec)
                self._journal.note("backend changed", name)
                self._has_room(member)
        for name, spec in wanted.items():
            if name not in self.by_name:
                self.add(spec)

    def retire_idle(self, member: Member) -> None:
        """Close the connections of one that is leaving, if nothing is under way there."""
        if not member.in_flight:
            self._retire(member)
            self.leaving.discard(member)
            if member.name not in self.by_name:
                self._journal.removed(member.name)

    def _join(self, spec: BackendSpec) -> Member:
        options = self._options
        breaker = Breaker(options.breaker_failures, options.breaker_time)
        member = Member(spec, breaker, options.share, options.connect_timeout, options.answer_timeout)
        self.by_name[spec.name] = member
        self.tell(member)
        return member

    def _settle(self) -> None:
        """After backends came or went: is there a choice, and who is to be watched?"""
        self.only = next(iter(self.by_name.values())) if len(self.by_name) == 1 else None
        if not self._started:
            return
        for member in self.by_name.values():
            if member.watch is None and (self.only is None or self._identify):
                member.watch = asyncio.create_task(self._watch(member))
            self._has_room(member)

    def _retire(self, member: Member) -> None:
        if member.watch is not None:
            member.watch.cancel()
        task = asyncio.create_task(member.backend.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    # ---- watching -------------------------------------------------------------------------------------------------

    async def _watch(self, member: Member) -> None:
        """Check a backend again and again: for ever, or where it is the only one until it has said what it serves."""
        while True:
            finding = await examine(member.backend, self._options.connect_timeout)
            if member.take(finding):
                message = "backend healthy" if member.healthy else "backend unhealthy"
                self._journal.note(message, member.name, problem=finding.problem or None)
            self.tell(member)
            self._has_room(member)
            if self.only is member and finding.models is not None:
                member.watch = None
                return
            await asyncio.sleep(self._options.health_interval * (1 + _JITTER * (2 * random() - 1)))

    def tell(self, member: Member) -> None:
        """Note down how a backend stands."""
        self._journal.state(member.name, member.healthy, member.breaker.state(self._clock()))

    # ---- who serves what ------------------------------------------------------------------------------------------

    def serving(self, model: str) -> list[Member]:
        """Those that serve a model: known to, or else those of which nobody knows. A single one serves any, unless the settings
        say what it serves. Raises `ApiError` 404."""
        members = list(self.by_name.values())
        if not model or (self.only is not None and not self.only.catalogue.restricted):
            return members
        answers = [(member.catalogue.serves(model), member) for member in members]
        found = [member for answer, member in answers if answer] or [member for answer, member in answers if answer is None]
        if not found and members:
            raise no_such_model(model, (member.catalogue for member in members))
        return found

    def likely(self, model: str) -> list[Member]:
        """The same; none where nobody serves it."""
        try:
            return self.serving(model)
        except ApiError:
            return []

    def own_name(self, model: str) -> str:
        """What the backends call a model: the first alias counts."""
        for member in self.by_name.values():
            if model in member.catalogue.aliases:
                return member.catalogue.aliases[model]
        return model

    def all_vllm(self, model: str) -> bool:
        """Whoever gets a request for this model is a vLLM."""
        if self.only is not None:
            return self.only.is_vllm
        return all(member.catalogue.owner(model) == "vllm" for member in self.likely(model))

    def all_report_usage(self, model: str) -> bool:
        """Whoever gets a request for this model has told the usage of one before."""
        return all(member.usage_reported for member in self.likely(model))

    def usage_reported(self, name: str) -> None:
        """A backend told the usage of a request."""
        if name in self.by_name:
            self.by_name[name].usage_reported = True


def _same_server(one: BackendSpec, other: BackendSpec) -> bool:
    """Nothing differs that connections depend on."""
    return (one.url, one.api_key, one.forward_authorization) == (other.url, other.api_key, other.forward_authorization)
