"""Several backends as one: a request is sent to one of them (`places.py`), and what happens when that fails.

What fails before the client has seen anything is tried again elsewhere, within `retries` and a budget (`policies/retry.py`). A
single backend gets every request, whatever the model, without health checks, breaker or retries: its answer is the best that
can be had."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from random import random
from types import MappingProxyType
from typing import Literal, TypeVar

import aiohttp
from msgspec.structs import replace
from yarl import URL

from responses_gateway.backend.member import ContinuationEndpoint, Member
from responses_gateway.backend.members import Members
from responses_gateway.backend.places import NOBODY, Partners, Places, ServedModels, takes_requests
from responses_gateway.backend.policies import routers
from responses_gateway.backend.policies.retry import UNCONNECTED, UNREACHABLE, Reason, RetryBudget, backoff, reason_of
from responses_gateway.backend.pool_options import PoolObserver, PoolOptions
from responses_gateway.backend.served_models import BackendSpec, Hints, Route, with_hints, with_model
from responses_gateway.backend.transport.aiohttp_internals import begins_with_error, whole_refusal
from responses_gateway.backend.transport.client import Body, ChatStream, Unreachable
from responses_gateway.backend.transport.optional_fields import REFUSALS, further_changes, refusals_of
from responses_gateway.backend.watch import Watch
from responses_gateway.wire.added_fields import ALWAYS_ADDED, HINT, AddedFields
from responses_gateway.wire.errors import ApiError, gateway_key_refused, read_error

# How many attempts that were never sent count as none where no backend is known to be well, because checks are late on a busy
# machine.
_UNSENT_ATTEMPTS = 16
ANY = Route()
# Returns the headers of a request to a backend, given its name and its URL.
HeadersFor = Callable[[str, URL], Mapping[str, str]]
# Returns the body of a request as one backend gets it, by its label in metrics and its name of the model.
Fitted = Callable[[str, str], bytes]
# Returns the body of a request that continues an answer: given the backend's name of the model, the length of its context if
# that is known, and the endpoint that takes the ids.
BodyFor = Callable[[str, int | None, ContinuationEndpoint | None], bytes]
# Why no backend can continue an answer.
NoRoute = Literal["no_backend", "no_budget"]
# Called after each attempt that brings no good answer: with the name of the backend, and a `Reason` or `status_` and a number;
# without a name if no backend could take the request.
OnFailure = Callable[[str, str], None]
_NO_KEYS: Mapping[str, str] = MappingProxyType({})
# Statuses of a path that a server does not have.
_NO_ENDPOINT = frozenset({404, 405, 501})

_A = TypeVar("_A", ChatStream, aiohttp.ClientResponse)


def _unnoted(_backend: str, _reason: str) -> None:
    """Do nothing."""


class Pool:
    """Sends requests to the backends. Create it inside the running event loop, then `start` it."""

    def __init__(self, specs: Iterable[BackendSpec], options: PoolOptions, observer: PoolObserver) -> None:
        self.members = Members(specs, options, observer)
        self.models = ServedModels(self.members)
        self.places = Places(self.members, self.models, options, observer)
        self.watch = Watch(self.members, options, observer, self.places.offer)
        self._retries = options.retries
        self._observer = observer
        self._budget = RetryBudget()
        self._continuation_budget = RetryBudget()
        self._tokens = routers.SessionTokens()

    async def start(self) -> None:
        """Begin the health checks, and wait a moment until all backends have listed their models."""
        await self.watch.start()

    async def close(self) -> None:
        """Close all connections."""
        self.watch.close()
        await self.members.close()

    @property
    def chooses(self) -> bool:
        """Whether there is more than one backend, or one with several servers, so that a route's affinity matters."""
        return self.members.only is None or self.members.only.router

    @property
    def needs_model(self) -> bool:
        """Whether the model of a request matters: for the choice, or because the backend has another name for it."""
        only = self.members.only
        return only is None or only.catalogue.restricted or bool(only.catalogue.aliases)

    # ---- requests -------------------------------------------------------------------------------------------------

    async def open_chat(
        self,
        body: bytes,
        headers: HeadersFor,
        route: Route,
        on_failure: OnFailure = _unnoted,
        added: AddedFields = ALWAYS_ADDED,
        fitted: Fitted | None = None,
    ) -> ChatStream:
        """Send a chat request and return the answer, or that of the last attempt, when its head is there.

        `body` has the client's name for the model, that of `route`. `headers` is called before each attempt. `added` are the
        fields of the body that are changed where a backend refuses them; `fitted` makes a body for each backend, which has its
        place back when the answer is read or closed. Raises `ApiError`: 404 for a model that no backend serves, 429 and 503 if
        none has room, 502 to 504."""

        def send(member: Member, again: int) -> Awaitable[ChatStream]:
            aliases = member.catalogue.aliases
            name = aliases.get(route.model, route.model) if aliases else route.model
            sent = headers(member.name, member.backend.url)
            fit = body if fitted is None else fitted(member.label, name)
            data = fit if name == route.model else with_model(fit, name)
            fields = added
            hints = route.hints_for(member.spec)
            if hints is not None:
                data, fields = with_hints(data, hints.fields, added)
                own = {header.lower() for header in sent}
                sent = {**sent, **{header: value for header, value in hints.headers.items() if header.lower() not in own}}
            if member.router:
                sent = routers.without_session(sent) if again else self._tokens.headers(member.name, route.affinity, sent)
            return member.backend.open_chat(data, sent, name, fields)

        member, chat = await self._reach(route, send, on_failure=on_failure)
        chat.backend = member.name
        if member.router or ((not member.answered or chat.status != 200) and self._is_router(member, chat)):
            self._note_token(member, route, chat)
        chat.on_end = partial(self.places.ended, member)
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
        client_keys: Mapping[str, str] = _NO_KEYS,
        on_failure: OnFailure = _unnoted,
    ) -> AsyncIterator[tuple[str, aiohttp.ClientResponse]]:
        """Send any other request and yield the backend's name and its answer, the body unread; see `Backend.request`. A `body`
        in bytes that names a model must name that of `route`. `client_keys` are headers for backends that get the client's key.
        Raises what `open_chat` raises, and 502 if the gateway's own key is refused."""
        headers = list(headers)
        with_keys = [*headers, *client_keys.items()]

        def send(member: Member, _again: int) -> Awaitable[aiohttp.ClientResponse]:
            name = member.catalogue.own_name(route.model)
            sent = with_model(body, name) if name != route.model and isinstance(body, bytes) else body
            below = member.backend.root if below_root else None
            own = with_keys if member.backend.takes_client_key else headers
            ask = partial(member.backend.request, method, path, below=below, query=query, headers=own)
            if not isinstance(sent, bytes):
                return ask(body=sent)
            return _ask_with(route.hints_for(member.spec), member, ask, name, sent)

        once = isinstance(body, aiohttp.StreamReader)  # cannot be sent again
        member, answer = await self._reach(route, send, once=once, on_failure=on_failure)
        try:
            async with answer:
                if self.refuses_gateway_key(member, answer.status):
                    raise gateway_key_refused(answer.status)
                yield member.name, answer
        finally:
            self.places.ended(member, answer.status, None)

    def own_name(self, model: str) -> str:
        """Return the backends' name for a client's name of a model: the first alias counts."""
        aliases = self.members.aliases
        return aliases.get(model, model) if aliases else model

    def served_as(self, backend: str, model: str) -> str:
        """Return the name that one backend has for it."""
        member = self.members.by_name.get(backend)
        return model if member is None else member.catalogue.own_name(model)

    # ---- continuations --------------------------------------------------------------------------------------------

    def partners(self, model: str, *, alone: bool = False, begun: bool = False) -> Partners:
        """Return which backends may continue each other's answers to a model. `alone`: where the settings vouch for it, the one
        that began an answer may do so, too. `begun`: an answer has begun, so one of those that are alike is enough."""
        only = self.members.only
        if only is not None and not (alone or only.router):
            return NOBODY
        one_will_do = begun or bool(self.members.pools)  # another one may come meanwhile
        partners = self.models.partners(model, least=1 if one_will_do else 2)
        alone = alone or bool(self.members.pools) or any(member.router for member in partners.members)
        return partners if len(partners.members) > 1 or alone else NOBODY

    def continuation_route(self, route: Route, failed: str, reason: Reason, checkpoint: str = "") -> Route | NoRoute:
        """Return the route of a request that continues an answer of the backend that failed, or why there is none. Answers
        of a backend that cannot be reached need no budget to move to a healthy one. `checkpoint`: what the backends had listed
        of the model when the answer began; empty if the settings vouch for them."""
        dead = self.members.by_name.get(failed)
        if dead is not None:
            dead.check_wanted.set()
        if dead is not None and dead.router:
            other = replace(route, again=route.again + 1)
        else:
            other = replace(route, avoid=route.avoid | {failed})
        partners = self.models.partners(route.model, least=1)
        able = [
            member
            for member in partners.members
            if takes_requests(member, other)
            and self.places.is_allowed(member)
            and (dead is None or dead.catalogue.own_name(route.model) == member.catalogue.own_name(route.model))
        ]
        if not able or (partners.checkpoint and partners.checkpoint != checkpoint):
            return "no_backend"
        avoid = frozenset(self.members.by_name) - {member.name for member in able}
        moves = reason in UNREACHABLE and any(_is_well(member) for member in able)
        if not (moves or self._continuation_budget.take(self.members.clock())):
            return "no_budget"
        return replace(other, avoid=other.avoid | avoid)

    def pause_before(self, route: Route) -> float:
        """Return the seconds to wait before an answer is continued through the URL of a router, where its server failed."""
        return routers.PAUSES[min(route.again, len(routers.PAUSES)) - 1] if route.again else 0.0

    async def open_continuation(
        self, body_for: BodyFor, headers: HeadersFor, route: Route, on_failure: OnFailure, added: AddedFields
    ) -> ChatStream:
        """Ask a backend to continue an answer. `body_for` makes each body; `added`: see `open_chat`. Raises `ApiError`."""
        endpoints: dict[str, ContinuationEndpoint | None] = {}

        def send(member: Member, _again: int) -> Awaitable[ChatStream]:
            name = member.catalogue.own_name(route.model)
            endpoint = endpoints[member.name] = member.continues_by
            body = body_for(name, member.catalogue.context(route.model), endpoint)
            own = headers(member.name, member.backend.url)
            sent = routers.without_session(own) if member.router else own
            if endpoint == "chat":
                return member.backend.open_chat(body, sent, name, added)
            return member.backend.open_completion(body, sent)

        self._continuation_budget.request()
        while True:
            member, chat = await self._reach(route, send, on_failure=on_failure)
            if endpoints[member.name] != "completions" or chat.status not in _NO_ENDPOINT:
                break
            member.continues_by = "chat"  # it has no completions, so the next attempt goes there
            chat.close()
            self.places.give_back(member)
        chat.backend = member.name
        if member.router:
            self._note_token(member, route, chat)
        chat.on_end = partial(self.places.ended, member)
        return chat

    def _is_router(self, member: Member, chat: ChatStream) -> bool:
        """Tell whether an answer shows that its backend is a router; the first good one and all refusals are looked at."""
        member.answered = member.answered or chat.status == 200
        is_router = member.spec.router is None and any(map(chat.header, routers.TELLING_HEADERS))
        if is_router:
            self.watch.found_router(member)
        return is_router

    def _note_token(self, member: Member, route: Route, chat: ChatStream) -> None:
        """Keep what a router tells about the server that it has chosen."""
        token = chat.header(routers.TOKEN_HEADER) if chat.status == 200 else ""
        if token:
            chat.pod = routers.pod_of(token)
            self._tokens.note(member.name, route.affinity, token)

    def ids_ignored(self, backend: str) -> None:
        """Note that a backend has not continued from the ids that it was given."""
        member = self.members.by_name.get(backend)
        if member is not None and member.continues_by == "chat":
            member.continues_by = None

    def note_refusal_in_stream(self, backend: str, status: int, route: Route) -> bool:
        """Judge a backend by a refusal in a stream as by any, and wait for the next one. Tell whether it may be asked again,
        since that was not so before: the error is read as a refusal, after which the request may be sent in another form."""
        member = self.members.by_name.get(backend)
        if member is None:
            return False
        known = member.backend.refuses_in_streams
        member.backend.refuses_in_streams = True
        reason = reason_of(status)
        if reason is not None and reason != "busy":
            self.places.failed(member, reason)
        return not known and (status in REFUSALS or (status == HINT.also and route.hints_for(member.spec) is not None))

    def retry_route(self, route: Route, failed: str, reason: Reason = "broke") -> Route | None:
        """Return the route of another attempt without the backend that failed, or None: too many attempts, no other backend,
        or no budget left. Requests of a backend that cannot be reached, or that is going, need no budget to move to a healthy
        one, nor to wait for it; those that were not even sent do not count as attempts, or a few of them where none is healthy.

        Call it only before the client has seen anything of the answer, and close the failed stream first."""
        member = self.members.by_name.get(failed)
        if member is not None and member.router and reason in routers.OF_ONE_SERVER:
            return self._same_url(route, member, reason)
        if self.members.only is not None:
            return None
        other = replace(route, avoid=route.avoid | {failed})
        remaining = [one for one in self.models.candidates(route.model) if takes_requests(one, other)]
        usable = [one for one in remaining if self.places.is_allowed(one)]
        if reason == "busy":
            usable = remaining = [one for one in usable if one.has_room]
        well = any(_is_well(one) for one in usable)
        # On a busy machine checks are late, and then nobody counts as well.
        some_left = bool(usable) and reason == "connect" and route.unsent < _UNSENT_ATTEMPTS
        unsent = reason in UNCONNECTED and (well or some_left)
        if not remaining or (route.tries >= self._retries and not unsent):
            return None
        moves = unsent or ((reason in UNREACHABLE or member is None or member.drains) and (not usable or well))
        if not (moves or self._budget.take(self.members.clock())):
            return None
        self._observer.request_retried(self._label(failed), reason)
        return replace(other, unsent=other.unsent + 1) if unsent else other

    def _same_url(self, route: Route, router: Member, reason: Reason) -> Route | None:
        """Return the route of another attempt through the URL of a router, where one of its servers failed."""
        if route.tries >= self._retries:
            return None
        if reason not in UNREACHABLE and not self._budget.take(self.members.clock()):
            return None
        self._observer.request_retried(router.label, reason)
        return replace(route, again=route.again + 1)

    def _label(self, name: str) -> str:
        """Return the name of a backend in metrics, that of one which has left, too."""
        members = (self.members.by_name.get(name), *self.members.leaving)
        return next((member.label for member in members if member is not None and member.name == name), name)

    def refuses_gateway_key(self, member: Member, status: int) -> bool:
        """Tell whether an answer refuses the gateway's own key, which is logged: no client can do anything about it."""
        refuses = status in (401, 403) and not member.backend.takes_client_key
        if refuses:
            self._observer.warn("backend refuses the gateway's key", member.name, status=status)
        return refuses

    def refusal_for_clients(self, chat: ChatStream, error: ApiError) -> ApiError:
        """Return the error for the refusal of a chat request: another one if it is about the gateway's own key, see above."""
        refusal = error if chat.has_client_key else error.of_gateway_key()
        if refusal is not error:
            self._observer.warn("backend refuses the gateway's key", chat.backend, status=chat.status)
        return refusal

    # ---- attempts -------------------------------------------------------------------------------------------------

    async def _reach(
        self,
        route: Route,
        send: Callable[[Member, int], Awaitable[_A]],
        *,
        once: bool = False,
        on_failure: OnFailure = _unnoted,
    ) -> tuple[Member, _A]:
        """Send to one backend after the other until one answers; the caller has to give its place back."""
        if self.chooses:
            self._budget.request()
        while True:
            try:
                member = self.places.take(route) or await self.places.wait(route)
            except ApiError:
                on_failure("", "unavailable")
                raise
            try:
                answer = await send(member, route.again)
            except BaseException as error:
                reason = self._note_unanswered(member, error, on_failure)
                following = None if once or reason is None else self.retry_route(route, member.name, reason)
                if following is None:
                    raise
            else:
                if answer.status < 400:
                    self.places.answered(member)
                    return member, answer
                reason = await self._note_refusal(member, answer, on_failure)
                stays = once or reason is None or (member.router and _tells_when(answer))
                following = None if stays or reason is None else self.retry_route(route, member.name, reason)
                if following is None:
                    return member, answer
                answer.close()
                self.places.give_back(member)
            route = following
            await asyncio.sleep(backoff(route.tries, random()))

    def _note_unanswered(self, member: Member, error: BaseException, on_failure: OnFailure) -> Reason | None:
        """Give back the place of a request that has no answer, and return the reason if its backend has failed."""
        if not isinstance(error, Unreachable):  # the client left, for example
            self.places.abandon(member)
            return None
        if not error.body_may_be_why:  # otherwise one client could open the breakers of all backends
            self.places.failed(member, error.reason)
        self.places.abandon(member)
        on_failure(member.name, error.reason)
        return error.reason

    async def _note_refusal(
        self, member: Member, answer: ChatStream | aiohttp.ClientResponse, on_failure: OnFailure
    ) -> Reason | None:
        """Return why a refused request is to be tried elsewhere, or None if it is not."""
        reason = reason_of(answer.status)
        if reason is not None and await self._is_overflow(member, answer):
            reason = None  # the prompt would fit no better elsewhere, and one client could open all breakers
        if reason is None or reason == "busy":
            self.places.answered(member)
        else:
            self.places.failed(member, reason)
        on_failure(member.name, f"status_{answer.status}")
        return reason

    async def _is_overflow(self, member: Member, refused: ChatStream | aiohttp.ClientResponse) -> bool:
        """Tell whether a refusal says, soon after its head, that the prompt does not fit."""
        try:
            body = await (whole_refusal(refused) if isinstance(refused, aiohttp.ClientResponse) else refused.early_refusal())
        except BaseException:  # the client left
            refused.close()
            self.places.abandon(member)
            raise
        return read_error(refused.status, body).code == "context_length_exceeded"


def _tells_when(answer: ChatStream | aiohttp.ClientResponse) -> bool:
    """Tell whether a router has refused a request itself, or says when to ask again."""
    header = answer.header if isinstance(answer, ChatStream) else lambda name: answer.headers.get(name, "")
    return bool(header(routers.REASON_HEADER) or header("retry-after"))


def _is_well(member: Member) -> bool:
    """Tell whether nothing speaks against a backend, as far as is known."""
    return member.healthy and (member.breaker.no_recent_failures or member.breaker.closed_by_check)


async def _ask_with(
    hints: Hints | None, member: Member, ask: Callable[..., Awaitable[aiohttp.ClientResponse]], model: str, body: bytes
) -> aiohttp.ClientResponse:
    """Send a request that is relayed, with hints. Where the server refuses these, it is sent again as it came."""
    if hints is None:
        return await ask(body=body)
    hinted, added = with_hints(body, hints.fields, {})
    known = member.backend.learned.get(model, {})
    if added.keys() <= known.keys():
        return await ask(body=body)
    answer = await ask(body=hinted)
    if answer.status not in refusals_of(added) and (answer.status != 200 or not await begins_with_error(answer)):
        return answer
    changes = further_changes(await whole_refusal(answer), hinted, known, added)
    if changes == known and "Content-Encoding" not in answer.headers:  # it is about something else, as far as can be read
        return answer
    answer.close()
    answer = await ask(body=body)
    if answer.status == 200:
        member.backend.learned.note(model, changes)
    return answer
