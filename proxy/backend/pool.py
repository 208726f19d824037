"""Several backends behind one door: which one gets a request, what happens when it fails, and how backends come and go.

A request goes to a backend that serves its model, is not being drained and is left in peace by its breaker; among those that
are healthy by key or by load (`affinity.py`); if none has room it waits in line (`queueing.py`). What fails before the client
has seen anything is tried again elsewhere, within `retries` and a budget (`retrying.py`).

With a single backend there is nothing to choose: it gets every request, whatever the model, with no health checks, breaker
or retries in between. Its answer is the best that can be had.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from random import random
from typing import Protocol, TypeVar

import aiohttp
from yarl import URL

from proxy.backend.member import Member
from proxy.backend.members import Members, PoolOptions
from proxy.backend.observer import Journal
from proxy.backend.policies.affinity import choose
from proxy.backend.policies.retry import GONE, Reason, RetryBudget, backoff, reason_of
from proxy.backend.policies.wait_queue import Line, LineFull, TooLate
from proxy.backend.served_models import BackendSpec, Route, renamed
from proxy.backend.transport.client import Body, ChatStream, Unreachable
from proxy.wire.errors import ApiError, server_error

#: Seconds after which a client that was turned away may ask again.
_ASK_AGAIN = 1.0
ANY = Route()
#: The headers of a request to a backend, given its name and its URL.
HeadersFor = Callable[[str, URL], Mapping[str, str]]


class _Answer(Protocol):
    @property
    def status(self) -> int: ...

    def close(self) -> None: ...


_A = TypeVar("_A", bound=_Answer)


class Pool:
    """Sends requests to the backends. Create it inside the running event loop, then `start` it."""

    def __init__(self, specs: Iterable[BackendSpec], options: PoolOptions, journal: Journal) -> None:
        self.members = Members(specs, options, journal, self._offer)
        self._retries = options.retries
        self._journal = journal
        self._clock = asyncio.get_running_loop().time
        self._line: Line[Member] = Line(options.queue_size, options.queue_timeout)
        self._budget = RetryBudget()
        self._sent = 0

    async def start(self) -> None:
        """Begin to watch the backends; waits a moment until all have said what they serve, so that no request is misled."""
        await self.members.start()

    async def close(self) -> None:
        """Close all connections."""
        await self.members.close()

    @property
    def chooses(self) -> bool:
        """There is more than one backend: a route's affinity is of use."""
        return self.members.only is None

    @property
    def queued(self) -> int:
        """How many requests wait for a backend with room."""
        return len(self._line)

    @property
    def any_well(self) -> bool:
        """At least one backend takes requests and is healthy."""
        return any(member.healthy and self._is_usable(member, ANY) for member in self.members.by_name.values())

    @property
    def reads_models(self) -> bool:
        """It matters which model a request names: for the choice, or because the backend has another name for it."""
        only = self.members.only
        return only is None or only.catalogue.restricted or bool(only.catalogue.aliases)

    # ---- requests -------------------------------------------------------------------------------------------------

    async def open_chat(self, body: bytes, headers: HeadersFor, route: Route) -> ChatStream:
        """Send a chat request; returns when the status line and headers are there, or those of the last attempt.

        `body` has the client's name of the model, that of `route`. `headers` is asked before each attempt. The stream gives the
        backend's place back: when it is read, or closed. Raises `ApiError`: 404 for a model that nobody serves, 429 and 503
        where there is no room, 502 to 504.
        """

        def send(member: Member) -> Awaitable[ChatStream]:
            name = member.catalogue.own_name(route.model)
            sent = headers(member.name, member.backend.url)
            return member.backend.open_chat(body if name == route.model else renamed(body, name), sent)

        member, chat = await self._reach(route, send)
        chat.backend = member.name
        chat.on_end = partial(self._ended, member, chat.status)
        return chat

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        route: Route = ANY,
        *,
        below_root: bool = False,
        query: str = "",
        body: Body = None,
        headers: Iterable[tuple[str, str]] = (),
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Any other request, its answer unread; see `Backend.request`. A `body` in bytes that names a model must name that of
        `route`. Raises as `open_chat` does."""
        headers = list(headers)

        def send(member: Member) -> Awaitable[aiohttp.ClientResponse]:
            name, sent = member.catalogue.own_name(route.model), body
            if name != route.model and isinstance(body, bytes):
                sent = renamed(body, name)
            below = member.backend.root if below_root else None
            return member.backend.request(method, path, below=below, query=query, body=sent, headers=headers)

        once = isinstance(body, aiohttp.StreamReader)  # cannot be sent again
        member, answer = await self._reach(route, send, once=once)
        try:
            async with answer:
                yield answer
        finally:
            self._ended(member, answer.status, False)

    def retry_route(self, route: Route, failed: str, reason: Reason = "broke") -> Route | None:
        """The route of another attempt without the backend that failed, or None: too many, nobody else, or no budget left.
        What a backend that is gone leaves behind needs no budget to move to one that is well.

        Only before the client has seen anything of the answer. The failed stream is to be closed first.
        """
        if len(route.avoid) >= self._retries or self.members.only is not None:
            return None
        other = replace(route, avoid=route.avoid | {failed})
        usable = [member for member in self.members.likely(route.model) if self._is_usable(member, other)]
        if reason == "busy":
            usable = [member for member in usable if member.has_room]
        moves = reason in GONE and any(member.healthy and member.breaker.spotless for member in usable)
        if not usable or not (moves or self._budget.take(self._clock())):
            return None
        self._journal.retried(failed, reason)
        return other

    # ---- choosing -------------------------------------------------------------------------------------------------

    async def _reach(self, route: Route, send: Callable[[Member], Awaitable[_A]], *, once: bool = False) -> tuple[Member, _A]:
        """Send to one backend after the other until one does its part; the caller has to give its place back."""
        self._budget.request()
        while True:
            member = await self._take(route)
            try:
                answer = await send(member)
            except Unreachable as error:
                if not error.body_may_be_why:  # else one client could fell all backends
                    self._failed(member)
                self._abandon(member)
                following = None if once else self.retry_route(route, member.name, error.reason)
                if following is None:
                    raise
            except BaseException:
                self._abandon(member)
                raise
            else:
                reason = reason_of(answer.status)
                if reason is None or reason == "busy":
                    self._answered(member)
                else:
                    self._failed(member)
                following = None if once or reason is None else self.retry_route(route, member.name, reason)
                if following is None:
                    return member, answer
                answer.close()
                self._give_back(member)
            route = following
            await asyncio.sleep(backoff(len(route.avoid), random()))

    async def _take(self, route: Route) -> Member:
        """A place at the backend that suits best. Raises `ApiError`."""
        only = self.members.only
        if only is not None and not route.avoid and only.has_room and not only.draining and not only.catalogue.restricted:
            return self._begin(only)
        serving = self.members.serving(route.model)
        usable = self._preferred(serving, route)
        free = [member for member in usable if member.has_room]
        if free:
            return self._begin(self.members.by_name[choose([member.load for member in free], route.affinity)])
        return await self._wait(route, frozenset(member.name for member in serving))

    async def _wait(self, route: Route, group: frozenset[str]) -> Member:
        came = self._clock()
        waiting = self._line.wait(group, partial(self._suits, route), self._abandon)
        self._journal.queued(len(self._line) + 1)
        try:
            member = await waiting
        except LineFull:
            self._journal.turned_away("full")
            message = "All backends are busy, and too many requests wait already. Please try again."
            kind, code = "rate_limit_error", "rate_limit_exceeded"
            raise ApiError(429, message, type=kind, code=code, retry_after=_ASK_AGAIN) from None
        except TooLate:
            self._journal.turned_away("late")
            error = server_error("All backends are busy, and none had room in time. Please try again.", 503)
            error.retry_after = _ASK_AGAIN
            raise error from None
        finally:
            self._journal.queued(len(self._line))
        self._journal.waited(self._clock() - came)
        return member

    def _preferred(self, serving: list[Member], route: Route) -> list[Member]:
        """Of those that serve a model those that may be asked now, healthy ones before others. Raises `ApiError` 503."""
        usable = [member for member in serving if self._is_usable(member, route)]
        if not usable:
            now = self._clock()
            waits = [member.breaker.opens_in(now) for member in serving if not member.draining]
            error = server_error("No backend that serves this model can take requests now. Please try again.", 503)
            error.retry_after = max(min(waits, default=_ASK_AGAIN), _ASK_AGAIN)
            raise error
        # Checks may be wrong about all at once, and then none is worse than another.
        return [member for member in usable if member.healthy] or usable

    def _is_usable(self, member: Member, route: Route) -> bool:
        if member.draining or member.name in route.avoid:
            return False
        return member is self.members.only or member.breaker.allows(self._clock())

    def _suits(self, route: Route, member: Member) -> bool:
        """Whether a backend with room will do for one that waits; things may have changed since it came."""
        return self._is_usable(member, route) and member in self.members.likely(route.model)

    # ---- places ---------------------------------------------------------------------------------------------------

    def _begin(self, member: Member) -> Member:
        self._sent += 1
        member.last = self._sent
        member.in_flight += 1
        member.breaker.begin(self._clock())
        self._journal.began(member.name)
        return member

    def _give_back(self, member: Member) -> None:
        member.in_flight -= 1
        self._journal.ended(member.name)
        if member in self.members.leaving:
            self.members.retire_idle(member)
        else:
            self._offer(member)

    def _abandon(self, member: Member) -> None:
        """Give a place back whose request had no answer yet; if it was a trial, the next one is."""
        member.breaker.abandoned()
        self._give_back(member)

    def _offer(self, member: Member) -> None:
        """Hand what room a backend has to those who wait."""
        while len(self._line) and member.has_room and self._line.offer(member):
            self._begin(member)

    def _ended(self, member: Member, status: int, broke: bool) -> None:
        """An answer is over: whole, dropped by us, or broken off."""
        if broke:
            self._failed(member)
        elif status < 500 and member.breaker.state(self._clock()) == "closed":
            member.breaker.succeeded()
        self._give_back(member)

    def _failed(self, member: Member) -> None:
        if member is self.members.only:
            member.healthy = False  # nobody else looks
            member.breaker.abandoned()
        else:
            before = member.breaker.state(self._clock())
            member.breaker.failed(self._clock())
            if before != "open" and member.breaker.state(self._clock()) == "open":
                self._journal.note("breaker open", member.name, seconds=round(member.breaker.opens_in(self._clock()), 1))
        self.members.tell(member)

    def _answered(self, member: Member) -> None:
        """A backend began to answer. That ends a trial, but not a row of failures: the answer may break off yet."""
        recovered = member.breaker.state(self._clock()) != "closed"
        if recovered:
            member.breaker.succeeded()
            self._journal.note("breaker closed", member.name)
        if member is self.members.only and not member.healthy:
            member.healthy = recovered = True
        if recovered:
            self.members.tell(member)
