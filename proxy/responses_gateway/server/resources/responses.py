"""`/v1/responses`: a response over HTTP, streamed or whole; `/v1/responses/compact`: an encrypted item for a history."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec
from aiohttp import web

from responses_gateway.request import Loss, header_value
from responses_gateway.server.access.api_keys import ALLOWS, Needs, needs, tenant_of
from responses_gateway.server.access.clients import RESERVATION
from responses_gateway.server.generation.background.runner import Background, new_response
from responses_gateway.server.generation.client_timer import NullSink
from responses_gateway.server.generation.generation import Generation, shutting_down
from responses_gateway.server.generation.in_flight import State
from responses_gateway.server.generation.preparation.compaction import with_trigger
from responses_gateway.server.generation.preparation.context import Caller
from responses_gateway.server.generation.request_log.metrics import RELEASE
from responses_gateway.server.generation.responses import Creation, Responses
from responses_gateway.server.http.aiohttp_internals import LEFT_AT
from responses_gateway.server.http.bodies import in_thread, read_json_body
from responses_gateway.server.http.errors import HAS_LOG, REQUEST_ID
from responses_gateway.server.http.event_stream import EventStream
from responses_gateway.server.resources.resume import Follower
from responses_gateway.server.resources.websocket import WebSockets
from responses_gateway.stream.options import recognise
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.requests import ResponsesRequest, parse_request, read_object

# Larger bodies are parsed in a thread, so that no other stream waits for them, in bytes.
_LARGE_BODY = 256 * 1024
# The codes of a 400 that say more to a client than `invalid_prompt`.
_KNOWN_CODES = frozenset({"context_length_exceeded", "model_not_found"})
_LOSS_HEADER = "x-responses-gateway-losses"
_OPERATION = "POST /v1/responses"


class ResponsesResource:
    """Serves the paths with the parts that they need."""

    def __init__(
        self,
        responses: Responses,
        background: Background | None,
        websockets: WebSockets,
    ) -> None:
        self._responses = responses
        self._background = background
        self._websockets = websockets

    @needs(Needs.KEY | Needs.RESERVATION)
    async def create(self, request: web.Request) -> web.StreamResponse:
        """Answer `POST` with a response, streamed or whole."""
        if self._responses.in_flight.state >= State.DRAINING:
            raise shutting_down()
        caller = self._caller(request, _OPERATION)
        request[HAS_LOG] = True
        creation = self._responses.open(caller, lambda: abort(request))
        try:
            with creation:
                return await self._answer(request, creation)
        except asyncio.CancelledError:  # by now the backend is free
            observe_release(request, self._responses)
            raise
        except ApiError as error:
            client = recognise(request.headers)
            if error.status == 400 and error.code not in _KNOWN_CODES and client.reads_invalid_prompt:
                error.code = "invalid_prompt"
            raise

    def _caller(self, request: web.Request, operation: str) -> Caller:
        allows = request.get(ALLOWS)
        reservation = request.get(RESERVATION)
        return Caller(tenant_of(request), request[REQUEST_ID], request.headers, operation, reservation, allows=allows)

    @needs(Needs.KEY | Needs.RESERVATION)
    async def upgrade(self, request: web.Request) -> web.StreamResponse:
        """Answer `GET` with a WebSocket. Where there is none, a 426 makes Codex continue over HTTP without a warning."""
        if not self._responses.live.current.settings.websocket:
            message = "WebSockets are disabled on this gateway: use POST /v1/responses."
            raise ApiError(426, message, code="websocket_not_supported")
        if request.headers.get("Upgrade", "").lower() != "websocket":
            message = "GET /v1/responses opens a WebSocket, which needs an Upgrade header. To create a response, use POST."
            raise ApiError(426, message, code="upgrade_required")
        return await self._websockets.serve(request)

    @needs(Needs.KEY | Needs.RESERVATION)
    async def compact(self, request: web.Request) -> web.StreamResponse:
        """Answer `POST …/compact`: the backend writes the summary. That takes what a response takes; nothing is stored."""
        body = await read_json_body(request)
        # In a thread, so that no other stream waits for a long history.
        asked = await in_thread(request, lambda: parse_request({**read_object(body), "store": False}))
        caller = self._caller(request, f"{_OPERATION}/compact")
        request[HAS_LOG] = True
        summary = await self._responses.summarise(with_trigger(asked), caller)
        response = msgspec.json.decode(summary.translator.response.json())
        shown = {name: response[name] for name in ("id", "created_at", "usage")}
        compacted = msgspec.json.encode({**shown, "object": "response.compaction", "output": summary.output})
        return web.Response(body=compacted, content_type="application/json")

    async def _answer(self, request: web.Request, creation: Creation) -> web.StreamResponse:
        body = await read_json_body(request)
        recording = creation.recording
        if recording is not None:
            recording.received(body)
        large = len(body) >= _LARGE_BODY
        asked = await in_thread(request, parse_request, body) if large else parse_request(body)
        if recording is not None:
            recording.parsed()
        await creation.prepare(asked)
        headers = loss_header(creation.prepared.losses)
        continues = creation.prepared.record is not None and creation.in_force.settings.on_disconnect == "continue"
        if asked.background or (asked.stream and continues):
            return await self._detach(request, creation, asked, headers)
        if asked.stream:
            return await stream_answer(request, creation, headers)
        return await whole_answer(creation)

    async def _detach(
        self, request: web.Request, creation: Creation, asked: ResponsesRequest, headers: dict[str, str]
    ) -> web.StreamResponse:
        """Let the response run without this request, or wait; answer with how it stands, or with its stream."""
        for postpone in self._responses.additions.postponements:
            waits = await postpone(creation.prepared, creation.translator, creation.log, creation.in_force.settings)
            if isinstance(waits, str):
                return web.Response(text=waits, content_type="application/json", headers=headers)
            if waits is not None:
                headers = loss_header([*creation.prepared.losses, waits])
        response = new_response(self._background, creation)
        assert self._background is not None
        generation = creation.start(response)
        if not asked.background:
            await generation.open_within(creation.in_force.settings.header_grace)
        snapshot = await asyncio.shield(self._background.start(response, creation, generation))
        if asked.stream:
            follower = Follower(
                request,
                self._background.store,
                tenant_of(request),
                response.record.id,
                response=response,
                active=True,
                settings=creation.in_force.settings,
                headers=headers,
            )
            return await follower.run()
        return web.Response(text=snapshot, content_type="application/json", headers=headers)


async def stream_answer(request: web.Request, creation: Creation, headers: dict[str, str]) -> web.StreamResponse:
    """Answer with events. An error of the backend within the grace time is an HTTP error."""
    stream = EventStream(request, creation.pause, creation.resume)
    stream.response.headers.update(headers)
    generation = creation.start(stream)
    beginning: asyncio.Task[None] | None = None

    def begin_early() -> None:
        """Show the client that there is life, though the backend takes its time."""
        nonlocal beginning
        beginning = asyncio.create_task(_begin(stream, generation))

    grace = creation.ended.get_loop().call_later(creation.in_force.settings.header_grace, begin_early)
    try:
        try:
            await generation.open()
        except ApiError as error:
            if beginning is None:
                raise
            await beginning
            generation.fail(error)
        finally:
            grace.cancel()
        await (beginning or _begin(stream, generation))
        stored = await creation.finish()
        await stream.finish(creation.terminal(stored=stored))
    finally:
        if beginning is not None:
            beginning.cancel()
        stream.close()
    return stream.response


async def whole_answer(creation: Creation) -> web.Response:
    """Answer with the final response; the events are made in the same way, and not sent. One that failed is an HTTP error,
    unless tools have run: a client would repeat its request."""
    creation.start(NullSink())
    stored = await creation.finish()
    translator = creation.translator
    if translator.error is not None and not creation.prepared.tools_ran:
        raise translator.error.copy()
    text = translator.response.json(stored=None if stored else False)
    headers = loss_header([*creation.prepared.losses, *creation.answer_losses])
    return web.Response(text=text, content_type="application/json", headers=headers)


async def _begin(stream: EventStream, generation: Generation) -> None:
    await stream.prepare()
    generation.begin()
    if not generation.translator.ended:  # else everything leaves in one write
        await stream.flush()


def observe_release(request: web.Request, responses: Responses) -> None:
    """Count how long it took to free the backend of a client that has left."""
    left_at = request.get(LEFT_AT)
    if left_at is not None:
        metrics = responses.metrics
        metrics.observe(RELEASE, asyncio.get_running_loop().time() - left_at)


def abort(request: web.Request) -> None:
    """Close the connection of a client that does not take its answer."""
    if request.transport is not None:
        request.transport.abort()


def loss_header(losses: Iterable[Loss]) -> dict[str, str]:
    """Return the header that lists what was adapted or ignored; none if nothing was."""
    value = header_value(losses)
    return {_LOSS_HEADER: value} if value else {}
