"""The responses of one connection: how each is made, and which ones can be continued that are not in the store."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import count

from aiohttp import web

from responses_gateway.request.parameters.background_options import long_window
from responses_gateway.server.access.api_keys import allowed_models, named, tenant_of
from responses_gateway.server.access.clients import CLIENTS
from responses_gateway.server.access.identities import IDENTITIES
from responses_gateway.server.access.middleware import log_request
from responses_gateway.server.generation.background.runner import Background
from responses_gateway.server.generation.generation import shutting_down
from responses_gateway.server.generation.in_flight import State
from responses_gateway.server.generation.preparation.context import Caller, PreviousResponse
from responses_gateway.server.generation.responses import Creation, Responses
from responses_gateway.server.http.event_stream import WebSocketSender
from responses_gateway.server.http.exchange import EXCHANGE, in_thread
from responses_gateway.server.resources.socket_lanes import Lane, Lanes, WaitingMessage
from responses_gateway.server.resources.socket_messages import continued_in
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.requests import LARGE, ResponsesRequest, parse_message

_OPERATION = "WS /v1/responses"
# Of a backend that was to read a prompt and did not.
_EMPTY_ANSWER = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
# Responses that are kept, because each of 33 lanes has a last one, and some have earlier ones that others fork from.
MOST = 64
# Bytes of their items, as JSON, because sixteen agents with long histories have about as many.
MOST_BYTES = 32 * 1024 * 1024


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
        self._numbers = count(1)  # of messages

    async def make(self, lane: Lane, message: WaitingMessage | ResponsesRequest) -> None:
        """Make a response; `lane.continues` says what it was to continue if it cannot begin. Raise `ApiError` and
        `StoreUnavailable`."""
        try:
            caller = await self._admit()
        except ApiError as error:
            self.log_refusal(error)
            raise
        async with Creation(self._responses, caller, self._drop) as creation:
            request, size = await self._read(lane, message, creation)
            lane.continues = request.previous_response_id
            parent = self._unstored.get(request.previous_response_id)
            await creation.prepare(request, None if parent is None else parent.response)
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

    def log_refusal(self, error: ApiError) -> None:
        """Log a message that is refused before it has a `Creation`, as a request over HTTP is logged."""
        if self._responses.live.current.settings.access_log:
            exchange = self._request[EXCHANGE]
            client = exchange.address or self._request.remote
            fields = {"method": "WS", "path": self._request.path, "status": error.status, "client": client, "code": error.code}
            log_request(logging.WARNING, exchange, fields)

    # ---- the request ---------------------------------------------------------------------------------------------------

    async def _read(
        self, lane: Lane, message: WaitingMessage | ResponsesRequest, creation: Creation
    ) -> tuple[ResponsesRequest, int]:
        """Return the request in a message, with the steers that wait for it, and the bytes of both: it is recorded with them.
        Raise `ApiError`."""
        recording = creation.recording
        size = 0
        if isinstance(message, WaitingMessage):
            data = message.take()
            if recording is not None:
                recording.received(data)
            size = len(data)
            request = lane.steering.with_input(await self._parse(lane, data))
        else:
            request = message
        if recording is not None:
            if lane.steering.steers.applies:
                merged = {"type": "response.create", **request.model_dump(exclude_none=True)}  # as a client would have sent it
                recording.received(json.dumps(merged).encode())
            recording.parsed()
        if request.background_options is not None and long_window(request) is not None:
            refusal = "Over a WebSocket nothing waits: use POST /v1/responses for a window of hours."
            raise invalid_request(refusal, "background_options.completion_window", "unsupported_value")
        return request, size + lane.steering.steers.taken_bytes

    async def _parse(self, lane: Lane, data: bytes) -> ResponsesRequest:
        large = len(data) >= LARGE
        try:
            return await in_thread(self._request, parse_message, data) if large else parse_message(data)
        except ApiError:
            lane.continues = continued_in(data)
            raise

    async def _admit(self) -> Caller:
        """Return who asks, with what is reserved of the limits. Raise `ApiError`."""
        if self._responses.in_flight.state >= State.DRAINING:
            raise shutting_down()
        if self._identities is not None:  # what it came with may have been revoked, or have expired
            await self._identities.identify(self._request)
        exchange = self._request[EXCHANGE]
        limits = self._clients.of(self._request) if self._clients is not None else None
        reservation = await limits.reserve_in_fleet() if limits is not None else None
        settings = self._responses.live.current.settings
        allows = allowed_models(exchange, settings) if self._identities is not None else None
        _, headers = named(exchange, self._request.headers)
        number = next(self._numbers)
        # Each has its own, because vLLM before 0.14 refuses a request whose id another one has that runs.
        request_id = exchange.request_id if number == 1 else f"{exchange.request_id}.{number}"
        return Caller(self._tenant, request_id, headers, _OPERATION, reservation, over_websocket=True, allows=allows)

    # ---- the response --------------------------------------------------------------------------------------------------

    async def _respond(self, lane: Lane, creation: Creation) -> bool:
        """Send the response; return False if it could not be stored."""
        lane.creation = creation
        try:
            async with AsyncExitStack() as stack:
                refused = await self._open(lane, creation)
                if lane.steering.steers.applies and self._background is not None:
                    await stack.enter_async_context(self._background.keep(creation))
                lane.steering.begin(creation)
                if refused:
                    translator = creation.translator
                    events = translator.start() + translator.feed(_EMPTY_ANSWER)
                    creation.log.sent(events)
                    self._outbox.write(events)
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


class _Part:
    """What one response has added to its history. It stays in memory while it is kept, or one that continues it."""

    __slots__ = ("before", "size", "uses")

    def __init__(self, size: int, before: _Part | None) -> None:
        self.size = size
        self.before = before
        self.uses = 0

    @property
    def all(self) -> Iterator[_Part]:
        """This part and those before it."""
        part: _Part | None = self
        while part is not None:
            yield part
            part = part.before


class Unstored:
    """One response that is kept, and the lane that made it."""

    __slots__ = ("lane", "part", "response")

    def __init__(self, response: PreviousResponse, lane: str | None, part: _Part) -> None:
        self.response = response
        self.lane = lane
        self.part = part


class UnstoredResponses:
    """Keeps so many responses, of so many bytes together; the newest one always. Those that were neither made nor continued for
    the longest time go first, and the last response of a lane goes after all that are not the last of theirs."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self.size = 0  # bytes
        self._most = most
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, Unstored] = OrderedDict()  # by id, the least recently used one first
        self._last: dict[str | None, str] = {}  # the last id of each lane

    def get(self, response_id: str | None) -> Unstored | None:
        """Return a response that is to be continued; None if it is not kept."""
        if response_id is None or response_id not in self._kept:
            return None
        self._kept.move_to_end(response_id)
        return self._kept[response_id]

    def add(self, response: PreviousResponse, lane: str | None, size: int, parent: Unstored | None) -> list[str]:
        """Keep a response whose input and output have so many bytes, behind its parent. Return the ids of those let go."""
        part = _Part(size, None if parent is None else parent.part)
        self._hold(part)
        self._kept[response.response_id] = Unstored(response, lane, part)
        self._last[lane] = response.response_id
        evicted = []
        while len(self._kept) > self._most or (self.size > self._most_bytes and len(self._kept) > 1):
            evicted.append(self._oldest())
            self.evict(evicted[-1])
        return evicted

    def evict(self, response_id: str) -> None:
        """Keep a response no longer."""
        kept = self._kept.pop(response_id, None)
        if kept is None:
            return
        if self._last.get(kept.lane) == response_id:
            del self._last[kept.lane]
        self._release(kept.part)

    def _oldest(self) -> str:
        last = set(self._last.values())
        return next((each for each in self._kept if each not in last), next(iter(self._kept)))

    def _hold(self, part: _Part) -> None:
        for each in part.all:
            each.uses += 1
            if each.uses > 1:
                return  # what is before it is held by it
            self.size += each.size

    def _release(self, part: _Part) -> None:
        for each in part.all:
            each.uses -= 1
            if each.uses:
                return
            self.size -= each.size
