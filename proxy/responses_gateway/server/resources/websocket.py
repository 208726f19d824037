"""`GET /v1/responses` as a WebSocket: one connection for a session, one response after the other, one event per frame.

A client sends `{"type": "response.create", …}` with the body of a request; it may continue the last response of this very
connection, which needs no store. Errors before a response has begun are frames of type `error`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

from aiohttp import WSCloseCode, WSMsgType, web

from responses_gateway.request.parameters.background_options import long_window
from responses_gateway.server.access.api_keys import Needs, allowed_models, needs, tenant_of
from responses_gateway.server.access.clients import CLIENTS
from responses_gateway.server.access.cors import check_socket
from responses_gateway.server.access.identities import IDENTITIES
from responses_gateway.server.generation.background.runner import Background
from responses_gateway.server.generation.generation import shutting_down
from responses_gateway.server.generation.in_flight import State
from responses_gateway.server.generation.preparation.context import Caller, PreviousResponse
from responses_gateway.server.generation.responses import Creation, Responses
from responses_gateway.server.http.bodies import Bodies, Body
from responses_gateway.server.http.event_stream import WebSocketSender
from responses_gateway.server.http.exchange import EXCHANGE, in_thread
from responses_gateway.server.resources.socket_messages import error_frame, event_of, may_be_other, other_message
from responses_gateway.server.resources.socket_steering import SocketSteering
from responses_gateway.state import StoreUnavailable
from responses_gateway.telemetry import logs
from responses_gateway.wire.errors import ApiError, invalid_request, server_error
from responses_gateway.wire.requests import ResponsesRequest, parse_message

# Seconds between two pings; a client that does not answer one has left.
PING_INTERVAL = 30.0
# How long a connection may last, in seconds (as OpenAI's).
LIFETIME = 3600.0
# How long the other side may take to close the connection, in seconds.
CLOSE_TIMEOUT = 2.0
# Messages, and their bytes, that may wait for their turn before no more are read.
_WAITING = 16
_WAITING_BYTES = 256 * 1024
# Seconds after which a little is read even so, and for how long: a client that answered a ping is still there.
LONGEST_PAUSE = 10.0
_READ_ANYWAY = 0.01
# Seconds for which messages that are there already are answered before others get their turn.
SLICE = 0.005
# Larger messages are parsed in a thread, so that no other stream waits for them, in bytes.
_LARGE = 256 * 1024
_OPERATION = "WS /v1/responses"
_DISABLED = "WebSockets are disabled on this gateway: use POST /v1/responses."
_NO_UPGRADE = "GET /v1/responses opens a WebSocket, which needs an Upgrade header. To create a response, use POST."
# Of a backend that was to read a prompt and did not.
_EMPTY_ANSWER = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class WebSockets:
    """Holds the open sockets of an application."""

    def __init__(self, responses: Responses, background: Background | None, bodies: Bodies) -> None:
        self.responses = responses
        self.background = background
        self.bodies = bodies
        self._sockets: set[web.WebSocketResponse] = set()

    @needs(Needs.KEY | Needs.RESERVATION)
    async def upgrade(self, request: web.Request) -> web.StreamResponse:
        """Answer `GET` with a session, until either side ends it. Where there is none, a 426 makes Codex continue over HTTP
        without a warning."""
        settings = self.responses.live.current.settings
        if not settings.websocket:
            raise ApiError(426, _DISABLED, code="websocket_not_supported")
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise ApiError(426, _NO_UPGRADE, code="upgrade_required")
        check_socket(request, settings)
        # Not compressed: zlib would cost more for a frame than the whole translation.
        socket = web.WebSocketResponse(
            heartbeat=PING_INTERVAL,
            timeout=CLOSE_TIMEOUT,
            max_msg_size=settings.max_body_bytes,
            compress=False,
            decode_text=False,
        )
        await socket.prepare(request)
        self._sockets.add(socket)
        try:
            await _Session(self, request, socket).run()
        finally:
            self._sockets.discard(socket)
        return socket

    async def close_all(self, _app: web.Application) -> None:
        """Close all sockets, because the application stops."""
        message = b"The gateway is shutting down."
        await asyncio.gather(*(socket.close(code=WSCloseCode.GOING_AWAY, message=message) for socket in self._sockets))


@dataclass(slots=True, eq=False)
class _Message:
    """A message that waits for its turn, or the error that answers it. `body` counts it until it is answered."""

    data: bytes
    body: Body
    refusal: ApiError | None = None

    def take(self) -> bytes:
        """Return the data, which is not kept here while the message is answered. Raise `ApiError`."""
        if self.refusal is not None:
            raise self.refusal
        data = self.data
        self.data = b""
        return data


class _Inbox:
    """The messages of a connection that wait for their turn. While they are many, or large, nothing more is read."""

    def __init__(self, bodies: Bodies, transport: asyncio.Transport | None) -> None:
        self._bodies = bodies
        self._transport = transport
        self._messages: asyncio.Queue[_Message] = asyncio.Queue()
        self._bytes = 0
        self._turn = asyncio.Event()  # one of them was taken, or answered
        self.unanswered = 0  # messages, also those that were taken

    def accept(self, data: bytes) -> None:
        """Let a message wait."""
        message = _Message(data, self._bodies.open())
        try:
            message.body.add(len(data))
        except ApiError as error:
            message.refusal = error.copy()
            message.data = b""
        self.unanswered += 1
        self._bytes += len(message.data)
        self._messages.put_nowait(message)

    async def next(self) -> _Message:
        """Wait for a message, and return it."""
        message = await self._messages.get()
        self._bytes -= len(message.data)
        self._turn.set()
        return message

    def answered(self) -> None:
        """Note that a message was answered."""
        self.unanswered -= 1
        self._turn.set()

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more is to be read."""
        return self._bytes > _WAITING_BYTES or self._messages.qsize() > _WAITING

    async def hold_back(self) -> None:
        """Read nothing more until a message is taken, or so long that it is time to look for pongs."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError
        self._turn.clear()
        transport.pause_reading()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_PAUSE):
                    await self._turn.wait()
                    return
        finally:
            if not transport.is_closing():
                transport.resume_reading()
        await asyncio.sleep(_READ_ANYWAY)

    def forget(self) -> None:
        """Count the messages no longer that will not be answered."""
        while not self._messages.empty():
            self._messages.get_nowait().body.close()


class _Session:
    """One connection."""

    def __init__(self, parts: WebSockets, request: web.Request, socket: web.WebSocketResponse) -> None:
        self._responses = parts.responses
        self._background = parts.background
        self._headers = request.headers
        self._request_id: str = request[EXCHANGE].request_id
        self._tenant = tenant_of(request)
        self._request = request
        self._clients = request.app.get(CLIENTS)  # absent without limits and keys
        self._identities = request.app.get(IDENTITIES)  # absent where clients need not say who they are
        self._socket = socket
        self._transport = request.transport
        self._outbox = WebSocketSender(socket, request.transport, self._pause, self._resume)
        self._inbox = _Inbox(parts.bodies, request.transport)
        self._clock = asyncio.get_running_loop().time
        self._gives_way_at = 0.0
        self._cancelled = False  # the response that has not begun yet
        self._stream_id: str | None = None  # the client's name of the message that is being answered
        self._creation: Creation | None = None  # of the response that has begun
        self._previous: PreviousResponse | None = None  # the last response, if it was not stored
        self._steering = SocketSteering(self._outbox, parts.bodies)

    async def run(self) -> None:
        """Work until the client leaves, or the connection has lasted too long."""
        tasks = [asyncio.create_task(work) for work in (self._read(), self._work(), self._outbox.run())]
        try:
            await asyncio.wait(tasks, timeout=LIFETIME, return_when=asyncio.FIRST_COMPLETED)
            if not any(task.done() for task in tasks):
                message = f"A connection lasts {LIFETIME / 60:g} minutes at most: open a new one."
                with suppress(TimeoutError):  # the client may not read any more
                    async with asyncio.timeout(CLOSE_TIMEOUT):
                        await self._send_error(ApiError(400, message, code="websocket_connection_limit_reached"))
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self._inbox.forget()
            self._steering.close()
            self._outbox.close()
            await self._socket.close()
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, ConnectionError):
                raise result

    async def _read(self) -> None:
        """Take messages until the connection ends; a cancellation does not wait for its turn."""
        async for message in self._socket:
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return
            data: bytes = message.data
            del message
            looked_at = may_be_other(data) or self._inbox.unanswered > 0  # one that cannot be read does not wait behind others
            if not (looked_at and await self._answered_at_once(data)):
                self._inbox.accept(data)
            del data
            while self._inbox.is_full or self._steering.unsent_bytes > _WAITING_BYTES:
                await self._inbox.hold_back()
            await self._give_way()

    async def _answered_at_once(self, data: bytes) -> bool:
        """Answer a message that does not ask for a response. Return False for one that does, and for one that cannot be read
        where no other is before it."""
        large = len(data) >= _LARGE
        message = await in_thread(self._request, other_message, data) if large else other_message(data)
        if message is None or (isinstance(message, ApiError) and not self._inbox.unanswered):
            return False
        if isinstance(message, ApiError):
            self._outbox.write(event_of(error_frame(message)))
        elif message.get("type") == "response.cancel":
            self._cancel(message.get("response_id"))
            return True
        else:
            self._steering.answer(message, len(data), self._creation)
        if self._outbox.slow:  # a client that does not read is not read either
            await self._outbox.flush()
        return True

    async def _give_way(self) -> None:
        """Let others have their turn: of a read with many messages each comes without a pause."""
        now = self._clock()
        if now >= self._gives_way_at:
            await asyncio.sleep(0)
            self._gives_way_at = self._clock() + SLICE

    async def _work(self) -> None:
        while True:
            message = await self._inbox.next()
            try:
                await self._answer(message)
            finally:
                message.body.close()
            await self._continue_steered()

    async def _answer(self, message: _Message) -> None:
        previous = self._previous
        error = await self._create(message)
        if error is not None:
            self._steering.not_applied()
            await self._send_error(error)
        if previous is not None and self._previous is not previous:  # nothing else has it
            self._steering.forget(previous.response_id)
        self._answered()

    async def _continue_steered(self) -> None:
        """Continue steered responses, before any other message is answered."""
        while (request := self._steering.successor()) is not None:
            self._inbox.unanswered += 1
            previous = self._previous
            error = await self._create(request)
            if error is not None:
                self._steering.not_applied(error)
                self._previous = previous  # the client may continue it by itself
            self._answered()

    def _answered(self) -> None:
        self._inbox.answered()
        self._cancelled = False
        self._stream_id = None

    async def _create(self, asked: _Message | ResponsesRequest) -> ApiError | None:
        """Make a response; return the error of one that could not begin."""
        try:
            await self._make(asked)
        except ApiError as error:
            return error
        except StoreUnavailable as error:
            logs.logger().error("store", extra=logs.fields(error=str(error)))
            return server_error(error.for_clients, 503)
        return None

    async def _make(self, asked: _Message | ResponsesRequest) -> None:
        settings = self._responses.live.current.settings
        recorder = self._responses.recorder
        recording = None if recorder is None else recorder.begin(self._headers, settings, websocket=True)
        try:
            data = asked.take() if isinstance(asked, _Message) else _as_message(asked)
            received = None if recording is None else recording.received
            if received is not None:
                received(data)
            request = await self._read_request(data, received) if isinstance(asked, _Message) else asked
            del data
            self._stream_id = request.stream_id
            if recording is not None:
                recording.parsed()
            if request.background_options is not None and long_window(request) is not None:
                refusal = "Over a WebSocket nothing waits: use POST /v1/responses for a window of hours."
                raise invalid_request(refusal, "background_options.completion_window", "unsupported_value")
            if self._responses.in_flight.state >= State.DRAINING:
                raise shutting_down()
            if self._identities is not None:  # what it came with may have been revoked, or have expired
                await self._identities.identify(self._request)
            limits = self._clients.of(self._request) if self._clients is not None else None
            reservation = await limits.reserve_in_fleet() if limits is not None else None
        except ApiError as error:
            if recording is not None:
                recording.failed(error)
                recording.end("rejected")
            raise
        allows = allowed_models(self._request[EXCHANGE], settings) if self._identities is not None else None
        caller = Caller(
            self._tenant, self._request_id, self._headers, _OPERATION, reservation, over_websocket=True, allows=allows
        )
        previous = self._previous
        self._previous = None  # a response that is continued without success is forgotten
        creation = await self._responses.create(request, caller, previous, recording=recording, drop_client=self._drop)
        with creation:
            self._previous = await self._respond(creation)

    async def _read_request(self, data: bytes, received: Callable[[bytes], None] | None) -> ResponsesRequest:
        """Return the request in a message, with the steers that wait for it: it is recorded with them. Raise `ApiError`."""
        large = len(data) >= _LARGE
        request = await in_thread(self._request, parse_message, data) if large else parse_message(data)
        steered = self._steering.with_input(request)
        if received is not None and steered is not request:
            received(_as_message(steered))
        return steered

    async def _respond(self, creation: Creation) -> PreviousResponse | None:
        """Answer one request; return what the next one may build on, if it is not in the store."""
        self._creation = creation
        try:
            async with AsyncExitStack() as stack:
                refused = await self._open(creation)
                if self._steering.applies and self._background is not None:
                    await stack.enter_async_context(self._background.keep(creation))
                self._steering.begin(creation)
                if refused:
                    translator = creation.translator
                    self._outbox.write(translator.start() + translator.feed(_EMPTY_ANSWER))
                stored = await creation.finish()
        finally:
            self._creation = None
        self._outbox.write(creation.terminal(stored=stored))
        self._steering.end(creation)
        return creation.continued_by(stored=stored)

    async def _open(self, creation: Creation) -> bool:
        """Wait for the backend, so that its refusal is an error frame. Return True if it refused to read a prompt whose answer
        nobody wants. Raise `ApiError`."""
        generation = creation.start(self._outbox)
        translator = creation.translator
        if self._cancelled:
            creation.cancel()
        if creation.prepared.compaction is not None:  # then the client gets `response.created` at once
            return False
        try:
            await generation.open()
        except ApiError:
            if translator.options.discarded and translator.status == "queued":
                # Templates refuse prompts without a user message; the client continues this response with one.
                return True
            if not translator.ended:
                raise
        return False

    def _cancel(self, response_id: object = None) -> None:
        """End the response that is being made, or the next one. One with another id has ended already."""
        running = self._creation
        if response_id is not None and (running is None or running.translator.response_id != response_id):
            return
        if running is None:
            self._cancelled = self._inbox.unanswered > 0
        else:
            running.cancel()

    async def _send_error(self, error: ApiError) -> None:
        with suppress(ConnectionError):
            await self._outbox.flush()
            await self._socket.send_str(json.dumps(error_frame(error, self._stream_id)))

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _pause(self) -> None:
        if self._creation is not None:
            self._creation.pause()

    def _resume(self) -> None:
        if self._creation is not None:
            self._creation.resume()


def _as_message(request: ResponsesRequest) -> bytes:
    """Return the message that a client would have sent for a request."""
    return json.dumps({"type": "response.create", **request.model_dump(exclude_none=True)}).encode()
