"""The life of one `POST /v1/responses`, from its first byte to its last."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
from aiohttp import web

from proxy.backend.client import ChatStream
from proxy.request import header_value
from proxy.server.background import Run
from proxy.server.books import Books
from proxy.server.downstream import Downstream
from proxy.server.errors import REQUEST_ID
from proxy.server.following import follow
from proxy.server.footing import NOTHING, find_footing
from proxy.server.gateway import Gateway
from proxy.server.generation import COMPLETION_LIMIT, LINGER, Generation
from proxy.server.keeping import ended, new_record, not_stored
from proxy.server.preparing import backend_headers, count_input, new_translator, translated
from proxy.server.stream_options import client_of
from proxy.server.tenants import tenant_of
from proxy.state import Record, StoreUnavailable
from proxy.stream import writer
from proxy.stream.translator import Translator
from proxy.telemetry import logs
from proxy.wire.chat_errors import read_error
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
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settings = gateway.settings
        self._request = request
        self._headers = backend_headers(self._settings, request.headers, request[REQUEST_ID])  # for the backend
        self._clock = asyncio.get_running_loop().time
        self._books = Books(
            gateway.metrics,
            request[REQUEST_ID],
            self._clock(),
            sampling=self._settings.invariant_sampling,
            log=self._settings.access_log,
        )
        self._recording = gateway.recorder.begin(request.headers) if gateway.recorder is not None else None
        self._translator: Translator | None = None
        self._downstream: Downstream | None = None
        self._opening: asyncio.Task[ChatStream] | None = None
        self._chat: ChatStream | None = None
        self._counting: asyncio.Task[None] | None = None
        self._failure: ApiError | None = None
        self._record: Record | None = None  # what is to be stored, until it is
        self._handed_over = False  # the response goes on without this exchange
        self._saving: asyncio.Task[None] | None = None
        self._final = ""  # the final response, where it is not the translator's
        self._watching = True  # until nobody looks at single reads any more
        self._last_read = self._last_event = self._last_comment = self._clock()
        self._ended_at: float | None = None

    async def run(self) -> web.StreamResponse:
        """Answer the request. Raises `ApiError` while no byte of the answer is sent."""
        self.gateway.exchanges.add(self)
        try:
            return await self._answer()
        except (asyncio.CancelledError, ConnectionError):  # which of the two depends on what we were doing
            if not self._handed_over:
                self._books.client_left()
            raise
        except ApiError as error:
            if self._recording is not None:
                self._recording.failed(error)
            client = client_of(self._settings, self._request.headers)
            if error.status == 400 and error.code not in _KNOWN_CODES and client.reads_invalid_prompt:
                error.code = "invalid_prompt"
            self._books.refused(error)
            raise
        finally:
            self._let_go()
            if not self._handed_over:
                self._close_books()
            self.gateway.exchanges.discard(self)
            self.ended.set_result(None)

    def _let_go(self) -> None:
        """End whatever still runs for this exchange."""
        if self._opening is not None and not self._opening.cancel() and not self._opening.cancelled():
            self._opening.exception()  # asked for: nobody may wait for it any more
        if self._counting is not None:
            self._counting.cancel()
        if self._chat is not None:
            self._chat.close()
        if self._downstream is not None:
            self._downstream.close()

    def _close_books(self) -> None:
        if self._translator is not None and self._translator.lifecycle.usage is not None:
            self.gateway.usage_reported = True
        outcome = self._books.close(self._translator, self._clock())
        if self._recording is not None and self.gateway.recorder is not None:
            self._recording.outcome = outcome
            self.gateway.recorder.keep(self._recording)

    def tick(self, now: float) -> None:
        """Time limits and keep-alives."""
        self._books.fold()
        translator, downstream = self._translator, self._downstream
        if translator is None:
            return
        if self._ended_at is not None and self._chat is not None and now - self._ended_at > LINGER:
            self._chat.close()
        if downstream is not None and downstream.slow:
            if now - self._last_event > self._settings.idle_timeout:
                self.abandon()
        elif self._ended_at is None:
            self._tend(translator, downstream, now)

    def _tend(self, translator: Translator, downstream: Downstream | None, now: float) -> None:
        if now - self._last_read > self._settings.idle_timeout:
            message = f"The backend sent nothing for {self._settings.idle_timeout:g} seconds."
            self._fail(server_error(message, 504))
        elif downstream is not None:
            self._keep_alive(translator, downstream, now)

    def shut_down(self) -> None:
        """The gateway is stopping: end the response truthfully, now."""
        self._fail(server_error("The gateway is shutting down. Please try again.", 503))

    def abandon(self) -> None:
        """Drop the client: it does not take what is there for it."""
        if self._request.transport is not None:
            self._request.transport.abort()

    # ---- the way down -----------------------------------------------------------------------------------------------

    async def _answer(self) -> web.StreamResponse:
        body = await self._request.read()
        if self._recording is not None:
            self._recording.asked(body)
        request = await self._parse(body)
        self._books.request(request.model, streamed=bool(request.stream))
        store, footing, tenant = self.gateway.store, NOTHING, tenant_of(self._request)
        if store is not None:
            footing = await find_footing(store, tenant, request)
        policy = self.gateway.parsers.policy(request.model)
        plan = translated(self.gateway, tenant, request, footing, policy)
        self._books.losses(plan.losses)
        thinking_open = await self.gateway.parsers.thinking_open(plan.body)
        chat, headers = msgspec.json.encode(plan.body), self._request.headers
        translator = new_translator(self.gateway, tenant, request, plan, headers, thinking_open, self._recording, chat)
        self._translator = translator
        if store is not None and request.store is not False:
            self._record = new_record(translator, request, footing, tenant)
        if request.background or (self._record is not None and request.stream and self._settings.on_disconnect == "continue"):
            return await self._detach(chat, tenant, request, header_value(plan.losses))
        self._books.phase = "backend"
        self._opening = asyncio.ensure_future(self._open(chat))
        if self.gateway.tokenizer is not None and not self.gateway.usage_reported:
            self._counting = asyncio.ensure_future(count_input(translator, self.gateway.tokenizer, plan.body))
        answer = self._stream if request.stream else self._collect
        return await answer(translator, header_value(plan.losses))

    async def _detach(self, chat: bytes, tenant: str, request: ResponsesRequest, losses: str) -> web.StreamResponse:
        """Let the response run on its own; the answer is how it stands, or its stream. `chat` is the chat request."""
        store, translator, record = self.gateway.store, self._translator, self._record
        assert translator is not None
        if store is None or record is None:
            message = "'background' needs stored responses: leave 'store' out or set it to true."
            raise invalid_request(message, "background", "unsupported_parameter")
        run = Run(store, replace(record, detached=True))
        generation = Generation(self.gateway, translator, chat, self._headers, self._books, run.sink)
        self._handed_over = True
        self.gateway.exchanges.discard(self)  # time limits and the end of the gateway are its own matter now
        if not request.background:
            await generation.open_within(self._settings.header_grace)
        assert self.gateway.background is not None
        snapshot = await asyncio.shield(self.gateway.background.start(run, generation))
        extra = {_LOSS_HEADER: losses} if losses else {}
        if request.stream:
            return await follow(self._request, self.gateway, tenant, record.id, -1, extra)
        return web.Response(text=snapshot, content_type="application/json", headers=extra)

    async def _parse(self, body: bytes) -> ResponsesRequest:
        if len(body) < _LARGE_BODY:
            return parse_request(body)
        return await asyncio.to_thread(parse_request, body)

    async def _open(self, body: bytes) -> ChatStream:
        """The backend's open answer. Raises `ApiError` if it is not one."""
        chat = self._chat = await self.gateway.backend.open_chat(body, self._headers)
        if chat.status != 200:
            raise await self._refusal(chat)
        return chat

    async def _refusal(self, chat: ChatStream) -> ApiError:
        body = await chat.read_refusal()
        if self._recording is not None:
            self._recording.refused(chat.status, body, chat.retry_after)
        return read_error(chat.status, body, chat.retry_after)

    # ---- the way up -------------------------------------------------------------------------------------------------

    async def _stream(self, translator: Translator, losses: str) -> web.StreamResponse:
        """Answer with events. An error of the backend within the grace time is an HTTP error."""
        chat = await self._opened(self._settings.header_grace)
        downstream = Downstream(self._request, self._pause, self._resume)
        if losses:
            downstream.response.headers[_LOSS_HEADER] = losses
        await downstream.prepare()
        self._downstream = downstream
        self._send(translator.start(), self._clock())
        try:
            if chat is not None:
                self._attach(chat)
            if not translator.ended:
                await downstream.flush()
            await self._pump(translator, chat)
        except ApiError as error:
            self._fail(error)
        except Exception as defect:
            translator.defect = defect  # the books log it; the client gets its terminal event all the same
            self._fail(server_error("The gateway failed. This is a defect: please report it.", 500))
        await self._saved()
        await downstream.finish()
        return downstream.response

    async def _collect(self, translator: Translator, losses: str) -> web.Response:
        """Answer with the final response: the same machine, its events unread."""
        self._books.sent(translator.start())
        try:
            await self._pump(translator, None)
        except ApiError as error:
            self._fail(error)
        if translator.error is not None:
            raise translator.error
        await self._saved()
        headers = {_LOSS_HEADER: losses} if losses else {}
        return web.Response(text=self._final or translator.response_json, content_type="application/json", headers=headers)

    async def _opened(self, within: float | None = None) -> ChatStream | None:
        """The backend's answer; None if it is not there in time. Raises `ApiError`."""
        opening = self._opening
        assert opening is not None
        if not opening.done():
            await asyncio.wait({opening}, timeout=within)
        if not opening.done():
            return None
        if self._failure is not None:
            raise self._failure
        return opening.result()

    def _attach(self, chat: ChatStream) -> None:
        self._books.phase = "stream"
        if chat.is_event_stream:
            chat.attach(self._receive)

    async def _pump(self, translator: Translator, chat: ChatStream | None) -> None:
        """Take the body to its end; `chat` is attached already, or None if the backend has not answered yet."""
        if chat is None:
            chat = await self._opened()
            assert chat is not None
            self._attach(chat)
        if chat.is_event_stream:
            await chat.finish()
            self._send(translator.finish(), self._clock())
        else:
            self._receive_completion(await chat.read(COMPLETION_LIMIT))

    def _receive(self, data: bytes) -> None:
        """What one read brought: translated and sent on in one go."""
        translator = self._translator
        assert translator is not None
        now = self._last_read = self._clock()
        events = translator.feed(data)
        if events:
            self._books.reads.append(now)
            if self._watching:
                self._watch(translator, events, now)
            if translator.ended:
                events = self._hold_last(events)
            if self._downstream is not None and events:
                self._downstream.write(events)
                self._last_event = now
        if translator.ended:
            self._finish(now)

    def _watch(self, translator: Translator, events: bytes, now: float) -> None:
        """What only some reads need: the moment of the first visible token, and a copy where the stream is sampled."""
        books = self._books
        if books.visible_at is None and translator.visible:
            books.visible_at = now
        books.sent(events)
        self._watching = books.visible_at is None or books.sampling

    def _receive_completion(self, body: bytes) -> None:
        translator = self._translator
        assert translator is not None
        self._send(translator.feed_completion(body), self._clock())

    def _send(self, events: bytes, now: float) -> None:
        if not events:
            return
        self._books.sent(events)
        if self._translator is not None and self._translator.ended:
            events = self._hold_last(events)
        if self._downstream is not None and events:
            self._downstream.write(events)
            self._last_event = now

    def _hold_last(self, events: bytes) -> bytes:
        """Hold the terminal event back until the response is stored: what a client is told is stored can be asked for."""
        translator, record = self._translator, self._record
        if translator is None or record is None:
            return events
        self._record = None
        if self._downstream is None and translator.error is not None:
            return events  # the answer will be an HTTP error: there is no response
        at = events.rfind(b"event: response.%b\n" % translator.status.encode())
        self._saving = asyncio.create_task(self._save(ended(record, translator), events[at:]))
        return events[:at]

    async def _save(self, record: Record, last: bytes) -> None:
        store = self.gateway.store
        assert store is not None
        try:
            await store.save(record)
        except Exception as error:  # nothing may stand between the client and its terminal event
            defect = None if isinstance(error, StoreUnavailable) else error
            logs.logger().error("not stored", exc_info=defect, extra=logs.fields(response_id=record.id, error=str(error)))
            last = not_stored(last.decode()).encode()
            self._final = not_stored(self._translator.response_json if self._translator else "")
        if self._downstream is not None:
            self._downstream.write(last)

    async def _saved(self) -> None:
        if self._saving is not None:
            await asyncio.shield(self._saving)

    def _finish(self, now: float) -> None:
        """The terminal event is out. A broken stream is dropped at once, a whole one may run to its end."""
        if self._ended_at is None:
            self._ended_at = now
            if self._chat is not None and self._translator is not None and self._translator.status == "failed":
                self._chat.close()

    def _fail(self, error: ApiError) -> None:
        """End as failed: in the stream if it has begun, else as an HTTP error."""
        self._failure = error
        if self._translator is not None and not self._translator.ended:
            self._send(self._translator.fail(error), self._clock())
            self._finish(self._clock())
        if self._opening is not None:
            self._opening.cancel()

    def _keep_alive(self, translator: Translator, downstream: Downstream, now: float) -> None:
        """A comment keeps proxies awake; an event resets the idle timers of clients that count nothing else (Codex)."""
        comment, event = self._settings.keepalive_comment, self._settings.keepalive_event
        if event and now - self._last_event >= event:
            self._send(translator.keep_alive(), now)
            self._books.kept_alive("event")
        elif comment and now - max(self._last_event, self._last_comment) >= comment:
            downstream.write(writer.COMMENT.encode())
            self._last_comment = now
            self._books.kept_alive("comment")

    def _pause(self) -> None:
        if self._chat is not None:
            self._chat.pause()

    def _resume(self) -> None:
        self._last_read = self._clock()
        if self._chat is not None:
            self._chat.resume()
