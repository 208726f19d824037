"""What one response asks of backends: one chat request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Literal

import msgspec
from yarl import URL

from responses_gateway.backend.policies.retry import Reason, reason_of
from responses_gateway.backend.policies.routers import REASON_HEADER
from responses_gateway.backend.policies.routers import refusal as router_refusal
from responses_gateway.backend.pool import Pool
from responses_gateway.backend.tokenizer.tokenizers import ModelTokenizer
from responses_gateway.backend.transport.client import ChatStream
from responses_gateway.backend.transport.optional_fields import REFUSALS
from responses_gateway.probing.known_models import KnownModels
from responses_gateway.server.generation.request_log.request_log import RequestLog
from responses_gateway.server.generation.upstream import second_form
from responses_gateway.server.generation.upstream.chat_call import AnswerFilter, ChatCall, Receive
from responses_gateway.server.generation.upstream.continuation import CannotContinue, Cause, Continuation
from responses_gateway.server.recording.recording import Recording
from responses_gateway.stream.translator import Translator
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.span_attributes import chat_attributes
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import ApiError, chat_refused, in_client_terms, server_error, status_in_place
from responses_gateway.wire.sse import as_stream

COMPLETION_LIMIT = 64 * 1024 * 1024  # largest body of a backend that answers with one JSON object, in bytes
# How long the first events of the backend may wait until the tokens of the request are counted, in seconds, because the client
# waits for them.
_COUNTING_LIMIT = 1.0


class InputCounter:
    """Counts the tokens of chat requests while backends work on them that may report no usage."""

    __slots__ = ("_counted", "_counting", "_pool", "_tokenizer", "_translator")

    def __init__(self, pool: Pool, tokenizer: ModelTokenizer, translator: Translator) -> None:
        """The translator's token counter gets the numbers."""
        self._pool = pool
        self._tokenizer = tokenizer
        self._translator = translator
        self._counted: bytes | None = None
        self._counting: asyncio.Task[None] | None = None

    def start(self, call: ChatCall) -> None:
        """Begin to count a request; once, though several backends may be asked."""
        if call.data is self._counted:
            return
        self._counted = call.data
        if not self._pool.models.all_report_usage(call.route.model):
            self._counting = asyncio.create_task(_count_input(self._translator, self._tokenizer, call.body))

    async def wait(self) -> None:
        """Wait until the request is counted, but not for long."""
        if self._counting is not None:
            await asyncio.wait({self._counting}, timeout=_COUNTING_LIMIT)

    def close(self, backend: str, *, reported: bool) -> None:
        """Stop counting. `reported`: the backend has counted the tokens itself, and need not be watched from now on."""
        if self._counting is not None:
            self._counting.cancel()
        if reported:
            self._pool.models.usage_reported(backend)


class Upstream:
    """Sends a chat request to the pool, and reads the answer: `open`, `attach`, `finish`. Where that breaks off, another
    backend is asked the same (`redirect`), or has to continue the answer (`continue_elsewhere`).

    `call` is the request; `last_read` when the backend sent something, by the loop's `clock`; `silence` the error of a backend
    that was dropped because it sent nothing."""

    __slots__ = (
        "_attached", "_chat", "_counter", "_crowded", "_filter", "_idle_timeout", "_instead", "_known", "_log",
        "_pool", "_read", "_recording", "_slow", "call", "clock", "continuation", "last_read", "silence",
    )  # fmt: skip

    def __init__(
        self,
        pool: Pool,
        known: KnownModels,
        call: ChatCall,
        log: RequestLog,
        recording: Recording | None,
        idle_timeout: float,
        continuation: Continuation | None,
        counter: InputCounter | None,
        answer_filter: AnswerFilter | None = None,
    ) -> None:
        """`known`: what is known of the models. `idle_timeout`: how many seconds a backend may send nothing. `continuation` has
        another backend continue an answer that breaks off. `answer_filter` decides what of the answers passes."""
        self.call = call
        self._pool = pool
        self._known = known
        self._log = log
        self._recording = recording
        self._idle_timeout = idle_timeout
        self.continuation = continuation
        self._counter = counter
        self._filter = answer_filter
        self._instead: bytes | None = None  # takes the place of an answer that must not be asked for
        self._slow = False  # the client takes no more
        self._crowded = False  # the filter does not
        self._chat: ChatStream | None = None  # the backend's answer, once it has begun
        self._attached = False
        self._read = False  # to its end, or until it broke off
        self.clock = pool.members.clock
        self.last_read = self.clock()
        self.silence: ApiError | None = None

    @property
    def opened(self) -> bool:
        """Whether an answer has begun: that of a backend, or what takes its place."""
        return self._chat is not None or self._instead is not None

    def ask(self, call: ChatCall) -> None:
        """Have `open` send another request."""
        if self._filter is not None:
            self._filter.stop()
        self.call = call
        self._forget_answer()
        self.last_read = self.clock()

    def ask_again(self, call: ChatCall) -> None:
        """Do as `ask` for another turn of the model."""
        if self._recording is not None:
            self._recording.asked_again(call.data)
        self.ask(call)

    async def open(self) -> None:
        """Wait until a backend begins its answer. Raise `ApiError` if it refuses the request, or if none can be reached."""
        self._log.facts.phase = "backend"
        if self._filter is not None:
            self._instead = await self._filter.admit(self.call)
            if self._instead is not None:
                return
        if self.call.keeper is not None:
            self.call = await self.call.keeper.asking(self.call)
        if self._counter is not None:
            self._counter.start(self.call)
        call = self.call
        sent = second_form.with_taken_tools(self._known, self._pool, call) if self._known.plain_tools else call
        if sent.strict is None:
            chat = await self._pool.open_chat(sent.data, self._headers_for, sent.route, added=sent.added)
        else:
            chat, sent = await second_form.with_strict_tools(self._pool, sent, self._headers_for)
        self.call = sent
        self._chat = chat
        if chat.status in REFUSALS:
            chat, self.call = await second_form.in_another_form(self._pool, self._known, sent, chat, self._headers_for)
            self._chat = chat
        if chat.left_out or self.call is not call:
            second_form.report_changes(self._log, call, self.call, chat)
        self._log.facts.pod = chat.pod or None
        if chat.status != 200:
            raise await self._refusal(chat)
        if self._counter is not None:
            await self._counter.wait()

    def attach(self, receive: Receive, translator: Translator, *, paused: bool) -> None:
        """Have `receive` take what an event stream brings, from its beginning, for a translator; once for each answer."""
        chat = self._chat
        translator.has_client_key = chat is None or chat.has_client_key
        if self._instead is not None:
            receive(self._instead)
            return
        if chat is None or not chat.is_event_stream or self._attached:
            return
        if self._filter is not None:
            self._filter.begin(self, receive)
            receive = self._pass_through
        self._attached = True
        self._slow = paused
        self._log.facts.phase = "stream"
        if paused:
            chat.pause()
        chat.attach(receive)

    def _pass_through(self, data: bytes) -> None:
        assert self._filter is not None
        self.last_read = self.clock()
        self._filter.feed(data)

    async def finish(self) -> bytes | None:
        """Wait for the end of an event stream, or return the body of any other answer. Raise `ApiError` if it breaks off."""
        if self._filter is None:
            return await self._finish()
        broken: ApiError | None = None
        completion: bytes | None = None
        try:
            completion = await self._finish()
        except ApiError as error:
            broken = error.copy()  # one that was raised would keep this frame, and be kept by it
        if completion is not None:
            self._filter.begin(self, None)
            self._filter.feed(as_stream(completion))
        return await self._filter.end(completion, broken)

    async def _finish(self) -> bytes | None:
        chat = self._chat
        assert chat is not None
        self._read = True
        if self._attached:
            await chat.finish()
            return None
        self._log.facts.phase = "stream"
        completion = await chat.read(COMPLETION_LIMIT)
        chat.close()  # its place is free for whoever waits: a correction, say
        return completion

    def redirect(self, refused: ApiError | None = None) -> bool:
        """Leave a backend whose answer broke off, was dropped, or was an error (`refused`). Tell whether `open` may get another
        answer: of another backend, or of this one, from which it now takes such an error as the refusal that it is."""
        chat = self._chat
        if chat is None or (self._filter is not None and self._filter.closed):
            return False
        chat.drop()  # also one that was left: its end would be taken for that of the next answer
        cause: Reason | Literal["refused"] | None = "broke" if self.silence is None else "silent"
        if refused is not None:
            status = status_in_place(refused)
            may_be_asked = self._pool.note_refusal_in_stream(chat.backend, status, self.call.route)
            has_other_form = may_be_asked and refused.code != "context_length_exceeded"
            cause = "refused" if has_other_form else reason_of(status)
        if cause is None:
            return False
        same = self.call.route
        route = same if cause == "refused" else self._pool.retry_route(same, chat.backend, cause)
        if route is None:
            return False
        if self._log.trace is not None:
            self._log.trace.call_broke(cause)
        self.call = msgspec.structs.replace(self.call, route=route)
        self._forget_answer()
        return True

    async def continue_elsewhere(self, translator: Translator, cause: Cause) -> bytes | None:
        """Have another backend continue the answer that broke off. Return the first events of that, None if nobody can."""
        continuation = self.continuation
        if continuation is None or (self._filter is not None and self._filter.closed):
            return None
        chat = self._chat
        failed = ""  # another gateway knew it
        if chat is not None:
            failed = chat.backend
            chat.close()
        elif self.call.keeper is not None:  # to which this is the first one
            self.call = await self.call.keeper.asking(self.call)
        self._forget_answer()
        if self._log.trace is not None:
            self._log.trace.call_broke(cause)
        try:
            opened = await continuation.open(translator, self.call, failed, cause, self._headers_for)
        except CannotContinue as reason:
            self._log.not_continued(cause, str(reason), possible=continuation.obstacle is None)
            self._chat = chat
            return None
        self._chat = opened.chat
        self.call = msgspec.structs.replace(self.call, route=opened.route)
        self.last_read = self.clock()
        self._log.continued(cause, failed, opened.chat.backend, opened.chat.pod, opened.kept, self.last_read)
        return opened.events

    def _forget_answer(self) -> None:
        if self._filter is not None:
            self._filter.forget()
        self._instead = None
        self._chat = None
        self._attached = False
        self._read = False
        self.silence = None

    def _headers_for(self, backend: str, url: URL) -> Mapping[str, str]:
        now = self.clock()
        self.last_read = now
        headers = self._log.calling(backend, url, self.call.headers, now)
        if self._log.trace is not None:
            served_as = self._pool.served_as(backend, self.call.route.model)
            self._log.trace.call_asks(chat_attributes(self.call.body, served_as))
        return headers

    async def _refusal(self, chat: ChatStream) -> ApiError:
        """Return the error for the refusal of a backend."""
        refusal = await chat.read_refusal()
        error = chat_refused(chat.status, refusal, chat.retry_after)
        client_error = self._pool.refusal_for_clients(chat, error)
        if self._recording is not None:
            self._recording.backend_refused(chat.status, refusal, chat.retry_after, gateway_key=client_error is not error)
        reason = chat.header(REASON_HEADER)
        if reason and chat.status in (429, 503):
            return router_refusal(chat.status, reason, chat.retry_after)
        return in_client_terms(client_error)

    # ---- while it is read --------------------------------------------------------------------------------------------

    def is_silent(self, now: float) -> bool:
        """Tell whether the backend has sent nothing for too long; while the filter is busy, nobody waits for the backend."""
        if self._filter is not None and self._filter.busy:
            return False
        return self._chat is not None and now - self.last_read > self._idle_timeout

    def drop(self) -> ApiError:
        """End the connection to a silent backend, so that `finish` raises. Return the error that tells why."""
        if self._chat is not None:
            self._chat.drop()
        return server_error(f"The backend sent nothing for {self._idle_timeout:g} seconds.", 504)

    def pause(self) -> None:
        """Read no more: the client is slower than the model."""
        self._slow = True
        if self._chat is not None:
            self._chat.pause()

    def resume(self) -> None:
        """Read again, unless the filter has too much."""
        self._slow = False
        if not self._crowded:
            self._read_on()

    def _read_on(self) -> None:
        self.last_read = self.clock()
        if self._chat is not None:
            self._chat.resume()

    def hold(self) -> None:
        """See `AnswerSource`."""
        self._crowded = True
        if self._chat is not None:
            self._chat.pause()

    def release(self) -> None:
        """See `AnswerSource`."""
        self._crowded = False
        if not self._slow:
            self._read_on()

    # ---- leaving it --------------------------------------------------------------------------------------------------

    def leave(self, refused: ApiError | None = None) -> None:
        """Give the connection back if the answer was complete, or was an error (`refused`); nothing more is wanted of it."""
        if self._chat is not None:
            if refused is not None:
                self._chat.status = status_in_place(refused)  # with 200, the backend would have succeeded
            self._chat.leave()

    def disconnect(self) -> None:
        """End the connection: a backend that has not finished stops generating."""
        if self._filter is not None:
            self._filter.stop()
        if self._chat is not None:
            self._chat.close()

    async def settle(self) -> None:
        """Take the end of an answer that has ended before `finish` was called. Behind it the connection may serve another
        request, and the backend is free for the next turn, which has the same beginning."""
        if self._attached and not self._read:
            try:  # noqa: SIM105, because `suppress` costs three calls for each request
                await self.finish()
            except ApiError:
                pass

    def end_turn(self, used: Usage | None) -> None:
        """Forget the answer of a turn, which ended with calls; once more does nothing. `used` is what the turn has used."""
        self.leave()
        if self._log.facts.phase != "tools":
            self._log.turn_ended(used, self.clock())
        self._log.facts.phase = "tools"
        self._chat = None

    def forget(self) -> None:
        """Forget an answer that has been read, or broke off after its end."""
        self._chat = None

    def close(self, translator: Translator) -> None:
        """Disconnect for good. The pool learns what the answer has shown of its backend."""
        if self._filter is not None:
            self._filter.stop()
            self._filter.close()
        backend = ""
        if self._chat is not None:
            self._chat.close()
            backend = self._chat.backend
        if translator.answer.diverged == "other_prompt" and backend:
            self._pool.ids_ignored(backend)
        if self._counter is not None:
            self._counter.close(backend, reported=translator.lifecycle.turn.usage is not None)


async def _count_input(translator: Translator, tokenizer: ModelTokenizer, body: Mapping[str, object]) -> None:
    try:
        counted = await asyncio.to_thread(tokenizer.count_input, body)
        translator.tokens.input_tokens = (translator.tokens.input_tokens or 0) + counted
    except ApiError as error:  # pictures, or no template: the usage stays unknown
        fields = logs.fields(response_id=translator.response_id, reason=error.message)
        logs.logger().debug("input not counted", extra=fields)
