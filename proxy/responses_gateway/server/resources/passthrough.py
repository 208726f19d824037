"""Everything else under `/v1/` goes to the backend and back, byte for byte, streaming in both directions.

Of several backends one is taken that serves the `model` of a JSON body, which is read first; without a model, any."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import unquote

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict

from responses_gateway.backend.pool import ANY
from responses_gateway.backend.served_models import Route
from responses_gateway.backend.transport.aiohttp_internals import whole_refusal
from responses_gateway.request.who_asks import NAMES, NOBODY, Asker, asker_of
from responses_gateway.server.access.api_keys import Needs, check_model, named, needs, tenant_of
from responses_gateway.server.access.clients import RESERVATION
from responses_gateway.server.access.relayed_usage import UsageMeter
from responses_gateway.server.generation.request_log.facts import NO_GAPS, RequestFacts, StreamTimes, origin_of
from responses_gateway.server.generation.request_log.metrics import BACKEND_ERRORS
from responses_gateway.server.generation.request_log.request_log import account_of, client_name
from responses_gateway.server.generation.request_log.usage import UNKNOWN
from responses_gateway.server.generation.responses import Responses
from responses_gateway.server.http.exchange import EXCHANGE, read_body, too_large
from responses_gateway.server.http.loop_detection import LoopDetection
from responses_gateway.settings import Settings
from responses_gateway.settings.identity import PROXY_SECRET_HEADER
from responses_gateway.settings.keys import KEY_HEADERS
from responses_gateway.wire.errors import ApiError, chat_refused, server_error


class _Named(msgspec.Struct):
    """The part of a body that is read; the rest is skipped."""

    model: Annotated[str, msgspec.Meta(max_length=4096)] = ""  # as that of a response


class _Asking(msgspec.Struct):
    """The part that tells who asks; it is checked where that is read."""

    client_metadata: Any = None
    metadata: Any = None
    nvext: Any = None
    prompt_cache_key: Any = None


# Headers of one connection, not of the message (RFC 9110, 7.6.1), and those that each side sets for itself.
_OWN = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade", "host", "content-length", "expect", "x-session-token",
    *map(str.lower, KEY_HEADERS),
})  # fmt: skip
# A backend's headers that describe the body. Others are dropped: Codex acts on some, and some reveal secrets.
_PASSED_BACK = frozenset({"content-type", "content-encoding", "content-length", "content-disposition", "retry-after"})
# A chat request is read to see for which agent it asks if it is no larger, in bytes: an agent's history may be long, and the
# event loop waits. Its messages, by which titles are told, are read if it is small.
_LARGEST_READ = 2 * 1024 * 1024
_SMALL = 256 * 1024
# The one endpoint that every backend has, and how a server answers that has it elsewhere.
_CHAT = ("POST", "chat/completions")
_OTHER_PATH = frozenset({404, 405})
# Characters of a path that the window shows, because clients make them up.
_LONGEST_PATH = 80
_BROKEN = "The backend's answer broke off."
Ending: TypeAlias = Literal["complete", "client_left", "broken"]


class Passthrough:
    """Relays requests to the backends of `responses`, whose reports get what is used. `settings` are those at the start."""

    def __init__(self, responses: Responses, settings: Settings, loop_detection: LoopDetection) -> None:
        self._pool = responses.pool
        self._reports = responses.reports
        self._roots = responses.roots
        self._routes = responses.additions.relayed_routes
        self._settings = settings
        self._loop_detection = loop_detection

    @needs(Needs.KEY | Needs.RESERVATION)
    async def relay(self, request: web.Request) -> web.StreamResponse:
        """Relay any method on any path below `/v1/` that is not ours. Raise `HTTPNotFound` for a path that leads out of it."""
        return await self._relay(request, request.rel_url.raw_path.partition("/v1/")[2], below_root=False)

    @needs(Needs.KEY | Needs.RESERVATION)
    async def relay_unversioned(self, request: web.Request) -> web.StreamResponse:
        """Relay a path that backends have beside `/v1/`."""
        return await self._relay(request, request.rel_url.raw_path.removeprefix("/"), below_root=True)

    async def _relay(self, request: web.Request, path: str, *, below_root: bool) -> web.StreamResponse:
        _refuse_wrong_path(path, below_root=below_root)
        headers = self._headers(request)
        allows = request[EXCHANGE].allows
        names = (request.method, path) == _CHAT or not NAMES.isdisjoint(map(str.lower, request.headers))
        may_be_read = (request.content_length or 0) <= _LARGEST_READ
        began = asyncio.get_running_loop().time()
        body = await self._body(request, headers, read=allows is not None or (names and may_be_read))
        named = _route_of(body) if isinstance(body, bytes) else ANY
        if body is not None:  # a backend may use any model for a body that names none
            check_model(allows, named.model)
        asker = _asker(request, body) if names or isinstance(body, bytes) else NOBODY
        route = named if self._pool.needs_model or allows is not None else ANY
        facts = self._facts(request, asker, named.model, began)
        request[EXCHANGE].origin = origin_of(facts)
        for routed in self._routes if asker.session is not None else ():
            route = routed(route, facts, (request.method, path) == _CHAT)
        sending = self._pool.request(
            request.method,
            path,
            route,
            below_root=below_root,
            query=request.rel_url.raw_query_string,
            body=body,
            headers=headers.items(),
            client_keys=_client_keys(request) if self._settings.forwards_client_key else {},
        )
        self._reports.relaying[facts] = lambda: UNKNOWN
        try:
            async with sending as (facts.backend, answer):
                facts.times.first = asyncio.get_running_loop().time()
                meter = UsageMeter(is_stream=answer.content_type == "text/event-stream")
                self._reports.relaying[facts] = lambda: meter.usage
                await self._check_refusal((request.method, path), answer)
                count = partial(self._count, facts, answer.status, meter)
                return await _pass_back(request, answer, meter, count)
        except ApiError as error:
            raise _cause(request, error) from None
        finally:
            del self._reports.relaying[facts]

    def _headers(self, request: web.Request) -> CIMultiDict[str]:
        headers = _passed_on(request, self._settings)
        headers["Via"] = self._loop_detection.via(request)
        headers["X-Request-Id"] = request[EXCHANGE].request_id
        if RESERVATION in request:
            headers.popall("Accept-Encoding", None)  # tokens cannot be counted in a compressed answer
        return headers

    async def _check_refusal(self, endpoint: tuple[str, str], answer: aiohttp.ClientResponse) -> None:
        """Raise `ApiError` 502 if the URL of the backend is wrong: no client can do anything about it."""
        if endpoint != _CHAT or answer.status not in _OTHER_PATH:
            return
        body = await whole_refusal(answer)
        if answer.content.exception() is not None:
            raise server_error(_BROKEN)
        error = chat_refused(answer.status, body)
        if error.final and (body or answer.content.at_eof()):  # else the reason is in what was not looked at
            self._reports.metrics.counted[BACKEND_ERRORS, (error.type,)] += 1
            raise error.copy()

    def _facts(self, request: web.Request, asker: Asker, model: str, began: float) -> RequestFacts:
        """Return what is known of a request that is about to be sent; `model` is empty where the request was not read."""
        history = self._reports.history
        tenant = tenant_of(request)
        return RequestFacts(
            request[EXCHANGE].request_id,
            "" if history is None else history.new_id(),
            client_name(request.headers),
            account_of(request.get(RESERVATION)),
            quotes_backends=False,
            began=began,
            started=time.time(),
            times=StreamTimes(began, [*NO_GAPS]),
            model=model,
            tenant=tenant,
            asker=asker if asker.parent is None else self._roots.placed(tenant, asker),
            backend_called=began,
            relayed=UNKNOWN,
            path=request.path[:_LONGEST_PATH],
        )

    def _count(self, facts: RequestFacts, status: int, meter: UsageMeter, ending: Ending) -> None:
        """Count what an answer has used, if anything, and show it."""
        reports = self._reports
        facts.model = facts.model or meter.model or "unknown"
        facts.relayed = meter.usage
        facts.ended_at = asyncio.get_running_loop().time()
        facts.ended = time.time()
        facts.client_left = ending == "client_left"
        facts.error = server_error(_BROKEN) if ending == "broken" else None
        if meter.tokens:
            reports.usage.add(facts.account, facts.model, meter.usage)
        # An error, such as an answer that breaks off, is in the window already, with the other refusals.
        if reports.history is not None and status < 400 and ending != "broken":
            reports.history.add([facts])
        for reader in reports.readers if meter.tokens else ():
            reader([facts])

    async def _body(
        self, request: web.Request, headers: CIMultiDict[str], *, read: bool
    ) -> bytes | aiohttp.StreamReader | None:
        """Return the body: as a stream where its size is known and its model does not matter, else read, and so measured. It is
        read in any case if `read`."""
        if not request.can_read_body:
            return None
        size = request.content_length
        # Chat servers do not read compressed bodies.
        if size is None or headers.popall("Content-Encoding", None) is not None:
            return await read_body(request)
        if size > self._settings.max_body_bytes:
            raise too_large(self._settings.max_body_bytes)
        if read or (request.content_type == "application/json" and self._pool.needs_model):
            return await read_body(request)
        headers["Content-Length"] = str(size)
        return request.content


async def _pass_back(
    request: web.Request, answer: aiohttp.ClientResponse, meter: UsageMeter, count: Callable[[Ending], None]
) -> web.StreamResponse:
    """Send a backend's answer to the client as it comes; charge and `count` its tokens. Raise `ApiError` if it breaks off."""
    response = web.StreamResponse(status=answer.status)
    for name, value in answer.headers.items():
        if name.lower() in _PASSED_BACK:
            response.headers[name] = value
    await response.prepare(request)
    reservation = request.get(RESERVATION)
    readable = "Content-Encoding" not in answer.headers
    exchange = request[EXCHANGE]
    exchange.bytes_out = 0
    ending: Ending = "client_left"  # whatever else ends it below
    try:
        async for data in answer.content.iter_any():
            if readable:
                meter.feed(data)
            # A client that knows the length has all of it then, and one that reads a stream does not wait for more.
            if reservation is not None and (answer.content.at_eof() or data.rstrip().endswith(b"[DONE]")):
                await reservation.settle(meter.tokens)
            await response.write(data)
            exchange.bytes_out += len(data)
        ending = "complete"
        if reservation is not None:
            await reservation.settle(meter.tokens)
    except aiohttp.ClientError:
        # The head is out: the only way to tell that the body is broken is to break it.
        if request.transport is not None:
            ending = "broken"
            request.transport.abort()
        raise server_error(_BROKEN) from None
    finally:
        if reservation is not None:
            reservation.end(meter.tokens)
        count(ending)
    await response.write_eof()
    return response


def _refuse_wrong_path(path: str, *, below_root: bool) -> None:
    """Raise `HTTPNotFound` for a path that must not reach the backend."""
    segments = re.split(r"[/\\]", unquote(path))
    if any(segment in {".", ".."} for segment in segments):
        raise web.HTTPNotFound  # some servers would take it as a way out of /v1/
    if "" in segments and next(filter(None, segments), "") in ("models", "responses"):
        raise web.HTTPNotFound  # an extra slash must not lead past the gateway, to a backend's own Responses API and list
    if not below_root and segments[0] == "v1":
        raise web.HTTPNotFound  # a base URL with /v1 twice: the backend's own answer would not say so


def _cause(request: web.Request, error: ApiError) -> ApiError:
    """Return the client's own error if there was one: a body that is cut looks like a backend that closed the connection."""
    cause = request.content.exception()
    return cause if isinstance(cause, ApiError) else error


def _passed_on(request: web.Request, settings: Settings) -> CIMultiDict[str]:
    """Return the headers of the message, without those of the connection and those that name its key."""
    own = _OWN | {name.strip().lower() for name in request.headers.get("Connection", "").split(",")}
    headers = CIMultiDict((name, value) for name, value in request.headers.items() if name.lower() not in own)
    if settings.identifies_clients:
        proxy = settings.trusted_proxy
        from_proxy = () if proxy is None else (proxy.name_header, proxy.groups_header)
        for name in filter(None, (PROXY_SECRET_HEADER, *from_proxy)):
            headers.popall(name, None)
    return headers


def _client_keys(request: web.Request) -> dict[str, str]:
    """Return the headers with the client's key, without the rollout that is named behind it. Raise `ApiError` 400."""
    _, headers = named(request[EXCHANGE], request.headers)
    return {name: headers[name] for name in KEY_HEADERS if name in headers}


def _asker(request: web.Request, body: object) -> Asker:
    """Return the agent for which a request asks, as far as its headers and a body that was read say."""
    fields: object = None
    if isinstance(body, bytes):
        with suppress(ValueError, RecursionError):
            small = len(body) <= _SMALL
            fields = msgspec.json.decode(body) if small else msgspec.structs.asdict(msgspec.json.decode(body, type=_Asking))
    return asker_of(request.headers, fields if isinstance(fields, dict) else {})


def _route_of(body: bytes) -> Route:
    """Return the route to whoever serves the model; a body that names none may go anywhere."""
    try:
        return Route(msgspec.json.decode(body, type=_Named).model)
    except (msgspec.DecodeError, RecursionError):
        return ANY
