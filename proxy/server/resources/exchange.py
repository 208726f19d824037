"""The life of one `POST /v1/responses`, from its first byte to its last."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from aiohttp import web

from proxy.request import header_value
from proxy.server.access.rate_limits import CLAIM
from proxy.server.access.tenants import tenant_of
from proxy.server.generation.background import Run
from proxy.server.generation.compaction import compaction_due
from proxy.server.generation.context import NOTHING, find_footing
from proxy.server.generation.gateway import Gateway
from proxy.server.generation.generation import Generation
from proxy.server.generation.prepare import backend_headers, prepare
from proxy.server.generation.records import kept, new_record, not_stored
from proxy.server.generation.request_log import Books
from proxy.server.generation.routes import route_of
from proxy.server.generation.stream_options import client_of
from proxy.server.http.errors import REQUEST_ID, read_body
from proxy.server.http.event_stream import Downstream
from proxy.server.resources.resume import follow
from proxy.state import Record
from proxy.stream import writer
from proxy.wire.errors import ApiError, invalid_request, server_error
from proxy.wire.requests import ResponsesRequest, parse_request

#: Bodies larger than this are parsed in a thread, so that no other stream waits for them.
_LARGE_BODY = 256 * 1024
#: The codes of a 400 that say more to a client than `invalid_prompt`.
_KNOWN_CODES = frozenset({"context_length_exceeded", "model_not_found"})
_LOSS_HEADER = "x-responses-proxy-losses"


class Exchange:
    """One request on its way through. `run` answers it; `tick` is called about once a second meanwhile."""

    def __init__(self, gateway: Gateway, request: web.Request) -> None:
        self.gateway = gateway
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._settings = gateway.settings
        self._request = request
        self._clock = loop.time
        self._books = Books(
            gateway.metrics,
            self._settings,
            request[REQUEST_ID],
            self._clock(),
            claim=request.get(CLAIM),
            trace=gateway.trace("POST /v1/responses", request.headers),
        )
        self._recording = gateway.recording(request.headers)
        self._generation: Generation | None = None
        self._downstream: Downstream | None = None  # there once the answer has begun
        self._beginning: asyncio.Task[Downstream] | None = None  # it begins before the backend's answer
        self._stopping = False
        self._last_comment = 0.0

    async def run(self) -> web.StreamResponse:
        """Answer the request. Raises `ApiError` while no byte of the answer is sent."""
        self.gateway.exchanges.add(self)
        try:
            return await self._answer()
        except (asyncio.CancelledError, ConnectionError):  # which of the two depends on what we were doing
            if not self._books.detached:
                self._books.client_left()
            raise
        except ApiError as error:
            if self._recording is not None and not self._books.detached:
                self._recording.failed(error)
            client = client_of(self._settings, self._request.headers)
            if error.status == 400 and error.code not in _KNOWN_CODES and client.reads_invalid_prompt:
                error.code = "invalid_prompt"
            self._books.refused(error)
            raise
        finally:
            if not self._books.detached:
                self._let_go()
            self.gateway.exchanges.discard(self)
            self.ended.set_result(None)

    def _let_go(self) -> None:
        """End whatever still runs for this exchange, and close its books."""
        if self._beginning is not None:
            self._beginning.cancel()
        if self._downstream is not None:
            self._downstream.close()
        translator = None
        if self._generation is not None:
            self._generation.close()
            translator = self._generation.translator
        outcome = self._books.close(translator, self._clock())
        if self._recording is not None:
            self._recording.end(outcome)
        # All of these know each other: without this, only the garbage collector could free them.
        self._generation = self._downstream = self._beginning = None

    def tick(self, now: float) -> None:
        """Time limits and keep-alives."""
        generation, downstream = self._generation, self._downstream
        if generation is None:
            return
        if downstream is None or not downstream.slow:
            generation.tick(now)
            if downstream is not None and not generation.translator.ended:
                self._keep_alive(generation, downstream, now)
        elif now - generation.last_event > self._settings.idle_timeout:
            self.abandon()

    def shut_down(self) -> None:
        """The gateway is stopping: end the response truthfully, now."""
        self._stopping = True
        if self._generation is not None:
            self._generation.shut_down()

    def abandon(self) -> None:
        """Drop the client: it does not take what is there for it."""
        if self._request.transport is not None:
            self._request.transport.abort()

    # ---- the way down -----------------------------------------------------------------------------------------------

    async def _answer(self) -> web.StreamResponse:
        gateway, headers, recording = self.gateway, self._request.headers, self._recording
        body = await read_body(self._request)
        if recording is not None:
            recording.asked(body)
        request = parse_request(body) if len(body) < _LARGE_BODY else await asyncio.to_thread(parse_request, body)
        if recording is not None:
            recording.parsed()
        self._books.request(request.model, streamed=bool(request.stream))
        store, footing, tenant = gateway.store, NOTHING, tenant_of(self._request)
        if store is not None:
            footing = await find_footing(store, tenant, request)
        policy, name = gateway.parsers.policy(request.model), self._request[REQUEST_ID]
        plan, chat, translator = await prepare(gateway, tenant, request, footing, policy, headers, recording)
        self._books.losses(plan.losses)
        compaction = await compaction_due(gateway, tenant, request, footing, policy, plan, headers, name)
        record = None
        if store is not None and request.store is not False:
            record = new_record(translator, request, footing, tenant)
        if self._stopping:
            raise server_error("The gateway is shutting down. Please try again.", 503)
        run, downstream = self._run_apart(request, record), Downstream(self._request, self._pause, self._resume)
        sink = run.sink if run is not None else downstream.write if request.stream else _unread
        sent = backend_headers(self._settings, headers, name)
        route = route_of(gateway, request, footing)
        self._generation = generation = Generation(
            gateway, translator, chat, sent, route, self._books, sink, recording, compaction
        )
        generation.count_input(plan.body)
        losses = header_value(plan.losses)
        extra = {_LOSS_HEADER: losses} if losses else {}
        if run is not None:
            return await self._detach(run, generation, tenant, request, extra)
        if request.stream:
            downstream.response.headers.update(extra)
            return await self._stream(generation, downstream, record)
        return await self._collect(generation, extra, record)

    def _run_apart(self, request: ResponsesRequest, record: Record | None) -> Run | None:
        """What the response becomes if it is to run on its own, without this exchange; None if it is not."""
        continues = record is not None and request.stream and self._settings.on_disconnect == "continue"
        if not request.background and not continues:
            return None
        if self.gateway.store is None or record is None:
            message = "'background' needs stored responses: leave 'store' out or set it to true."
            raise invalid_request(message, "background", "unsupported_parameter")
        return Run(self.gateway.store, replace(record, detached=True))

    async def _detach(
        self, run: Run, generation: Generation, tenant: str, request: ResponsesRequest, headers: dict[str, str]
    ) -> web.StreamResponse:
        """Let the response run on its own; the answer is how it stands, or its stream."""
        self._books.detached = True
        self.gateway.exchanges.discard(self)  # time limits and the end of the gateway are its own matter now
        if not request.background:
            await generation.open_within(self._settings.header_grace)
        assert self.gateway.background is not None
        snapshot = await asyncio.shield(self.gateway.background.start(run, generation))
        if request.stream:
            return await follow(self._request, self.gateway, tenant, run.record.id, -1, headers)
        return web.Response(text=snapshot, content_type="application/json", headers=headers)

    # ---- the way up -------------------------------------------------------------------------------------------------

    async def _stream(self, generation: Generation, downstream: Downstream, record: Record | None) -> web.StreamResponse:
        """Answer with events. An error of the backend within the grace time is an HTTP error."""
        grace = asyncio.get_running_loop().call_later(self._settings.header_grace, self._begin_early, generation, downstream)
        try:
            await generation.open()
        except ApiError as error:
            if self._beginning is None:
                raise
            await self._beginning
            generation.fail(error)
        finally:
            grace.cancel()
        await (self._beginning or self._begin(generation, downstream))
        last = await generation.run()
        if not await kept(self.gateway.store, record, generation.translator):
            last = not_stored(last.decode()).encode()
        await downstream.finish(last)
        return downstream.response

    def _begin_early(self, generation: Generation, downstream: Downstream) -> None:
        """The backend takes its time: show the client that there is life."""
        self._beginning = asyncio.create_task(self._begin(generation, downstream))

    async def _begin(self, generation: Generation, downstream: Downstream) -> Downstream:
        await downstream.prepare()
        self._downstream = downstream
        generation.begin()
        if not generation.translator.ended:  # else everything leaves with one write
            await downstream.flush()
        return downstream

    async def _collect(self, generation: Generation, headers: dict[str, str], record: Record | None) -> web.Response:
        """Answer with the final response: the same machine, its events unread."""
        await generation.run()
        translator = generation.translator
        if translator.error is not None:
            raise translator.error
        response = translator.response_json
        if not await kept(self.gateway.store, record, translator):
            response = not_stored(response)
        return web.Response(text=response, content_type="application/json", headers=headers)

    def _keep_alive(self, generation: Generation, downstream: Downstream, now: float) -> None:
        """A comment keeps proxies awake; an event resets the idle timers of clients that count nothing else (Codex)."""
        comment, event = self._settings.keepalive_comment, self._settings.keepalive_event
        if event and now - generation.last_event >= event:
            generation.emit(generation.translator.keep_alive())
            self._books.kept_alive("event")
        elif comment and now - max(generation.last_event, self._last_comment) >= comment:
            downstream.write(writer.COMMENT.encode())
            self._last_comment = now
            self._books.kept_alive("comment")

    def _pause(self) -> None:
        if self._generation is not None:
            self._generation.pause()

    def _resume(self) -> None:
        if self._generation is not None:
            self._generation.resume()


def _unread(_events: bytes) -> None:
    """The client asked for the final response alone."""
