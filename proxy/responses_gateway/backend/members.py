"""The backends of a pool by name, and how they come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from responses_gateway.backend.member import Member, MemberState
from responses_gateway.backend.pool_options import PoolObserver, PoolOptions
from responses_gateway.backend.served_models import BackendSpec, Discovered, ModelCatalogue, PoolSpec
from responses_gateway.ended_tasks import KeptTasks
from responses_gateway.wire.errors import ApiError


class Members:
    """The backends by name.

    `only` is the only one, if there is no choice, nor will be; `pools` are those whose members come and go; `leaving` are those
    that were removed, but are not idle yet; `aliases`: the client's name → the backends'. `on_change` is called when any came,
    left, or may be used in another way."""

    def __init__(self, specs: Iterable[BackendSpec], options: PoolOptions, observer: PoolObserver) -> None:
        self.by_name: dict[str, Member] = {}
        self.leaving: set[Member] = set()
        self.only: Member | None = None
        self.pools: dict[str, PoolSpec] = {}
        self.aliases: dict[str, str] = {}
        self.last_catalogues: dict[str, ModelCatalogue] = {}  # of pools by name, of the last member that left
        self.clock = asyncio.get_running_loop().time
        self.on_change: Callable[[], None] = lambda: None
        self._options = options
        self._observer = observer
        self._changed = asyncio.Event()  # set, and replaced by another one, at each change
        self._closing: KeptTasks[None] = KeptTasks()
        for spec in specs:
            self._join(spec)
        self._settle()

    async def close(self) -> None:
        """Close all connections."""
        for member in [*self.by_name.values(), *self.leaving]:
            self._retire(member)
        await asyncio.gather(*self._closing)

    def find(self, name: str) -> Member:
        """Return a backend by its name. Raises `ApiError` 404."""
        if name not in self.by_name:
            raise ApiError(404, f"There is no backend named `{name[:100]}`.", code="not_found")
        return self.by_name[name]

    async def first_of(self, pool: str) -> Member:
        """Return a member of a pool as soon as there is one."""
        while True:
            changed = self._changed
            for member in self.by_name.values():
                if member.spec.pool == pool and not member.drains:
                    return member
            await changed.wait()

    def counted(self, now: float) -> dict[PoolSpec, dict[MemberState, int]]:
        """Return how many members of each pool are in each state."""
        counts: dict[str, dict[MemberState, int]] = {name: {"ready": 0, "draining": 0, "unhealthy": 0} for name in self.pools}
        for member in self.by_name.values() if counts else ():
            if member.spec.pool in counts:
                counts[member.spec.pool][member.state(now)] += 1
        return {self.pools[name]: states for name, states in counts.items()}

    def report_state(self, member: Member) -> None:
        """Report the present state of a backend to the observer; those of pools are counted together."""
        if not member.spec.pool:
            self._observer.backend_state(member.name, member.healthy, member.breaker.state(self.clock()))

    # ---- adding and removing --------------------------------------------------------------------------------------

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
        self._observer.log(_drain_message(draining), name)
        self._settle()
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
        spec_by_name = {spec.name: spec for spec in specs}
        self.pools = {pool.name: pool for pool in pools}
        for name, member in list(self.by_name.items()):
            spec = spec_by_name.get(name)
            if spec is None or _connection(spec) != _connection(member.spec):
                self._leave(member)
            elif spec != member.spec:
                self._change(member, spec)
        for name, spec in spec_by_name.items():
            if name not in self.by_name:
                self._join(spec)
                self._observer.log("backend added", name, url=spec.url, **_origin(spec))
        self._settle()
        self.last_catalogues = {name: last for name, last in self.last_catalogues.items() if name in self.pools}

    def apply_discovered(self, discovered: Discovered) -> None:
        """Take what the sources of pools say. Other backends stay as they are."""
        others = [member.spec for member in self.by_name.values() if not member.spec.pool]
        self.apply([*others, *discovered.specs], discovered.pools)

    def retire_idle(self, member: Member) -> None:
        """Close the connections of a removed backend if it is idle."""
        if not member.in_flight:
            self._retire(member)
            self.leaving.discard(member)
            if member.name not in self.by_name and not member.spec.pool:
                self._observer.backend_removed(member.name)

    def _join(self, spec: BackendSpec) -> Member:
        member = self.by_name[spec.name] = Member(spec, self._options, self._observer)
        self.report_state(member)
        return member

    def _leave(self, member: Member) -> None:
        del self.by_name[member.name]
        self.leaving.add(member)
        member.left.set()
        if member.spec.pool:
            self.last_catalogues[member.spec.pool] = member.catalogue
        self._observer.log("backend removed", member.name, in_flight=member.in_flight, **_origin(member.spec))
        self.retire_idle(member)

    def _change(self, member: Member, spec: BackendSpec) -> None:
        before = member.spec
        member.update_spec(spec)
        if spec.draining != before.draining:
            self._observer.log(_drain_message(spec.draining), member.name, in_flight=member.in_flight, **_origin(spec))
        else:
            self._observer.log("backend changed", member.name)

    def _settle(self) -> None:
        """Find out, after a change, whether there is a choice, and tell of it."""
        alone = len(self.by_name) == 1 and not self.pools
        self.only = next(iter(self.by_name.values())) if alone else None
        aliases = (member.catalogue.aliases for member in reversed(self.by_name.values()))
        self.aliases = {alias: name for each in aliases for alias, name in each.items()}  # so that the first counts
        self._changed.set()
        self._changed = asyncio.Event()
        self.on_change()

    def _retire(self, member: Member) -> None:
        self._closing.begin(member.backend.close())


def _connection(spec: BackendSpec) -> tuple[object, ...]:
    """Return all that connections depend on."""
    return (spec.url, spec.api_key, spec.forward_authorization, spec.forward_provider_keys)


def _drain_message(draining: bool) -> str:
    return "backend draining" if draining else "backend accepts requests again"


def _origin(spec: BackendSpec) -> dict[str, str | None]:
    """Return where a backend comes from, for the log; nothing of those of the settings."""
    return {"source": spec.source, "pool": spec.pool, "pod": spec.pod or None} if spec.pool else {}
