"""Which backends serve a model, which one gets a request, which requests wait, and what the end of each says about its backend.

A request goes to a backend that serves its model, is not being drained and whose circuit breaker lets it through; among the
healthy ones by key or by load (`policies/affinity.py`); if none has room it waits (`policies/wait_queue.py`).

If the breakers of all are open, the least bad one gets one request at a time, and the others wait until one of them or a health
check succeeds. A single backend gets every request, without a breaker: its answer is the best that can be had."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from responses_gateway.backend.member import Member
from responses_gateway.backend.members import Members
from responses_gateway.backend.policies.affinity import choose, not_too_busy
from responses_gateway.backend.policies.alike import difference
from responses_gateway.backend.policies.retry import UNCONNECTED, UNREACHABLE, Reason
from responses_gateway.backend.policies.routers import OF_THE_URL, PAUSES
from responses_gateway.backend.policies.wait_queue import QueueFull, QueueTimeout, WaitQueue
from responses_gateway.backend.pool_options import PoolObserver, PoolOptions
from responses_gateway.backend.served_models import ModelCatalogue, Route, no_such_model
from responses_gateway.backend.transport.client import Failure
from responses_gateway.wire.errors import ApiError, server_error

_RETRY_AFTER = 1.0  # seconds after which a client that was refused may ask again


class Partners(NamedTuple):
    """The backends that may continue each other's answers to a model, and how often. `checkpoint`: what all of them list of the
    model; empty if they were not compared, because the settings vouch for them."""

    members: list[Member]
    attempts: int
    checkpoint: str = ""


NOBODY = Partners([], 0)


class ServedModels:
    """The models of all backends, by the names that clients use."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def serving(self, model: str) -> list[Member]:
        """Return the same as `candidates`. Raises `ApiError` 404 if there are none, and none can come."""
        serving = self.candidates(model)
        if not serving and self._members.by_name and not self.awaits(model):
            raise no_such_model(model, (member.catalogue for member in self._members.by_name.values()))
        return serving

    def candidates(self, model: str) -> list[Member]:
        """Return the backends that are known to serve a model, or else those of which that is not known. A single one serves
        any model, unless the settings say what it serves."""
        only = self._members.only
        members = list(self._members.by_name.values())
        if not model or (only is not None and not only.catalogue.restricted):
            return members
        answers = [(member.catalogue.serves(model), member) for member in members]
        return [member for answer, member in answers if answer] or [member for answer, member in answers if answer is None]

    def awaits(self, model: str) -> bool:
        """Tell whether a member that serves the model may come: there is a pool without members that could have one."""
        pools = self._members.pools
        if not pools:
            return False
        filled = {member.spec.pool for member in self._members.by_name.values()}
        empty = [pool for name, pool in pools.items() if name not in filled]
        last = self._members.last_catalogues  # of their last members; else the settings tell
        catalogues = (last.get(pool.name) or ModelCatalogue(pool.models, pool.aliases) for pool in empty)
        return any(catalogue.serves(model) is not False for catalogue in catalogues)

    def partners(self, model: str, least: int = 2) -> Partners:
        """Return which backends may continue each other's answers to a model: those that the settings vouch for, or else those
        about which they say nothing, if these are alike and there are `least` of them."""
        able = [member for member in self.candidates(model) if member.spec.continue_answers != 0]
        vouched = [member for member in able if member.vouched_for]
        if vouched:
            return _partners(vouched, model)
        checkpoints = [member.catalogue.checkpoint(model) for member in able]
        if len(able) < least or difference(checkpoints):
            return NOBODY
        return _partners(able, model, checkpoints[0] or "")

    def context_of(self, model: str) -> int | None:
        """Return how many tokens the context of a model has at every backend that may get it; None if one does not tell."""
        only = self._members.only
        if only is not None and not only.catalogue.restricted:
            return only.catalogue.context(model)
        lengths = [member.catalogue.context(model) for member in self.candidates(model)]
        known = [length for length in lengths if length is not None]
        return min(known) if known and len(known) == len(lengths) else None

    def all_vllm(self, model: str) -> bool:
        """Tell whether every backend that may get a request for this model is vLLM."""
        only = self._members.only
        if only is not None:
            return only.is_vllm
        return all(member.catalogue.owner(model) == "vllm" for member in self.candidates(model))

    def take_client_key(self, model: str) -> bool:
        """Tell whether a backend that may get a request for this model, now or later, gets the key of its client."""
        candidates = self.candidates(model)
        return not candidates or any(member.backend.takes_client_key for member in candidates)

    def all_report_usage(self, model: str) -> bool:
        """Tell whether every backend that may get a request for this model has reported the usage of one before."""
        return all(member.usage_reported for member in self.candidates(model))

    def usage_reported(self, backend: str) -> None:
        """Note that a backend reported the usage of a request."""
        if backend in self._members.by_name:
            self._members.by_name[backend].usage_reported = True


def _partners(members: list[Member], model: str, checkpoint: str = "") -> Partners:
    able = [member for member in members if member.continues(model)]
    attempts = (member.spec.continue_answers or (len(PAUSES) if member.router else 1) for member in able)
    return Partners(able, max(attempts, default=0), checkpoint)


class Places:
    """The places of requests at backends. Each that is taken is given back, by one of `give_back`, `abandon` and `ended`."""

    def __init__(self, members: Members, models: ServedModels, options: PoolOptions, observer: PoolObserver) -> None:
        self._members = members
        self._models = models
        self._observer = observer
        self._queue: WaitQueue[Member] = WaitQueue(options.queue_size, options.queue_timeout)
        self._sent = 0

    @property
    def queued(self) -> int:
        """How many requests wait for a free backend."""
        return len(self._queue.waiters)

    @property
    def any_healthy(self) -> bool:
        """Whether at least one backend is healthy and takes requests."""
        members = self._members.by_name.values()
        return any(member.healthy and not member.drains and self.is_allowed(member) for member in members)

    # ---- taking ---------------------------------------------------------------------------------------------------

    def take(self, route: Route) -> Member | None:
        """Take a place at the most suitable backend; None if the request has to `wait`. Raises `ApiError`."""
        only = self._members.only
        if only is not None and not route.avoid and only.has_room and not only.drains and not only.catalogue.restricted:
            return self._begin(only)
        serving = self._models.serving(route.model)
        free = [member for member in self._preferred(serving, route) if member.has_room]
        if not free:
            return None
        loads = [member.load for member in free]
        is_near = route.near != "" and route.near in not_too_busy(loads)
        return self._begin(self._members.by_name[route.near if is_near else choose(loads, route.affinity)])

    async def wait(self, route: Route) -> Member:
        """Wait for a place and take it. Raises `ApiError` if too many wait already, or if none is free in time."""
        came = self._members.clock()
        serving = self._models.serving(route.model)
        group = frozenset(member.name for member in serving)
        waiting = self._queue.wait(group, partial(self._suits, route), self.abandon)
        self._observer.queue_length_changed(len(self._queue.waiters) + 1)
        try:
            member = await waiting
        except QueueFull:
            self._observer.queue_rejected("full")
            raise self._refusal(429, "too many requests wait already", serving) from None
        except QueueTimeout:
            self._observer.queue_rejected("late")
            raise self._refusal(503, "none had room in time", serving) from None
        finally:
            self._observer.queue_length_changed(len(self._queue.waiters))
        self._observer.queue_wait_ended(self._members.clock() - came)
        return member

    def _refusal(self, status: int, why: str, serving: list[Member]) -> ApiError:
        """Return the error for a request that gets no place in the queue, or none in time."""
        if not any(self.is_allowed(member) for member in serving):
            return self._none_usable(serving)
        code = "rate_limit_exceeded" if status == 429 else "server_error"
        kind = "rate_limit_error" if status == 429 else "server_error"
        message = f"All backends are busy, and {why}. Please try again."
        return ApiError(status, message, type=kind, code=code, retry_after=_RETRY_AFTER)

    def _preferred(self, serving: list[Member], route: Route) -> list[Member]:
        """Return the backends that may get a request now: the healthy ones, or all if none is; those that are shutting down
        only if there are no others. If the breakers of all are open, the least bad one that may be tried, or none if the
        request has to wait. Raises `ApiError` 503."""
        taking = [member for member in serving if takes_requests(member, route)]
        if not taking:
            if self._models.awaits(route.model):
                return []  # a member may come in time
            raise self._none_usable(serving)
        taking = [member for member in taking if not member.spec.draining] or taking
        usable = [member for member in taking if self.is_allowed(member)]
        if not usable:
            now = self._members.clock()
            tryable = [member for member in taking if member.has_room and member.breaker.may_try(now)]
            return sorted(tryable, key=lambda member: (not member.healthy, member.breaker.opens_in(now)))[:1]
        # Checks may fail for all at once, because of the gateway's network: then none is worse than another.
        well = [member for member in usable if member.health == "well"]
        return well or [member for member in usable if member.healthy] or usable

    def is_allowed(self, member: Member) -> bool:
        """Tell whether the breaker lets a request through."""
        return member is self._members.only or member.breaker.allows(self._members.clock())

    def _suits(self, route: Route, member: Member) -> bool:
        """Tell whether a backend with room can take a waiting request; much may have changed since the request came."""
        serving = self._models.candidates(route.model)
        return member in serving and takes_requests(member, route) and member in self._preferred(serving, route)

    def _none_usable(self, serving: list[Member]) -> ApiError:
        now = self._members.clock()
        waits = [member.breaker.opens_in(now) for member in serving if not member.drains]
        error = server_error("No backend that serves this model can take requests now. Please try again.", 503)
        error.retry_after = max(min(waits, default=_RETRY_AFTER), _RETRY_AFTER)
        return error

    def _begin(self, member: Member) -> Member:
        self._sent += 1
        member.last = self._sent
        member.in_flight += 1
        if not member.breaker.no_recent_failures:
            member.breaker.begin(self._members.clock())
        self._observer.request_started(member.label)
        return member

    # ---- giving back ----------------------------------------------------------------------------------------------

    def give_back(self, member: Member) -> None:
        """Give back a place about which all was said."""
        member.in_flight -= 1
        self._observer.request_ended(member.label)
        if member in self._members.leaving:
            self._members.retire_idle(member)
        elif self._queue.waiters:
            self.offer(member)

    def abandon(self, member: Member) -> None:
        """Give back a place whose request had no answer yet. If it was the breaker's trial, the next request is."""
        member.breaker.abandoned()
        self.give_back(member)

    def ended(self, member: Member, status: int, failure: Failure | None) -> None:
        """Give back a place whose answer is over: complete, closed by us, or failed."""
        if failure is not None:
            self.failed(member, failure)
        elif status < 500 and not member.breaker.no_recent_failures and member.breaker.state(self._members.clock()) == "closed":
            member.breaker.succeeded()
        self.give_back(member)

    def offer(self, member: Member) -> None:
        """Give the free places of a backend to waiting requests."""
        while self._queue.waiters and member.has_room and self._queue.offer(member):
            self._begin(member)

    # ---- what requests say about backends -------------------------------------------------------------------------

    def answered(self, member: Member) -> None:
        """Note that a backend began to answer. That ends a trial, but not a row of failures: the answer may still break off."""
        if member.health == "suspect":
            member.health = "well"
        recovered = not member.breaker.no_recent_failures and member.breaker.state(self._members.clock()) != "closed"
        if recovered:
            member.breaker.succeeded()
            self._observer.log("breaker closed", member.name)
        if member.health == "unhealthy" and member is self._members.only:
            member.health = "well"
            recovered = True
        if recovered:
            self._members.report_state(member)
            self.offer(member)  # to those that waited for a backend that works

    def failed(self, member: Member, reason: Reason) -> None:
        """Note that a backend, or one of the servers behind it, has failed."""
        if member.router and reason not in OF_THE_URL:
            member.breaker.abandoned()  # the next request gets another server
        elif member is self._members.only:
            member.health = "unhealthy"  # there are no health checks
            member.breaker.abandoned()
        else:
            self._note_failure(member, reason)
        self._members.report_state(member)

    def _note_failure(self, member: Member, reason: Reason) -> None:
        now = self._members.clock()
        before = member.breaker.state(now)
        member.breaker.failed(now, unreachable=reason in UNREACHABLE)
        if before != "open" and member.breaker.state(now) == "open":
            self._observer.warn("breaker open", member.name, seconds=round(member.breaker.opens_in(now), 1))
            member.check_wanted.set()
        if reason in UNCONNECTED:
            if member.health == "well":
                member.health = "suspect"
            member.check_wanted.set()


def takes_requests(member: Member, route: Route) -> bool:
    """Tell whether a backend is not being drained, and was not tried already."""
    return not member.draining and member.name not in route.avoid
