"""Watches the backends: their health, whether they are routers, how busy they are, and which serve the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import random

from responses_gateway.backend.member import Member
from responses_gateway.backend.members import Members
from responses_gateway.backend.policies.alike import AlikeLog
from responses_gateway.backend.policies.health import asks_many, check_health
from responses_gateway.backend.policies.server_load import LoadReports
from responses_gateway.backend.pool_options import PoolObserver, PoolOptions
from responses_gateway.ended_tasks import keep_going, wait_at_most

_MOMENT = 2.0  # how long a request waits for what backends say of themselves, in seconds
# A health check comes up to this fraction of its interval earlier or later, so that gateways do not check in step.
_JITTER = 0.2
# Least seconds between two health checks, on average, where nothing is wrong, because there may be a thousand backends.
_SPACING = 0.02
# The longest interval in seconds of the checks of a backend that gets no requests, because it is needed as soon as it is back.
_RECHECK = 1.0
# Seconds until what more than a few backends list is compared, because many that come together are compared once.
_COMPARING = 0.5
_FEW = 32


class Watch:
    """Checks the members, once it was started. `has_room` is called with one that may take a waiting request.

    A single backend is checked only where its answers may be continued, or until it has listed its models if somebody wants
    them (`identify`): its answer is the best that can be had."""

    def __init__(
        self, members: Members, options: PoolOptions, observer: PoolObserver, has_room: Callable[[Member], None]
    ) -> None:
        self._members = members
        self._options = options
        self._observer = observer
        self._has_room = has_room
        self._started = False
        self._identifies = options.identify
        self._finds_routers = False
        self._checks: dict[Member, asyncio.Task[None]] = {}
        self.questions: dict[Member, asyncio.Task[None]] = {}  # whether it is a router
        self._load_reports: LoadReports | None = None
        # One of several workers logs for all.
        self._alike = AlikeLog(observer.log) if options.share.number % options.share.of == 0 else None
        self._comparing: asyncio.TimerHandle | None = None
        members.on_change = self._settle

    async def start(self) -> None:
        """Begin the health checks. Return when each of several backends, or the only one whose answers may be continued, was
        checked once, or `connect_timeout` is over."""
        self._started = True
        self._settle()
        await self.first_checks()

    async def first_checks(self) -> None:
        """Wait until each of several backends was checked once, or `connect_timeout` is over."""
        only = self._members.only
        if only is None or only.vouched_for:
            await self._all_checked(self._options.connect_timeout)

    async def _all_checked(self, within: float) -> None:
        members = self._members.by_name.values()
        waits = [asyncio.create_task(member.checked.wait()) for member in members if not member.checked.is_set()]
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=within)
        for wait in late:
            wait.cancel()

    def identify(self) -> None:
        """Ask a single backend what it serves, if that has not been done."""
        if not self._identifies:
            self._identifies = True
            self._settle()

    async def identified(self) -> None:
        """Return once each backend was asked what it serves, even a single one; requests wait no longer than a moment."""
        if not self._identifies:
            self.identify()
        for member in self._members.by_name.values():
            if not member.checked.is_set():
                await self._all_checked(_MOMENT)
                return

    def find_routers(self) -> None:
        """Ask each backend of which the settings do not say it whether it is a router, and those that come; no members of
        pools, which are many."""
        self._finds_routers = True
        self._settle()

    def found_router(self, member: Member) -> None:
        """Note that an answer of a backend shows that it is a router."""
        if member.router:
            return
        member.router = True
        self._observer.log("the backend is a router: the failure of one of its servers is not its own", member.name)
        self._settle()

    def close(self) -> None:
        """Stop watching."""
        if self._comparing is not None:
            self._comparing.cancel()
        if self._load_reports is not None:
            self._load_reports.close()
        for task in [*self._checks.values(), *self.questions.values()]:
            task.cancel()

    def _settle(self) -> None:
        """Watch those that came, and no more those that left."""
        self._compare_soon()
        if not self._started:
            return
        members = self._members
        for tasks in (self._checks, self.questions):
            for member in [member for member in tasks if member.left.is_set()]:
                tasks.pop(member).cancel()
        for member in members.by_name.values():
            if member not in self._checks and (members.only is None or self._identifies or member.vouched_for):
                self._checks[member] = self._kept_going(partial(self._check, member))
            if self._finds_routers and member not in self.questions and member.spec.router is None and not member.spec.pool:
                self.questions[member] = self._kept_going(partial(self._ask_whether_router, member))
            self._has_room(member)
        if self._options.load_interval and members.only is None and self._load_reports is None:
            self._load_reports = LoadReports(members.by_name.values, self._options.load_interval, self._observer.defect)

    def _kept_going(self, work: Callable[[], Coroutine[None, None, None]]) -> asyncio.Task[None]:
        return asyncio.create_task(keep_going(work, self._observer.defect))

    async def _check(self, member: Member) -> None:
        """Check a backend repeatedly; a single one until it has listed its models."""
        while True:
            report = await check_health(member.backend, self._options.connect_timeout)
            listed = member.catalogue.listed
            changed = member.update_health(report)
            if member.catalogue.listed != listed:
                self._compare_soon()
            if changed:
                tell = self._observer.log if member.healthy else self._observer.warn
                tell(f"backend {'healthy' if member.healthy else 'unhealthy'}", member.name, problem=report.problem or None)
            if member.breaker.check_ended(succeeded=not report.problem):
                self._observer.log("breaker closed", member.name, by="health check")
            self._members.report_state(member)
            self._has_room(member)
            if self._members.only is member and report.listed is not None:
                del self._checks[member]
                return
            interval = max(self._options.health_interval, len(self._members.by_name) * _SPACING)
            if report.problem or member.breaker.state(self._members.clock()) != "closed":
                interval = min(interval, _RECHECK)
            await wait_at_most(member.check_wanted, interval * (1 + _JITTER * (2 * random() - 1)))

    async def _ask_whether_router(self, member: Member) -> None:
        many = None
        while many is None:
            many = await asks_many(member.backend, self._options.connect_timeout)
            if many is None:
                await asyncio.sleep(self._options.health_interval)
        if many and member.spec.router is None:
            self.found_router(member)

    def _compare_soon(self) -> None:
        """Compare what the backends list; many that come together are compared once."""
        if len(self._members.by_name) <= _FEW:
            self._compare()
        elif self._alike is not None and self._comparing is None:
            self._comparing = asyncio.get_running_loop().call_later(_COMPARING, self._compare)

    def _compare(self) -> None:
        self._comparing = None
        if self._alike is None:
            return
        listed: dict[str, dict[str, str | None]] = {}
        for member in self._members.by_name.values():
            if member.spec.continue_answers is None:
                for model in member.catalogue.names():
                    listed.setdefault(model, {})[member.name] = member.catalogue.checkpoint(model)
        self._alike.update({model: checkpoints for model, checkpoints in listed.items() if any(checkpoints.values())})
