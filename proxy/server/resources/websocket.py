"""`GET /v1/responses` as a WebSocket: one connection for a session, one response after the other, one event per frame.

A client sends `{"type": "response.create", …}` with the body of a request; what it continues may be the last response of
this very connection, which needs no store. Errors before a response has begun are frames of type `error`.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from proxy.backend.served_models import Route
from proxy.server.access.cors import check_socket
from proxy.server.access.rate_limits import ACCOUNT, Claim
from proxy.server.access.tenants import tenant_of
from proxy.server.generation.compaction import AutomaticCompaction, compaction_due
from proxy.server.generation.context import NOTHING, Footing, find_footing, own_items
from proxy.server.generation.gateway import Gateway
from proxy.server.generation.generation import Generation, without_last
from proxy.server.generation.prepare import Prepared, backend_headers, prepare
from proxy.server.generation.records import kept, new_record, not_stored
from proxy.server.generation.request_log import Books
from proxy.server.generation.routes import route_of
from proxy.server.http.errors import REQUEST_ID
from proxy.server.http.websocket_sender import Outbox
from proxy.server.recording.recorder import Recording
from proxy.state import StoreUnavailable
from proxy.stream.writer import quoted
from proxy.telemetry import logs
from proxy.wire.errors import ApiError, invalid_request, server_error
from proxy.wire.requests import ResponsesRequest, parse_request, read_object

#: Seconds between two pings; a client that answers none is gone.
_PING = 30.0
#: How long a connection may last, in seconds (as OpenAI's).
_LIFETIME = 3600.0
#: How long the other side may take to say goodbye, in seconds.
_GOODBYE = 2.0
#: Messages that may wait for their turn.
_WAITING = 16

_NOTHING_SAID = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'

#: Messages larger than this are parsed in a thread, so that no other stream waits for them.
_LARGE = 256 * 1024
#: How many of these one connection may have here: the one that is answered, and the next.
_LARGE_WAITING = 2
#: A cancellation is no longer than this, in bytes.
_SHORT = 512

#: The open sockets of an application, to be closed when it stops.
SOCKETS: web.AppKey[set[web.WebSocketResponse]] = web.AppKey("sockets")


async def serve(gateway: Gateway, request: web.Request) -> web.WebSocketResponse:
    """Hold the conversation until either side ends it."""
    check_socket(request, gateway.settings)
    # Not compressed: zlib would cost more for a frame than the whole translation.
    limit = gateway.settings.max_body_bytes
    socket = web.WebSocketResponse(heartbeat=_PING, timeout=_GOODBYE, max_msg_size=limit, compress=False)
    await socket.prepare(request)
    sockets = request.app[SOCKETS]
    sockets.add(socket)
    try:
        await Session(gateway, request, socket).run()
    finally:
        sockets.discard(socket)
    return socket


async def close_all(app: web.Application) -> None:
    """The application stops: say so to all."""
    sockets = app[SOCKETS]
    going = (socket.close(code=WSCloseCode.GOING_AWAY, message=b"The gateway is shutting down.") for socket in tuple(sockets))
    await asyncio.gather(*going)


class Session:
    """One connection."""

    def __init__(self, gateway: Gateway, request: web.Request, socket: web.WebSocketResponse) -> None:
        self._gateway = gateway
        self._headers = request.headers
        self._request_id: str = request[REQUEST_ID]
        self._tenant = tenant_of(request)
        self._account = request.get(ACCOUNT)  # absent without limits
        self._socket = socket
        self._outbox = Outbox(socket, self._pause, self._resume)
        self._messages: asyncio.Queue[bytes] = asyncio.Queue(_WAITING)
        self._large = asyncio.Semaphore(_LARGE_WAITING)
        self._unanswered = 0  # messages
        self._cancelled = False  # the response that has not begun
        self._stream_id: str | None = None  # what the client calls the message that is being answered
        self._generation: Generation | None = None
        self._books_open: Books | None = None  # of a response that has not begun
        self._last: tuple[str, list[Any]] | None = None  # the last response if it was not stored, and the items up to it

    async def run(self) -> None:
        """Until the client leaves, or the connection has lasted too long."""
        tasks = [asyncio.create_task(work) for work in (self._read(), self._work(), self._outbox.run())]
        try:
            await asyncio.wait(tasks, timeout=_LIFETIME, return_when=asyncio.FIRST_COMPLETED)
            if not any(task.done() for task in tasks):
                message = f"A connection lasts {_LIFETIME / 60:g} minutes at most: open another one."
                await self._tell_last(ApiError(400, message, code="websocket_connection_limit_reached"))
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            await self._socket.close()
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, ConnectionError):
                raise result

    async def _read(self) -> None:
        """Take messages until the connection ends; a cancellation does not wait for its turn."""
        async for message in self._socket:
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return
            data = message.data.encode() if isinstance(message.data, str) else message.data
            if b"response.cancel" in data[:_SHORT] and (order := _cancellation(data)):
                self._cancel(order.get("response_id"))
            else:
                self._unanswered += 1
                if len(data) > _LARGE:
                    await self._large.acquire()
                await self._messages.put(data)

    async def _work(self) -> None:
        while True:
            data = await self._messages.get()
            recording = self._gateway.recording(self._headers, websocket=True)
            try:
                await self._answer(data, recording)
            except ApiError as error:
                if recording is not None:
                    recording.failed(error)
                await self._tell(error)
            except StoreUnavailable as error:
                logs.logger().error("store", extra=logs.fields(error=str(error)))
                await self._tell(server_error("The store of this gateway cannot be reached. Please try again.", 503))
            finally:
                if recording is not None:
                    recording.end(recording.outcome)
                self._unanswered, self._cancelled, self._stream_id = self._unanswered - 1, False, None
                if len(data) > _LARGE:
                    self._large.release()

    async def _answer(self, data: bytes, recording: Recording | None) -> None:
        if recording is not None:
            recording.asked(data)
        request = parse_message(data) if len(data) < _LARGE else await asyncio.to_thread(parse_message, data)
        self._stream_id = request.stream_id
        if recording is not None:
            recording.parsed()
        if self._gateway.draining:
            raise server_error("The gateway is shutting down. Please try again.", 503)
        claim = self._account.admit() if self._account is not None else None
        last, self._last = self._last, None  # what is continued without success is forgotten
        books = self._books(request, claim)
        self._books_open = books
        try:
            self._last = await self._respond(request, books, last, recording)
        except ApiError as error:
            if self._books_open is not None:
                books.refused(error)
            raise
        finally:
            if self._books_open is not None:
                books.close(None, asyncio.get_running_loop().time())

    async def _respond(
        self, request: ResponsesRequest, books: Books, last: tuple[str, list[Any]] | None, recording: Recording | None
    ) -> Any:
        """Answer one request; returns what the next one may build on, if it is not in the store."""
        gateway, store = self._gateway, self._gateway.store
        policy = gateway.parsers.policy(request.model)
        if last is not None and last[0] == request.previous_response_id:
            footing = Footing(history=last[1])
            policy = replace(policy, stores_responses=True)  # what is continued is here
            if store is None:
                request = request.model_copy(update={"store": False})
        else:
            footing = await find_footing(store, self._tenant, request) if store is not None else NOTHING
        plan, body, translator = await prepare(gateway, self._tenant, request, footing, policy, self._headers, recording)
        books.losses(plan.losses)
        compaction = await compaction_due(
            gateway, self._tenant, request, footing, policy, plan, self._headers, self._request_id
        )
        record = None
        if store is not None and request.store is not False:
            record = new_record(translator, request, footing, self._tenant)
            if footing.history and not footing.place:
                record = replace(record, input=[*footing.history, *record.input])
        if request.generate is False:
            events = translator.start() + translator.feed(_NOTHING_SAID)
            books.sent(events)
            outcome = books.close(translator, asyncio.get_running_loop().time())
            if recording is not None:
                recording.end(outcome)
            self._books_open = None
            begun, final = without_last(events, translator.status)
            self._put(begun)
        else:
            route = route_of(gateway, request, footing, may_go_on=True)
            final = await self._generate(Prepared(plan, body, translator), route, books, recording, compaction)
        if not await kept(store, record, translator):
            record, final = None, not_stored(final.decode()).encode()
        self._put(final)
        if record is not None or translator.status == "failed":
            return None
        return translator.response_id, [*footing.history, *own_items(request, footing), *map(json.loads, translator.output)]

    async def _generate(
        self,
        prepared: Prepared,
        route: Route,
        books: Books,
        recording: Recording | None,
        compaction: AutomaticCompaction | None,
    ) -> bytes:
        headers = backend_headers(self._gateway.settings, self._headers, self._request_id)
        plan, body, translator = prepared
        put = self._put
        with Generation(self._gateway, translator, body, headers, route, books, put, recording, compaction) as generation:
            generation.count_input(plan.body)
            self._generation, self._books_open = generation, None
            if self._cancelled:
                self._cancel()
            try:
                if compaction is None:  # else the client is told at once that its response has begun
                    await generation.open()
            except ApiError as error:
                if not translator.ended:
                    generation.refused(error)
                    raise
            try:
                return await generation.run()
            finally:
                self._generation = None

    def _put(self, events: bytes) -> None:
        """Whole events, each marked with the client's name of its message."""
        if self._stream_id is not None:
            events = events.replace(b"}\n\n", b',"stream_id":%b}\n\n' % quoted(self._stream_id))
        self._outbox.put(events)

    def _books(self, request: ResponsesRequest, claim: Claim | None) -> Books:
        books = Books(
            self._gateway.metrics,
            self._gateway.settings,
            self._request_id,
            asyncio.get_running_loop().time(),
            claim=claim,
            trace=self._gateway.trace("WS /v1/responses", self._headers),
        )
        books.request(request.model, streamed=True)
        return books

    def _cancel(self, response_id: object = None) -> None:
        """End the response that is being made, or the one that is about to be. One of another id is over already."""
        running = self._generation
        if response_id is not None and (running is None or running.translator.response_id != response_id):
            return
        if running is None:
            self._cancelled = self._unanswered > 0
        else:
            running.cancel()

    async def _tell(self, error: ApiError) -> None:
        frame = {"type": "error", "status": error.status, **error.body()}
        if self._stream_id is not None:
            frame["stream_id"] = self._stream_id
        with suppress(ConnectionError):
            await self._outbox.flush()
            await self._socket.send_str(json.dumps(frame))

    async def _tell_last(self, error: ApiError) -> None:
        """The same to a client that may not read any more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE):
                await self._tell(error)

    def _pause(self) -> None:
        if self._generation is not None:
            self._generation.pause()

    def _resume(self) -> None:
        if self._generation is not None:
            self._generation.resume()


def parse_message(data: bytes) -> ResponsesRequest:
    """The request in a message. Raises `ApiError` 400."""
    body = read_object(data)
    if body.pop("type", None) != "response.create":
        raise invalid_request('A message is {"type": "response.create", …}.', "type", "invalid_value")
    if body.get("background"):
        raise invalid_request("'background' is not possible over a WebSocket.", "background", "unsupported_parameter")
    return parse_request(body)


def _cancellation(data: bytes) -> dict[str, Any] | None:
    """The message, if it is one that ends a response."""
    try:
        order = read_object(data)
    except ApiError:
        return None
    return order if order.get("type") == "response.cancel" else None
