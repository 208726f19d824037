"""`GET /v1/responses` as a WebSocket: one connection for a session, one response after the other in each lane, one event per
frame.

A client sends `{"type": "response.create", …}` with the body of a request; it may continue the last responses of this very
connection, which needs no store. Errors before a response has begun are frames of type `error`."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

from aiohttp import WSCloseCode, WSMsgType, web

from responses_gateway.server.access.api_keys import Needs, needs
from responses_gateway.server.access.cors import check_socket
from responses_gateway.server.generation.background.runner import Background
from responses_gateway.server.generation.responses import Responses
from responses_gateway.server.http.event_stream import WebSocketSender
from responses_gateway.server.http.exchange import EXCHANGE, Bodies, in_thread
from responses_gateway.server.resources.socket_lanes import Lane, Lanes, WaitingMessage
from responses_gateway.server.resources.socket_messages import (
    error_frame,
    event_of,
    is_steer,
    lane_in,
    may_be_other,
    may_name_lane,
    other_message,
    unknown_message,
)
from responses_gateway.server.resources.socket_responses import SocketResponses
from responses_gateway.state import StoreUnavailable
from responses_gateway.telemetry import logs
from responses_gateway.wire.errors import ApiError, forget_frames, server_error
from responses_gateway.wire.requests import LARGE, ResponsesRequest

PING_INTERVAL = 30.0  # seconds between two pings; a client that does not answer one has left
LIFETIME = 3600.0  # how long a connection may last, in seconds (as OpenAI's)
CLOSE_TIMEOUT = 2.0  # how long the other side may take to close the connection, in seconds
# Bytes of messages whose answer waits behind the end of a response before no more are read.
_UNSENT_BYTES = 256 * 1024
# Seconds after which a little is read even so, and for how long: a client that answered a ping is still there.
LONGEST_PAUSE = 10.0
_READ_ANYWAY = 0.01
# Seconds for which messages that are there already are answered before others get their turn.
SLICE = 0.005
_DISABLED = "WebSockets are disabled on this gateway: use POST /v1/responses."
_NO_UPGRADE = "GET /v1/responses opens a WebSocket, which needs an Upgrade header. To create a response, use POST."


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
        session = _Session(self, request, socket)  # which may refuse the request: not once it is upgraded
        await socket.prepare(request)
        request[EXCHANGE].upgraded = True
        self._sockets.add(socket)
        try:
            await session.run()
        finally:
            self._sockets.discard(socket)
        return socket

    async def close_all(self, _app: web.Application) -> None:
        """Close all sockets, because the application stops."""
        message = b"The gateway is shutting down."
        await asyncio.gather(*(socket.close(code=WSCloseCode.GOING_AWAY, message=message) for socket in self._sockets))


class _Session:
    """One connection."""

    def __init__(self, parts: WebSockets, request: web.Request, socket: web.WebSocketResponse) -> None:
        self._request = request
        self._socket = socket
        self._outbox = WebSocketSender(socket, request.transport, self._pause, self._resume)
        self._lanes = Lanes(parts.bodies, self._outbox)
        self._responses = SocketResponses(parts.responses, parts.background, request, self._outbox, self._lanes)
        loop = asyncio.get_running_loop()
        self._clock = loop.time
        self._gives_way_at = 0.0
        self._workers: dict[str | None, asyncio.Task[None]] = {}  # of the lanes, by name
        self._broken: asyncio.Future[None] = loop.create_future()  # one of them has ended

    async def run(self) -> None:
        """Work until the client leaves, or the connection has lasted too long."""
        tasks = [asyncio.create_task(work) for work in (self._read(), self._outbox.run())]
        try:
            done, _ = await asyncio.wait([*tasks, self._broken], timeout=LIFETIME, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                message = f"A connection lasts {LIFETIME / 60:g} minutes at most: open a new one."
                with suppress(TimeoutError):  # the client may not read any more
                    async with asyncio.timeout(CLOSE_TIMEOUT):
                        await self._send_last(ApiError(400, message, code="websocket_connection_limit_reached"))
        finally:
            tasks += self._workers.values()
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self._workers.clear()  # their errors have frames that refer to this
            self._lanes.close()
            self._outbox.close()
            await self._socket.close()
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, ConnectionError):
                raise result

    # ---- what the client sends -----------------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Take messages until the connection ends; a cancellation does not wait for its turn."""
        async for message in self._socket:
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return
            data: bytes = message.data
            del message
            looked_at = may_be_other(data) or self._lanes.unanswered  # one that cannot be read does not wait behind others
            if not (looked_at and await self._answered_at_once(data)):
                await self._let_wait(data)
            del data
            while self._lanes.is_full or self._lanes.unsent_bytes > _UNSENT_BYTES:
                await self._hold_back()
            await self._give_way()

    async def _answered_at_once(self, data: bytes) -> bool:
        """Answer a message that does not ask for a response. Return False for one that does, and for one that cannot be read
        where no other is before it."""
        large = len(data) >= LARGE
        message = await in_thread(self._request, other_message, data) if large else other_message(data)
        if message is None or (isinstance(message, ApiError) and not self._lanes.unanswered):
            return False
        if isinstance(message, ApiError):
            self._responses.log_refusal(message)
            await self._refuse(message)
        elif message.get("type") == "response.cancel":
            self._lanes.cancel(message)
        elif is_steer(message):
            self._lanes.steer(message, len(data))
            await self._wait_for_client()
        else:
            self._outbox.write(unknown_message(message))
            await self._wait_for_client()
        return True

    async def _let_wait(self, data: bytes) -> None:
        """Let a request wait in its lane, or refuse it where it cannot."""
        name: object = None
        if may_name_lane(data):
            name = await in_thread(self._request, lane_in, data) if len(data) >= LARGE else lane_in(data)
        try:
            lane = self._lanes.lane(name)
        except ApiError as error:
            self._responses.log_refusal(error)
            await self._refuse(error, None if error.code == "invalid_stream_id" else name)
            return
        lane.accept(data)
        if lane.name not in self._workers:
            worker = asyncio.create_task(self._serve(lane))
            worker.add_done_callback(self._worker_ended)
            self._workers[lane.name] = worker

    async def _hold_back(self) -> None:
        """Read nothing more until a message is taken, or so long that it is time to look for pongs."""
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError
        turn = self._lanes.turn
        turn.clear()
        transport.pause_reading()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_PAUSE):
                    await turn.wait()
                    return
        finally:
            if not transport.is_closing():
                transport.resume_reading()
        await asyncio.sleep(_READ_ANYWAY)

    async def _give_way(self) -> None:
        """Let others have their turn: of a read with many messages each comes without a pause."""
        now = self._clock()
        if now >= self._gives_way_at:
            await asyncio.sleep(0)
            self._gives_way_at = self._clock() + SLICE

    # ---- what it gets --------------------------------------------------------------------------------------------------

    async def _serve(self, lane: Lane) -> None:
        """Answer the requests of a lane, one after the other, when there is a place among those that are made."""
        while True:
            message = await lane.next()
            async with self._lanes.active:
                try:
                    await self._answer(lane, message)
                finally:
                    message.body.close()
                await self._continue_steered(lane)

    async def _answer(self, lane: Lane, message: WaitingMessage) -> None:
        error = await self._create(lane, message)
        if error is not None:
            lane.steering.not_applied()
            await self._refuse(error, lane.name)
            if lane.continues is not None:
                self._responses.evict(lane, lane.continues)
        lane.answered()

    async def _continue_steered(self, lane: Lane) -> None:
        """Continue steered responses, before any other message of their lane is answered. What could not be continued is left
        to the client, which may continue it by itself."""
        while (request := lane.steering.successor()) is not None:
            lane.unanswered += 1
            error = await self._create(lane, request)
            if error is not None:
                lane.steering.not_applied(error)
            lane.answered()

    async def _create(self, lane: Lane, message: WaitingMessage | ResponsesRequest) -> ApiError | None:
        """Make a response; return the error of one that could not begin."""
        try:
            await self._responses.make(lane, message)
        except ApiError as error:
            forget_frames(error)  # because a frame that called this one keeps it in a variable
            return error
        except StoreUnavailable as error:
            logs.logger().error("the store fails", extra=logs.fields(error=str(error)))
            return server_error(error.for_clients, 503)
        return None

    def _worker_ended(self, _worker: asyncio.Task[None]) -> None:
        """End the connection with a lane that has ended: no lane ends by itself."""
        if not self._broken.done():
            self._broken.set_result(None)

    async def _refuse(self, error: ApiError, name: object = None) -> None:
        self._outbox.write(event_of(error_frame(error, name)))
        await self._wait_for_client()

    async def _wait_for_client(self) -> None:
        """Wait for a client that does not read: it is not read either."""
        if self._outbox.slow:
            await self._outbox.flush()

    async def _send_last(self, error: ApiError) -> None:
        with suppress(ConnectionError):
            await self._outbox.flush()
            await self._socket.send_str(json.dumps(error_frame(error)))

    def _pause(self) -> None:
        self._lanes.pause()

    def _resume(self) -> None:
        self._lanes.resume()
