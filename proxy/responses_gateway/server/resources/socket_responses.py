"""The responses of one connection: how each is made, and which ones can be continued that are not in the store."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AsyncExitStack

from aiohttp import web

from responses_gateway.request.parameters.background_options import long_window
from responses_gateway.server.access.api_keys import allowed_models, tenant_of
from responses_gateway.server.access.clients import CLIENTS
from responses_gateway.server.access.identities import IDENTITIES
from responses_gateway.server.generation.background.runner import Background
from responses_gateway.server.generation.generation import shutting_down
from responses_gateway.server.generation.in_flight import State
from responses_gateway.server.generation.preparation.context import Caller, PreviousResponse
from responses_gateway.server.generation.responses import Creation, Responses
from responses_gateway.server.http.event_stream import WebSocketSender
from responses_gateway.server.http.exchange import EXCHANGE, in_thread
from responses_gateway.server.resources.readings import named
from responses_gateway.server.resources.socket_lane import Lane, WaitingMessage
from responses_gateway.server.resources.socket_lanes import Lanes
from responses_gateway.server.resources.socket_messages import continued_in
from responses_gateway.server.resources.unstored_responses import Unstored, UnstoredResponses
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.requests import LARGE, ResponsesRequest, parse_message

_OPERATION = "WS /v1/responses"
# Of a backend that was to read a prompt and did not.
_EMPTY_ANSWER = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class SocketResponses:
    """Makes the responses of one connection."""

    def __init__(
        self, responses: Responses, background: Background | None, request: web.Request, outbox: WebSocketSender, lanes: Lanes
    ) -> None:
        self._responses = responses
        self._background = background
        self._request = request
        self._outbox = outbox
        self._lanes = lanes
        self._tenant = tenant_of(request)
        self._clients = request.app.get(CLIENTS)  # absent without limits and keys
        self._identities = request.app.get(IDENTITIES)  # absent where clients need not say who they are
        self._transport = request.transport
        self._unstored = UnstoredResponses()

    async def make(self, lane: Lane, asked: WaitingMessage | ResponsesRequest) -> None:
        """Make a response; `lane.continues` says what it was to continue if it cannot begin. Raise `ApiError` and
        `StoreUnavailable`."""
        settings = self._responses.live.current.settings
        recorder = self._responses.recorder
        recording = None if recorder is None else recorder.begin(self._request.headers, settings, websocket=True)
        try:
            request, size = await self._read(lane, asked, None if recording is None else recording.received)
            if recording is not None:
                recording.parsed()
            caller = await self._admit(request)
        except ApiError as error:
            if recording is not None:
                recording.failed(error)
                recording.end("rejected")
            raise
        lane.continues = request.previous_response_id
        parent = self._unstored.get(request.previous_response_id)
        previous = None if parent is None else parent.response
        creation = await self._responses.create(request, caller, previous, recording=recording, drop_client=self._drop)
        with creation:
            stored = await self._respond(lane, creation)
            size += sum(map(len, creation.translator.response.output))
            self._keep(creation.continued_by(stored=stored), lane, size, parent)

    def evict(self, lane: Lane, response_id: str) -> None:
        """Keep a response no longer that a request of its own lane has continued without success, as OpenAI does. One of
        another lane stays: it is what that lane builds on."""
        kept = self._unstored.get(response_id)
        if kept is not None and kept.lane == lane.name:
            self._unstored.evict(response_id)
            self._lanes.forget([response_id])

    # ---- the request ---------------------------------------------------------------------------------------------------

    async def _read(
        self, lane: Lane, asked: WaitingMessage | ResponsesRequest, received: Callable[[bytes], None] | None
    ) -> tuple[ResponsesRequest, int]:
        """Return the request in a message, with the steers that wait for it, and the bytes of both: it is received with them.
        Raise `ApiError`."""
        if not isinstance(asked, WaitingMessage):
            if received is not None:
                received(_as_message(asked))
            return asked, lane.steering.taken_bytes
        data = asked.take()
        if received is not None:
            received(data)
        parsed = await self._parse(lane, data)
        request = lane.steering.with_input(parsed)
        if received is not None and request is not parsed:
            received(_as_message(request))
        return request, len(data) + lane.steering.taken_bytes

    async def _parse(self, lane: Lane, data: bytes) -> ResponsesRequest:
        large = len(data) >= LARGE
        try:
            return await in_thread(self._request, parse_message, data) if large else parse_message(data)
        except ApiError:
            lane.continues = continued_in(data)
            raise

    async def _admit(self, request: ResponsesRequest) -> Caller:
        """Return who asks, with what is reserved of the limits. Raise `ApiError`."""
        if request.background_options is not None and long_window(request) is not None:
            refusal = "Over a WebSocket nothing waits: use POST /v1/responses for a window of hours."
            raise invalid_request(refusal, "background_options.completion_window", "unsupported_value")
        if self._responses.in_flight.state >= State.DRAINING:
            raise shutting_down()
        if self._identities is not None:  # what it came with may have been revoked, or have expired
            await self._identities.identify(self._request)
        exchange = self._request[EXCHANGE]
        limits = self._clients.of(self._request) if self._clients is not None else None
        reservation = await limits.reserve_in_fleet() if limits is not None else None
        settings = self._responses.live.current.settings
        allows = allowed_models(exchange, settings) if self._identities is not None else None
        headers = named(self._request.headers, exchange)
        return Caller(self._tenant, exchange.request_id, headers, _OPERATION, reservation, over_websocket=True, allows=allows)

    # ---- the response --------------------------------------------------------------------------------------------------

    async def _respond(self, lane: Lane, creation: Creation) -> bool:
        """Send the response; return False if it could not be stored."""
        lane.creation = creation
        try:
            async with AsyncExitStack() as stack:
                refused = await self._open(lane, creation)
                if lane.steering.applies and self._background is not None:
                    await stack.enter_async_context(self._background.keep(creation))
                lane.steering.begin(creation)
                if refused:
                    translator = creation.translator
                    self._outbox.write(translator.start() + translator.feed(_EMPTY_ANSWER))
                stored = await creation.finish()
        finally:
            lane.creation = None
        self._outbox.write(creation.terminal(stored=stored))
        lane.steering.end(creation)
        return stored

    async def _open(self, lane: Lane, creation: Creation) -> bool:
        """Wait for the backend, so that its refusal is an error frame. Return True if it refused to read a prompt whose answer
        nobody wants. Raise `ApiError`."""
        generation = creation.start(self._outbox)
        translator = creation.translator
        if lane.cancelled:
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

    def _keep(self, response: PreviousResponse | None, lane: Lane, size: int, parent: Unstored | None) -> None:
        """Keep what only this connection has."""
        if response is None:
            return
        known = {} if parent is None else parent.response.results
        results = sum(len(result) for item_id, result in response.results.items() if item_id not in known)
        self._lanes.forget(self._unstored.add(response, lane.name, size + results, parent))

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _as_message(request: ResponsesRequest) -> bytes:
    """Return the message that a client would have sent for a request."""
    return json.dumps({"type": "response.create", **request.model_dump(exclude_none=True)}).encode()
