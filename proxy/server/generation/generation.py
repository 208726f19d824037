"""One answer of a backend, from its socket to a sink that takes events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec
from yarl import URL

from proxy.backend.policies.retry import Reason
from proxy.backend.pool import Pool
from proxy.backend.served_models import Route
from proxy.backend.tokenizer.tokenizers import ModelTokenizer
from proxy.backend.transport.client import ChatStream
from proxy.server.custom_tools.repair import InputRepair
from proxy.server.generation.compaction import AutomaticCompaction
from proxy.server.generation.continuable import CannotContinue
from proxy.server.generation.continuation import Cause, Continuation
from proxy.server.generation.hosted_turns import HostedTurns
from proxy.server.generation.request_log import Phase as LogPhase
from proxy.server.generation.request_log import RequestLog
from proxy.server.recording.recording import Recording
from proxy.settings import Settings
from proxy.stream import writer
from proxy.stream.failover import BrokenOff
from proxy.stream.options import StreamOptions
from proxy.stream.translator import Translator
from proxy.telemetry import logs
from proxy.wire.errors import ApiError, gateway_key_refused, in_client_terms, read_error, server_error

# Largest body of a backend that answers with one JSON object, in bytes.
COMPLETION_LIMIT = 64 * 1024 * 1024
# How long the first events of the backend may wait until the tokens of the request are counted, in seconds.
_COUNTING_LIMIT = 1.0
# What a client is told of a response that no other gateway could go on with.
LOST = "The gateway that ran this response stopped before it ended."
# What a client is told of an answer that broke off without an error, and that no other backend goes on with.
_ENDS: dict[BrokenOff, str] = {
    "eof": "The backend closed the stream before the model finished.",
    "engine": "The backend reported an internal error.",
    "abort": "The backend aborted the generation.",
}


class Sink(Protocol):
    """Takes the events of a response: a client's connection, the store, or nobody."""

    @property
    def live(self) -> bool:
        """A client reads the events as they come, and wants keep-alives."""

    @property
    def slow(self) -> bool:
        """The client has more to read than is to be kept for it."""

    @property
    def unsent(self) -> int:
        """Bytes that the client has not taken yet."""

    def write(self, events: bytes) -> None:
        """Take whole events."""


class Unread:
    """Takes events that nobody reads: only the final response is wanted."""

    live = False
    slow = False
    unsent = 0

    def write(self, events: bytes) -> None:
        """Do nothing."""


class Phase(Enum):
    """The phases of a generation, in the order in which they follow each other."""

    PREPARED = "prepared"
    WAITING = "waiting"  # for the backend to begin its answer
    STREAMING = "streaming"  # events of the backend are translated as they come
    READING = "reading"  # the backend answers with one JSON object
    RUNNING_TOOLS = "running tools"  # the model waits for the results of hosted calls
    DECIDING = "deciding"  # the answer is complete, but the input of a custom tool may have to be corrected
    ENDED = "ended"


_LOG_PHASES: dict[Phase, LogPhase] = {
    Phase.WAITING: "backend",
    Phase.STREAMING: "stream",
    Phase.READING: "stream",
    Phase.RUNNING_TOOLS: "tools",
}


class Question(NamedTuple):
    """What is asked of the backend: the chat request as JSON, the headers that go with it, and where it goes."""

    body: bytes
    headers: Mapping[str, str]
    route: Route


class Generation:
    """One answer: `open` it, `run` it, `close` it.

    The sink gets whole events as they come, except for the terminal event: `translator.terminal` has it, so that the response
    can be stored first."""

    __slots__ = (
        "_chat", "_clock", "_compaction", "_compaction_item", "_continuation", "_counting", "_drop_client", "_failure",
        "_feed", "_hosted", "_last_comment", "_last_read", "_log", "_note_read", "_opening", "_options", "_pool", "_prelude",
        "_question", "_recording", "_repair", "_settings", "_silence", "_taken_at", "_taken_over", "_tokenizer", "_unsent",
        "_waiting", "_watching", "_write", "last_event", "phase", "sink", "translator",
    )  # fmt: skip

    def __init__(
        self,
        pool: Pool,
        repair: InputRepair,
        settings: Settings,
        translator: Translator,
        options: StreamOptions,
        question: Question,
        log: RequestLog,
        recording: Recording,
        sink: Sink,
        *,
        tokenizer: ModelTokenizer | None,
        compaction: AutomaticCompaction | None,
        hosted: HostedTurns | None,
        continuation: Continuation | None,
        drop_client: Callable[[], None],
    ) -> None:
        """`options` are those of the translator. `tokenizer` counts the request for backends that may report no usage.
        `compaction` comes before the answer, and gives another chat request. `hosted` runs the tools that the gateway runs
        itself. `continuation` has another backend go on with an answer that breaks off. `drop_client` is called for a client
        that does not read."""
        self.phase = Phase.PREPARED
        self.translator = translator
        self._pool = pool
        self._repair = repair
        self._settings = settings
        self._options = options
        self._question = question
        self._log = log
        self._recording = recording
        self.sink = sink
        self._tokenizer = tokenizer
        self._drop_client = drop_client
        self._compaction = compaction  # until it is done
        self._compaction_item: str | None = None  # until it is sent
        self._hosted = hosted
        self._continuation = continuation
        # Makes the events of hosted tools before the first turn.
        self._prelude: list[Callable[[], bytes]] = []
        if hosted is not None:
            self._prelude += [partial(translator.list_tools, listing) for listing in hosted.listings]
        self._chat: ChatStream | None = None  # the backend's answer, once it has begun
        self._opening: asyncio.Task[None] | None = None  # waits for it, where nobody else does
        self._waiting: asyncio.Timeout | None = None  # ends the wait for it
        self._counting: asyncio.Task[None] | None = None
        self._failure: ApiError | None = None  # ended the response from outside
        self._silence: ApiError | None = None  # the answer was dropped for it
        self._taken_over = False
        # Bound once, for each read.
        self._feed = translator.feed
        self._write = sink.write
        self._note_read = log.reads.append
        self._watching = True  # single reads are looked at, until nobody needs that any more
        self._clock = asyncio.get_running_loop().time
        self._last_read = self._clock()
        self._last_comment = 0.0
        self.last_event = self._last_read
        self._unsent = 0  # bytes, at the last tick of a slow client
        self._taken_at = 0.0  # when a slow client took some

    # ---- opening -----------------------------------------------------------------------------------------------------

    def count_input(self, request: Mapping[str, Any]) -> None:
        """Count the tokens of the chat request while a backend works on it that may report no usage."""
        if self._tokenizer is None or self._compaction is not None:
            return
        if not self._pool.members.all_report_usage(self._question.route.model):
            self._counting = asyncio.create_task(_count_input(self.translator, self._tokenizer, request))

    async def open(self) -> None:
        """Wait for the backend's answer to begin. Raise `ApiError` if the backend refuses the request or cannot be reached."""
        if self._opening is not None:
            await asyncio.wait({self._opening})
            self._opening.result()
            return
        self._enter(Phase.WAITING)
        try:
            async with asyncio.timeout(None) as self._waiting:
                if self._failure is None:
                    await self._ask()
        except (ApiError, TimeoutError):
            if self._failure is None:
                raise
        finally:
            self._waiting = None
        if self._failure is not None:
            raise self._failure.copy()

    async def open_within(self, seconds: float) -> None:
        """Do as `open`, but leave what takes longer to `run`. Raise what fails within the time."""
        opening = asyncio.create_task(self.open())
        try:
            await asyncio.wait({opening}, timeout=seconds)
            if opening.done():
                opening.result()
            self._opening = opening
        except BaseException:
            opening.cancel()
            raise

    async def _ask(self) -> None:
        if self._compaction is not None:
            await self._compact(self._compaction)
        if self._hosted is not None and self._hosted.approved:
            await self._run_approved(self._hosted)
        chat = await self._pool.open_chat(self._question.body, self._headers_for, self._question.route)
        self._chat = chat
        if chat.status != 200:
            raise await self._refusal(chat)
        if self._counting is not None:
            await asyncio.wait({self._counting}, timeout=_COUNTING_LIMIT)

    def _headers_for(self, backend: str, url: URL) -> Mapping[str, str]:
        now = self._clock()
        self._last_read = now
        return self._log.calling(backend, url, self._question.headers, now)

    async def _refusal(self, chat: ChatStream) -> ApiError:
        """Return the error for the refusal of a backend."""
        refusal = await chat.read_refusal()
        self._recording.backend_refused(chat.status, refusal, chat.retry_after, gateway_key=chat.refuses_gateway_key)
        if chat.refuses_gateway_key:
            return gateway_key_refused(chat.status)
        return in_client_terms(read_error(chat.status, refusal, chat.retry_after))

    async def _compact(self, compaction: AutomaticCompaction) -> None:
        item, body = await compaction.run(self._log)
        self._compaction_item = item
        self._question = self._question._replace(body=body)
        self._recording.compacted(body)
        self._compaction = None
        self._last_read = self._clock()
        self._send_compaction_item()
        self.count_input(msgspec.json.decode(body))

    # ---- running -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Emit the first events, and those of what the backend has sent already."""
        if self.translator.status == "queued":
            self.emit(self.translator.start())
        self._send_compaction_item()
        self._send_prelude()
        chat = self._chat
        if chat is not None and chat.is_event_stream and self.phase is Phase.WAITING and self._failure is None:
            self._enter(Phase.STREAMING)
            chat.attach(self._receive)

    async def run(self) -> None:
        """Take the answer to its end, whatever that is: afterwards the translator has ended."""
        translator = self.translator
        try:
            if self._taken_over:
                await self._go_on()
            else:
                await self._begin()
            while not translator.ended:  # another turn of the model
                await self._take()
        except ApiError as error:
            self.fail(error)
        except Exception as defect:  # whatever went wrong, there is a terminal event; the log reports the defect
            translator.defect = defect
            self.fail(server_error("The gateway failed. This is a defect: please report it.", 500))
        self.phase = Phase.ENDED

    async def _begin(self) -> None:
        self.begin()
        if self._chat is None or self._failure is not None:
            await self.open()
            self.begin()
        await self._take()

    def take_over(self) -> None:
        """Have `run` go on where another gateway has stopped: the translator has repeated what happened there."""
        self._taken_over = True

    async def _go_on(self) -> None:
        translator = self.translator
        if translator.ended:
            return
        if translator.unheard:  # the client has seen nothing that depends on the answer
            await self._begin()
        elif translator.continuable:
            if not await self._continue("restart"):
                raise server_error(LOST)
            await self._take()
        elif translator.lifecycle.finish_reason is not None:
            self.emit(translator.finish())
            await self._decide()
        else:
            raise server_error(LOST)

    async def _take(self) -> None:
        translator = self.translator
        while True:
            try:
                completion = await self._read_to_end()
                self.emit(translator.finish() if completion is None else translator.feed_completion(completion))
                if translator.failover.broken_off is None or translator.ended:
                    break
                error = translator.failover.engine_error or server_error(_ENDS[translator.failover.broken_off])
            except ApiError as broken:
                error = self._silence or broken
                if await self._ask_another_backend():
                    continue
                if self._calls_are_whole:
                    self._end_body()
                    break
            if not await self._continue(translator.failover.broken_off or ("broke" if self._silence is None else "silent")):
                raise error.copy() from None
        await self._decide()

    @property
    def _calls_are_whole(self) -> bool:
        """Whether hosted calls can be run though the answer broke off: the model has ended it, so that only usage was lost."""
        translator = self.translator
        ended = translator.failover.answer_ended and not translator.ended
        return self._hosted is not None and ended and self._failure is None

    def _end_body(self) -> None:
        """Take an answer that broke off as it is."""
        if self._chat is not None:
            self._chat.close()
            self._chat = None  # nothing is expected of it
        self.emit(self.translator.finish())

    async def _decide(self) -> None:
        """Do what is left when the answer is complete: judge calls, run them, begin another turn of the model."""
        translator = self.translator
        self.phase = Phase.DECIDING
        while translator.awaiting is not None or translator.calls_to_run():
            if translator.awaiting is not None:
                await self._repair.settle(translator, self._options, self._settings, self._question.headers, self.emit)
            elif self._hosted is not None:
                await self._run_calls(self._hosted)
        if translator.wants_turn and self._hosted is not None:
            await self._begin_turn(self._hosted)

    async def _run_calls(self, hosted: HostedTurns) -> None:
        self._leave_backend()
        self._chat = None  # nothing is expected of it
        if self.phase is not Phase.RUNNING_TOOLS:
            self._log.turn_ended(self.translator.usage_by_turn[-1], self._clock())
        self._enter(Phase.RUNNING_TOOLS)
        await hosted.run_calls(self.translator, self.emit)

    async def _begin_turn(self, hosted: HostedTurns) -> None:
        """Ask the backend again, which now has the results of the calls."""
        body = await hosted.next_turn(msgspec.json.decode(self._question.body), self.translator)
        chat = msgspec.json.encode(body)
        every_backend = replace(self._question.route, avoid=frozenset())  # one that failed may be well again
        self._question = self._question._replace(body=chat, route=every_backend)
        self._recording.asked_again(chat)
        self._chat = None
        self._opening = None
        self._silence = None
        self._last_read = self._clock()
        self.count_input(body)
        await self.open()
        self.begin()

    async def _read_to_end(self) -> bytes | None:
        """Wait for the end of an event stream, or return the body of any other answer. Raise `ApiError` if it breaks off."""
        chat = self._chat
        assert chat is not None
        if self.phase is Phase.STREAMING:
            await chat.finish()
            if self.translator.unheard and not self.translator.ended:
                # A body without a length ends like this when its server dies.
                raise server_error("The backend closed the stream before the model finished.")
            return None
        self._enter(Phase.READING)
        completion = await chat.read(COMPLETION_LIMIT)
        chat.close()  # its place is free for whoever waits: a correction, say
        return completion

    async def _ask_another_backend(self) -> bool:
        """Ask another backend if the answer broke off, or was dropped, before the model said anything: what the client has seen
        by then holds for any answer. Return False if there is no other. Raise `ApiError` if that one refuses."""
        chat = self._chat
        if chat is None or self._failure is not None or not self.translator.unheard:
            return False
        chat.close()
        reason: Reason = "silent" if self._silence is not None else "broke"
        other = self._pool.retry_route(self._question.route, chat.backend, reason)
        if other is None:
            return False
        self._question = self._question._replace(route=other)
        self._opening = None
        self._chat = None
        self._silence = None
        await self.open()
        self.begin()
        return True

    async def _continue(self, cause: Cause) -> bool:
        """Have another backend go on with the answer that broke off. Return False if that cannot be done."""
        chat = self._chat
        continuation = self._continuation
        translator = self.translator
        if continuation is None or self._failure is not None:
            return False
        if translator.ended or translator.failover.answer_ended:  # nothing is missing
            return False
        failed = ""  # another gateway knew it
        if chat is not None:
            failed = chat.backend
            chat.close()
        self._chat = None  # nothing is expected of it
        self._opening = None
        try:
            async with asyncio.timeout(None) as self._waiting:
                body, _, route = self._question
                opened = await continuation.open(translator, body, route, failed, cause, self._headers_for)
        except CannotContinue as reason:
            self._log.not_continued(cause, str(reason), possible=continuation.obstacle is None)
            self._chat = chat
            return False
        except TimeoutError:
            return False
        finally:
            self._waiting = None
        self._chat = opened.chat
        if self._failure is not None:
            return False
        self._question = self._question._replace(route=opened.route)
        self._silence = None
        self._last_read = self._clock()
        self._log.continued(cause, failed, opened.chat.backend, opened.kept, self._last_read)
        self.emit(opened.events)
        if self.sink.slow:
            opened.chat.pause()
        self._enter(Phase.STREAMING)
        opened.chat.attach(self._receive)
        return True

    def _receive(self, data: bytes) -> None:
        """Translate what one read brought, and pass it on in one go."""
        now = self._clock()
        self._last_read = now
        translator = self.translator
        events = self._feed(data)
        if translator.awaiting is not None or translator.ended or translator.failover.broken_off is not None:
            self._leave_backend()
        if not events:
            return
        self._note_read(now)
        if self._watching:
            self._watch(events, now)
        self.last_event = now
        self._write(events)

    def _watch(self, events: bytes, now: float) -> None:
        """Do what only some reads need: note when the first visible token came, and copy events where the stream is sampled."""
        log = self._log
        if log.visible_at is None and self.translator.visible:
            log.visible_at = now
        log.sent(events)
        self._watching = log.visible_at is None or log.sampling

    def emit(self, events: bytes) -> None:
        """Pass on events of the translator."""
        if self.translator.ended:
            self._leave_backend()
        if events:
            self._log.sent(events)
            self.last_event = self._clock()
            self._write(events)

    async def _run_approved(self, hosted: HostedTurns) -> None:
        calls, body = await hosted.run_approved(msgspec.json.decode(self._question.body), self._options.tools)
        self._question = self._question._replace(body=msgspec.json.encode(body))
        self._prelude += [partial(self.translator.approved_call, call) for call in calls]
        hosted.approved = ()
        self._last_read = self._clock()

    def _send_prelude(self) -> None:
        if self.translator.status != "queued":
            prelude = self._prelude
            self._prelude = []
            for events in prelude:
                self.emit(events())

    def _send_compaction_item(self) -> None:
        item = self._compaction_item
        if item is not None and self.translator.status != "queued":
            self._compaction_item = None
            self.emit(self.translator.insert("compaction", item))

    # ---- the end -----------------------------------------------------------------------------------------------------

    def fail(self, error: ApiError) -> None:
        """End the response as failed, and leave the backend. A caller of `open` gets the error."""
        self._failure = error.copy()
        if self.translator.status != "queued":
            self.emit(self.translator.fail(self._failure))
        if self._waiting is not None:
            self._waiting.reschedule(self._clock())
            self._waiting = None
        if self._chat is not None:
            self._chat.close()
        if self._hosted is not None:
            self._hosted.close()

    def cancel(self) -> None:
        """End the response because its client asked for that."""
        self.fail(ApiError(499, "The response was cancelled.", type="server_error", code="server_error"))

    def shut_down(self) -> None:
        """End the response because the gateway is stopping."""
        self.fail(shutting_down())

    def close(self) -> None:
        """Leave the backend: it stops generating, unless it has finished."""
        if self._opening is not None and not self._opening.cancel() and not self._opening.cancelled():
            self._opening.exception()  # fetched, since nobody may be waiting for it any more
        if self._counting is not None:
            self._counting.cancel()
        if self._hosted is not None:
            self._hosted.close()
        if self._chat is not None:
            self._chat.close()
        if self.translator.failover.diverged == "other_prompt" and self._chat is not None:
            self._pool.ids_ignored(self._chat.backend)
        if self.translator.lifecycle.usage is not None:
            self._pool.members.usage_reported(self._chat.backend if self._chat is not None else "")
        if self._options.grammars:
            self._repair.count_later(self.translator, self._options)

    def _leave_backend(self) -> None:
        """Give the connection back if the answer was complete; nothing more is wanted of it."""
        if self._chat is not None:
            if self.translator.status == "failed":
                self._chat.close()
            else:
                self._chat.leave()

    # ---- time --------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Apply the time limits, and keep the client's connection alive. The wait for a backend is limited by the pool."""
        self._log.count_gaps()
        if self.sink.slow:
            self._watch_slow_client(now)
            return
        if self.translator.ended:
            return
        if self._chat is not None and now - self._last_read > self._settings.idle_timeout:
            self._drop_silent_backend(self._chat)
        if self.sink.live and not self.translator.ended:
            self._keep_alive(now)

    def _watch_slow_client(self, now: float) -> None:
        """Drop a client that takes nothing. One large event may take long over a slow line: what counts is what has left."""
        unsent = self.sink.unsent
        if unsent < self._unsent:
            self._taken_at = now
        self._unsent = unsent
        if now - max(self.last_event, self._taken_at) > self._settings.idle_timeout:
            self._drop_client()

    def _drop_silent_backend(self, chat: ChatStream) -> None:
        chat.drop()
        error = server_error(f"The backend sent nothing for {self._settings.idle_timeout:g} seconds.", 504)
        goes_on = self.translator.unheard or (self.translator.continuable and self._continuation is not None)
        goes_on = goes_on or self._calls_are_whole
        if self._waiting is None and goes_on and self._silence is None:
            self._silence = error  # the read ends with that, and another backend may be asked
        else:
            self.fail(error)

    def _keep_alive(self, now: float) -> None:
        """Send a comment, which keeps proxies awake, or an event, which resets the idle timers of clients that count nothing
        else (Codex)."""
        comment = self._settings.keepalive_comment
        event = self._settings.keepalive_event
        if event and now - self.last_event >= event:
            self.emit(self.translator.keep_alive())
            self._log.kept_alive("event")
        elif comment and now - max(self.last_event, self._last_comment) >= comment:
            self._write(writer.COMMENT.encode())
            self._last_comment = now
            self._log.kept_alive("comment")

    def pause(self) -> None:
        """Read no more from the backend: the client is slower than the model."""
        if self._chat is not None:
            self._chat.pause()

    def resume(self) -> None:
        """Read on from the backend."""
        self._last_read = self._clock()
        if self._chat is not None:
            self._chat.resume()

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._log.phase = _LOG_PHASES[phase]


def shutting_down() -> ApiError:
    """Return the error for what cannot be finished, or begun, because the gateway is stopping."""
    error = server_error("The gateway is shutting down. Please try again.", 503)
    error.retry_after = 1
    return error


async def _count_input(translator: Translator, tokenizer: ModelTokenizer, body: Mapping[str, Any]) -> None:
    try:
        counted = await asyncio.to_thread(tokenizer.count_input, body)
        translator.tokens.input_tokens = (translator.tokens.input_tokens or 0) + counted
    except ApiError as error:  # pictures, or no template: the usage stays unknown
        fields = logs.fields(response_id=translator.response_id, reason=error.message)
        logs.logger().debug("input not counted", extra=fields)
