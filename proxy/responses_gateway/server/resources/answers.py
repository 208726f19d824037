"""The answer to a request of any protocol of clients: who asks, the bodies of other protocols as Responses requests; streamed,
whole, or left to run without its client; a compaction."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from responses_gateway.request import Loss, header_value
from responses_gateway.request.messages import ReadTurns
from responses_gateway.server.access.api_keys import Needs, named, needs, tenant_of
from responses_gateway.server.access.clients import RESERVATION
from responses_gateway.server.generation.background.runner import Background, new_response
from responses_gateway.server.generation.generation import Generation, NullSink, shutting_down
from responses_gateway.server.generation.in_flight import State
from responses_gateway.server.generation.preparation.compaction import with_trigger
from responses_gateway.server.generation.preparation.context import Caller
from responses_gateway.server.generation.preparation.known_inputs import SMALLEST, Growing
from responses_gateway.server.generation.preparation.live_settings import InForce
from responses_gateway.server.generation.request_log.metrics import RELEASE
from responses_gateway.server.generation.responses import Creation, Responses, answer_losses
from responses_gateway.server.http.aiohttp_internals import LEFT_AT
from responses_gateway.server.http.event_stream import EventStream
from responses_gateway.server.http.exchange import EXCHANGE, abort, in_thread, read_json_body
from responses_gateway.server.protocols.interface import BodyReader, ClientProtocol, Reading, ReadingScope
from responses_gateway.server.protocols.responses import RESPONSES
from responses_gateway.server.resources.resume import Follower
from responses_gateway.stream.options import recognise
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.requests import LARGE, ResponsesRequest, parse_request, read_object
from responses_gateway.wire.sse import on_one_line

# The codes of a 400 that say more to a client than `invalid_prompt`.
_KNOWN_CODES = frozenset({"context_length_exceeded", "model_not_found"})
_LOSS_HEADER = "x-responses-gateway-losses"
# Larger bodies are read in a thread, so that no other stream waits for them, in bytes.
LARGE_BODY = 256 * 1024
# What a body asks for; the others as in `RequestScope`.
Asked = tuple[ResponsesRequest, Reading | None, Growing | None]
_CANNOT_CONTINUE = "the last one is of the assistant, which this backend cannot continue. End with one of the user."


class Answers:
    """Answers the requests of one protocol."""

    def __init__(
        self, protocol: ClientProtocol, responses: Responses, hosted: Collection[str], background: Background | None = None
    ) -> None:
        """`hosted` are the kinds of tools that the gateway runs itself. `background` runs the responses that outlive their
        requests, where the protocol has such."""
        self._protocol = protocol
        self._responses = responses
        self._readings = None if protocol.reader is None else Readings(responses, protocol.reader, hosted)
        self._background = background

    @needs(Needs.KEY | Needs.RESERVATION)
    async def create(self, request: web.Request) -> web.StreamResponse:
        """Answer `POST` with a response, streamed or whole."""
        responses = self._responses
        if responses.in_flight.state >= State.DRAINING:
            raise shutting_down()
        caller = caller_of(request, self._protocol, responses.live.current, f"POST {self._protocol.path}")
        creation = Creation(responses, caller, lambda: abort(request))
        try:
            async with creation:
                return await self._respond(request, creation, await self._read(request, creation))
        except asyncio.CancelledError:  # by now the backend is free
            _observe_release(request, responses)
            raise
        except ApiError as error:
            if error.status == 400 and error.code not in _KNOWN_CODES and recognise(request.headers).reads_invalid_prompt:
                error.code = "invalid_prompt"
            raise

    async def _read(self, request: web.Request, creation: Creation) -> Asked:
        """Read the body. Raise `ApiError`."""
        body = await read_json_body(request)
        recording = creation.recording
        if recording is not None:
            recording.received(body)
        known = self._responses.preparation.known
        form = self._protocol.body
        size = len(body)
        may_grow = recording is None and size >= SMALLEST
        growing = known.read(creation.caller.tenant, body, form) if may_grow else None
        if growing is not None:
            parsed = growing.asked
        else:
            parsed = await in_thread(request, form.parse, body) if size >= LARGE else form.parse(body)
            growing = Growing(body, form, parsed) if may_grow and known.keeps(body) else None
        if recording is not None:
            recording.parsed()
        if self._readings is None:
            return parsed, None, growing
        turns = None if growing is None else growing.turns
        large = size >= LARGE_BODY
        reading = await self._readings.read(request, parsed, creation.caller, creation.in_force, large=large, known=turns)
        if turns is not None and not reading.resumed:
            growing = Growing(body, form, parsed)
        return reading.request, reading, growing

    async def _respond(self, request: web.Request, creation: Creation, read: Asked) -> web.StreamResponse:
        body, reading, growing = read
        try:
            await creation.prepare(body, reading=reading, growing=growing)
            continues = creation.prepared.record is not None and creation.in_force.settings.on_disconnect == "continue"
            if body.background or (body.stream and continues):
                return await self._detach(request, creation, body)
            if body.stream:
                return await _stream_answer(request, creation)
            return await _whole_answer(creation, self._protocol)
        except ApiError as error:
            if reading is None:
                raise
            raise reading.error(error) from None

    async def _detach(self, request: web.Request, creation: Creation, body: ResponsesRequest) -> web.StreamResponse:
        """Let the response run without this request, or wait; answer with how it stands, or with its stream."""
        for postpone in self._responses.additions.postponements:
            waits = await postpone(creation.prepared, creation.translator, creation.log, creation.in_force.settings)
            if isinstance(waits, str):
                return web.Response(text=waits, content_type="application/json", headers=loss_header(creation.log.facts.losses))
        response = new_response(self._background, creation)
        assert self._background is not None
        generation = creation.start(response)
        if not body.background:
            await generation.open_within(creation.in_force.settings.header_grace)
        snapshot = await asyncio.shield(self._background.start(response, creation, generation))
        headers = loss_header(creation.log.facts.losses)
        if body.stream:
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


class Compaction:
    """Serves `/v1/responses/compact`: an encrypted item for a history."""

    def __init__(self, responses: Responses) -> None:
        self._responses = responses

    @needs(Needs.KEY | Needs.RESERVATION)
    async def create(self, request: web.Request) -> web.StreamResponse:
        """Answer `POST`: the backend writes the summary. That takes what a response takes; nothing is stored."""
        responses = self._responses
        body = await read_json_body(request)
        # In a thread, so that no other stream waits for a long history.
        parsed = await in_thread(request, lambda: parse_request({**read_object(body), "store": False}))
        caller = caller_of(request, RESPONSES, responses.live.current, "POST /v1/responses/compact")
        summary = await responses.summarise(with_trigger(parsed), caller)
        response = msgspec.json.decode(summary.translator.response.json())
        fields = {name: response[name] for name in ("id", "created_at", "usage")}
        compacted = msgspec.json.encode({**fields, "object": "response.compaction", "output": summary.output})
        return web.Response(body=compacted, content_type="application/json")


async def _stream_answer(request: web.Request, creation: Creation) -> web.StreamResponse:
    """Answer with events. An error of the backend within the grace time is an HTTP error."""
    stream = EventStream(request, creation.pause, creation.resume)
    generation = creation.start(stream)
    beginning: asyncio.Task[None] | None = None

    def begin_early() -> None:
        """Show the client that there is life, though the backend takes its time."""
        nonlocal beginning
        beginning = asyncio.create_task(_begin(stream, creation, generation))

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
        await (beginning or _begin(stream, creation, generation))
        stored = await creation.finish()
        await stream.finish(creation.terminal(stored=stored))
    finally:
        if beginning is not None:
            beginning.cancel()
        stream.close()
    return stream.response


async def _whole_answer(creation: Creation, protocol: ClientProtocol) -> web.Response:
    """Answer with the final response; the events are made in the same way, and not sent. One that failed is an HTTP error. Once
    tools have run, its client must not repeat the request: it gets the response as it is or, where the protocol has no failed
    ones, an error that says so."""
    creation.start(NullSink())
    stored = await creation.finish()
    translator = creation.translator
    if translator.error is not None and not (creation.prepared.tools_ran and protocol.has_failed_answers):
        raise _for_client(translator.error, final=creation.prepared.tools_ran)
    text = translator.response.json(stored=None if stored else False)
    headers = loss_header([*creation.log.facts.losses, *answer_losses(creation.prepared, creation.translator)])
    return web.Response(body=on_one_line(text.encode()), content_type="application/json", charset="utf-8", headers=headers)


def _for_client(error: ApiError, *, final: bool) -> ApiError:
    """Return a copy of an error, which nobody keeps who raises it: it would keep the whole request."""
    copy = error.copy()
    copy.final = copy.final or final
    return copy


async def _begin(stream: EventStream, creation: Creation, generation: Generation) -> None:
    losses = creation.log.facts.losses
    if losses:
        stream.response.headers.update(loss_header(losses))
    await stream.prepare()
    generation.begin()
    if not generation.translator.ended:  # else everything leaves in one write
        await stream.flush()


def _observe_release(request: web.Request, responses: Responses) -> None:
    """Count how long it took to free the backend of a client that has left."""
    left_at = request.get(LEFT_AT)
    if left_at is not None:
        metrics = responses.metrics
        metrics.observe(RELEASE, asyncio.get_running_loop().time() - left_at)


def loss_header(losses: Sequence[Loss]) -> dict[str, str]:
    """Return the header that lists what was adapted or ignored; none if nothing was."""
    if not losses:
        return {}
    value = header_value(losses)
    return {_LOSS_HEADER: value} if value else {}


def caller_of(request: web.Request, protocol: ClientProtocol, in_force: InForce, operation: str | None = None) -> Caller:
    """Return who asks, in a protocol. `operation` names the trace of the request; without one there is none."""
    exchange = request[EXCHANGE]
    headers: Mapping[str, str] = request.headers
    if protocol.reader is not None and protocol.reader.key_header in headers:
        headers = _with_key(headers, protocol.reader, in_force)
    tenant, headers = named(exchange, headers)
    return Caller(
        tenant,
        exchange.request_id,
        headers,
        operation,
        request.get(RESERVATION),
        protocol=protocol,
        allows=exchange.allows,
        exchange=exchange,
    )


def _with_key(headers: Mapping[str, str], reader: BodyReader, in_force: InForce) -> Mapping[str, str]:
    """Return the headers of a client with its key where backends look for it."""
    if "Authorization" in headers or not in_force.settings.forwards_client_key:
        return headers
    changed = CIMultiDict(headers)
    changed["Authorization"] = f"Bearer {headers[reader.key_header]}"
    return changed


class Readings:
    """Reads the bodies of a protocol. `hosted` are the kinds of tools that the gateway runs itself."""

    def __init__(self, responses: Responses, reader: BodyReader, hosted: Collection[str]) -> None:
        self._pool = responses.pool
        self._reader = reader
        self._hosted = hosted

    async def read(
        self, request: web.Request, body: Any, caller: Caller, in_force: InForce, *, large: bool, known: ReadTurns | None = None
    ) -> Reading:
        """Return a parsed body as a Responses request; its first turns may be known. Raise `ApiError` 400."""
        models = self._pool.models
        model = body.model
        window = models.context_of(model)
        if window is None:  # because it may be a name that nobody serves, or not be known yet
            await self._pool.watch.identified()
            model = self._reader.served_model(self._pool.members, model, in_force.settings.messages_model, caller.allows)
            window = models.context_of(model)
        policy = in_force.parsers.policy(model)
        scope = ReadingScope(model, policy, self._hosted, self._pool.own_name(model), window, caller.request_id)
        reading = None if known is None else self._reader.read(body, scope, known)
        if reading is None:
            read = self._reader.read
            reading = await in_thread(request, read, body, scope, None) if large else read(body, scope, None)
        assert reading is not None
        if reading.policy.continues_last_message and not models.all_vllm(model):
            raise reading.error(invalid_request(_CANNOT_CONTINUE, "input", "unsupported_value"))
        return reading
