"""One response, from the request to a backend to a sink that takes its events: a client's connection, with keep-alives, and
an end for clients that do not read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from responses_gateway.server.generation.hosted_tools.turns import FurtherTurns
from responses_gateway.server.generation.preparation.prelude import Prelude
from responses_gateway.server.generation.request_log.request_log import RequestLog
from responses_gateway.server.generation.upstream.continuation import Cause
from responses_gateway.server.generation.upstream.upstream import Upstream
from responses_gateway.settings import Settings
from responses_gateway.stream.answer.answer import Answer
from responses_gateway.stream.lifecycle.machine import Lifecycle
from responses_gateway.stream.lifecycle.needs import AnotherTurn, BrokenOff, Continue, Ended, NotAnswered, RunCalls, Verdict
from responses_gateway.stream.translator import Translator, was_stopped
from responses_gateway.wire.errors import ApiError, server_error
from responses_gateway.wire.sse import COMMENT

# The error message of a response that no other gateway could continue.
LOST = "The gateway that ran this response stopped before it ended."
# The error message of an answer that broke off without an error, and that no other backend continues.
_ENDS: dict[BrokenOff, str] = {
    "eof": "The backend closed the stream before the model finished.",
    "engine": "The backend reported an internal error.",
    "abort": "The backend aborted the generation.",
}

# What a stream needs when nothing more of the backend's body is wanted; before hosted calls, it is read to its end.
_NO_MORE_BODY = frozenset({Ended, Verdict, Continue, NotAnswered})
# Seconds behind the end of an answer until its body is not waited for any more: usage may still come. Where some has come with
# the end itself, a last chunk may complete it.
_WITHOUT_USAGE = 2.0
_WITH_USAGE = 0.5
# Decides on the inputs of custom tools that wait for a verdict, and passes on the events that were held for it.
Judge: TypeAlias = Callable[[Callable[[bytes], None]], Awaitable[None]]
_R = TypeVar("_R")


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


class NullSink:
    """Takes events that nobody reads: only the final response is wanted."""

    live = False
    slow = False
    unsent = 0

    def write(self, events: bytes) -> None:
        """Do nothing."""


class ClientTimer:
    """Knows by the loop's clock when the client got something (`last_event`), and what is due."""

    __slots__ = (
        "_drop_client", "_last_comment", "_lifecycle", "_log", "_note_read", "_settings", "_taken_at", "_times", "_unsent",
        "_watching", "_write", "last_event", "sink",
    )  # fmt: skip

    def __init__(
        self, sink: Sink, log: RequestLog, settings: Settings, lifecycle: Lifecycle, drop_client: Callable[[], Any], now: float
    ) -> None:
        """`lifecycle` shows when a user sees something; `drop_client` is called for a client that does not read."""
        self.sink = sink
        self.last_event = now
        self._log = log
        self._times = log.times
        self._settings = settings
        self._lifecycle = lifecycle
        self._drop_client = drop_client
        self._watching = True  # single reads are looked at, until nobody needs that any more
        # Bound once, for each read.
        self._note_read = log.times.reads.append
        self._write = sink.write
        self._last_comment = 0.0
        self._unsent = 0  # bytes, at the last tick of a slow client
        self._taken_at = 0.0  # when a slow client took some

    def pass_on(self, events: bytes, now: float) -> None:
        """Pass on the events that one read of the backend brought."""
        self._note_read(now)
        if self._watching:
            self._watch(events, now)
        self.last_event = now
        self._write(events)

    def _watch(self, events: bytes, now: float) -> None:
        """Do what only some reads need: note when the first visible token came, and copy events where the stream is sampled."""
        log = self._log
        times = self._times
        if times.visible_at is None and self._lifecycle.turn.visible:
            times.visible_at = now
        if log.sample is not None:
            log.sent(events)
        self._watching = times.visible_at is None or log.sample is not None

    def write(self, events: bytes, now: float) -> None:
        """Pass on events that no read of the backend brought."""
        if self._log.sample is not None:
            self._log.sent(events)
        self.last_event = now
        self._write(events)

    def is_slow(self, now: float) -> bool:
        """Tell whether the client is slow; drop one that takes nothing. One large event may take long over a slow line: what
        counts is what has left."""
        self._times.count_gaps()
        if not self.sink.slow:
            return False
        unsent = self.sink.unsent
        if unsent < self._unsent:
            self._taken_at = now
        self._unsent = unsent
        if now - max(self.last_event, self._taken_at) > self._settings.idle_timeout:
            self._drop_client()
        return True

    def due(self, now: float) -> Literal["event", "comment"] | None:
        """Return the keep-alive that is due: a comment, which keeps proxies awake, or an event, which resets the idle timers
        of clients that count nothing else (Codex)."""
        comment = self._settings.keepalive_comment
        event = self._settings.keepalive_event
        if not self.sink.live:
            return None
        if event and now - self.last_event >= event:
            return "event"
        if comment and now - max(self.last_event, self._last_comment) >= comment:
            return "comment"
        return None

    def keep_alive(self, event: bytes, now: float) -> None:
        """Send an event that keeps the client waiting."""
        self.write(event, now)
        self._log.kept_alive("event")

    def comment(self, now: float) -> None:
        """Send a comment."""
        self._log.kept_alive("comment")
        self._write(COMMENT.encode())
        self._last_comment = now


class AnswerEnd:
    """Knows when an answer is over whose body is not: the model has ended it, and the backend keeps the connection open."""

    __slots__ = ("_answer", "_since")

    def __init__(self) -> None:
        self._answer: Answer | None = None  # the one that has ended
        self._since = 0.0

    def wait(self) -> None:
        """Begin anew: the rest of the body may be there, and is not read."""
        self._answer = None

    def is_over(self, translator: Translator, last_read: float, now: float) -> bool:
        """Tell whether nothing more is to be expected of the answer. `last_read`: when anything came last, even a comment."""
        turn = translator.lifecycle.turn
        if turn.finish_reason is None:
            return False
        if self._answer is not translator.answer:
            self._answer = translator.answer
            self._since = last_read
        return now - self._since >= (_WITH_USAGE if turn.usage_at_end else _WITHOUT_USAGE)


class Generation:
    """`open` it, `run` it, `close` it: one loop over what the translator needs.

    The sink gets whole events as they come, except for the terminal event: `translator.terminal` has it, so that the response
    can be stored first."""

    __slots__ = (
        "_answer_end", "_clock", "_failure", "_feed", "_judge", "_opening", "_pass_on", "_prelude", "_taken_over", "_tools",
        "_turns", "_upstream", "_waiting", "client", "translator",
    )  # fmt: skip

    def __init__(
        self,
        translator: Translator,
        upstream: Upstream,
        client: ClientTimer,
        prelude: Prelude | None,
        turns: FurtherTurns | None,
        judge: Judge,
        feed: Callable[[bytes], bytes],
    ) -> None:
        """`prelude` comes before the first request to a backend. `turns` are those after the first one of the model. `feed` has
        the translator take what a backend sends."""
        self.translator = translator
        self._upstream = upstream
        self.client = client
        self._prelude = prelude
        self._turns = turns
        self._tools = turns.hosted if turns is not None else None
        self._judge = judge
        self._opening: asyncio.Task[None] | None = None  # waits for a backend, where nobody else does
        self._waiting: asyncio.Task[Any] | None = None  # waits for it, until `_end_wait`
        self._failure: ApiError | None = None  # ended the response from outside
        self._taken_over = False
        self._answer_end = AnswerEnd()
        # Bound once, for each read.
        self._feed = feed
        self._pass_on = client.pass_on
        self._clock = upstream.clock

    # ---- opening -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Wait for the backend's answer to begin. Raise `ApiError` if the backend refuses the request or cannot be reached, but
        not once a tool has run: clients repeat requests that fail, so `run` ends the response as failed."""
        try:
            await self._open()
        except ApiError as error:
            if self._tools is None or not self._tools.ran:
                raise
            self._failure = error

    async def _open(self) -> None:
        if self._opening is not None:
            await asyncio.wait({self._opening})
            self._opening.result()
        try:
            if self._opening is None and self._failure is None:
                begins = self._prelude is not None and self._prelude.pending
                await self._wait_for(self._open_after_prelude() if begins else self._upstream.open())
        except ApiError:
            if self._failure is None:
                raise
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

    async def _wait_for(self, work: Coroutine[Any, Any, _R]) -> _R | None:
        """Return what comes of asking a backend; None if `_end_wait` came before.

        `asyncio.timeout` ends a wait in the same way, and costs eight calls more where no time is set."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting = task
        try:
            return await work
        except asyncio.CancelledError:
            if self._waiting is not None or task.cancelling() > 1:  # somebody else has cancelled it
                raise
            return None
        finally:
            if self._waiting is None:
                task.uncancel()
            self._waiting = None

    async def _open_after_prelude(self) -> None:
        prelude = self._prelude
        assert prelude is not None
        call = await prelude.compact(self._upstream.call, self._send_prelude)
        self._send_prelude()
        self._upstream.ask(await prelude.run_approved(call))
        await self._upstream.open()

    def begin(self) -> None:
        """Emit the first events, and those of what the backend has sent already."""
        if self.translator.status == "queued":
            self.emit(self.translator.start())
        self._send_prelude()
        if self._failure is None:
            self._upstream.attach(self._receive, self.translator, paused=self.client.sink.slow)

    def _send_prelude(self) -> None:
        if self._prelude is not None and self.translator.status != "queued":
            for events in self._prelude.take():
                self.emit(events())

    # ---- running -----------------------------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Have `run` continue where another gateway has stopped: the translator has repeated what happened there."""
        self._taken_over = True

    async def run(self) -> None:
        """Take the response to its end, whatever that is: afterwards the translator has ended."""
        translator = self.translator
        try:
            if not translator.ended:
                await self._start()
            while True:
                if translator.needs is not None:
                    await self._upstream.settle()
                match translator.needs:
                    case Ended():
                        break
                    case None:
                        await self._read_answer()
                    case Verdict():
                        await self._judge(self.emit)
                    case RunCalls():
                        await self._run_calls()
                    case AnotherTurn():
                        await self._begin_turn()
                    case Continue(cause, error):
                        await self._continue(cause, error or server_error(_ENDS[cause]))
                    case NotAnswered(error):
                        await self._recover(error)
        except ApiError as error:
            self.fail(error)
        except Exception as defect:  # whatever went wrong, there is a terminal event; the log reports the defect
            translator.defect = defect
            self.fail(server_error("The gateway failed. This is a defect: please report it.", 500))

    async def _start(self) -> None:
        translator = self.translator
        early = translator.early
        # The model was asked to go on, and has not brought anything yet; what it was asked is not known here.
        if self._taken_over and early is not None and early.as_it_was is not None:
            self.emit(translator.fail(server_error(LOST)))
        elif not self._taken_over or translator.nothing_received:  # the client has seen nothing that depends on the answer
            self.begin()
            if not self._upstream.opened or self._failure is not None:
                await self._open_and_begin()
        elif translator.needs is None and translator.lifecycle.turn.finish_reason is not None and not translator.continuable:
            self.emit(translator.finish())
        elif translator.needs is None:
            await self._continue("restart", server_error(LOST))

    async def _open_and_begin(self) -> None:
        await self._open()
        self.begin()

    async def _read_answer(self) -> None:
        translator = self.translator
        try:
            completion = await self._upstream.finish()
            if completion is None and translator.needs is None and translator.nothing_received:
                # A body without a length ends like this when its server dies.
                raise server_error("The backend closed the stream before the model finished.")
        except ApiError as broken:
            await self._recover(self._upstream.silence or broken)
        else:
            if completion is not None:
                self.emit(translator.feed_completion(completion))
            elif type(translator.needs) is not NotAnswered:  # else another answer may come
                self.emit(translator.finish())

    async def _recover(self, error: ApiError) -> None:
        """Do what can be done about an answer that broke off, was dropped, or was this error. Raise it if that is nothing."""
        translator = self.translator
        refused = type(translator.needs) is NotAnswered
        if self._failure is None and translator.nothing_received and self._upstream.redirect(error if refused else None):
            if refused:
                self.emit(translator.ask_again())
            self._opening = None
            await self._open_and_begin()  # what the client has seen by now holds for any answer
        elif refused:
            raise error.copy()
        elif self._calls_are_whole:
            self._upstream.disconnect()
            self._upstream.forget()
            self.emit(translator.finish())
        else:
            await self._continue("broke" if self._upstream.silence is None else "silent", error)

    @property
    def _calls_are_whole(self) -> bool:
        """Whether the response can go on though the answer broke off: the model has ended it, so that only usage was lost."""
        translator = self.translator
        ended = translator.answer.ended_by_model and not translator.ended
        return self._turns is not None and ended and self._failure is None

    async def _continue(self, cause: Cause, error: ApiError) -> None:
        """Have another backend continue the answer. Raise the error if that cannot be done."""
        translator = self.translator
        events = None
        self._opening = None
        if self._failure is None and not translator.ended and not translator.answer.ended_by_model:  # else nothing is missing
            events = await self._wait_for(self._upstream.continue_elsewhere(translator, cause))
        if events is None or self._failure is not None:
            raise error.copy() from None
        self.emit(events)
        self._upstream.attach(self._receive, translator, paused=self.client.sink.slow)

    async def _run_calls(self) -> None:
        assert self._tools is not None
        self._upstream.end_turn(self.translator.lifecycle.turn.used)
        await self._tools.run_calls(self.translator, self.emit)

    async def _begin_turn(self) -> None:
        """Ask the backend again, which now gets what there is of the results of the calls."""
        assert self._turns is not None
        self._upstream.end_turn(self.translator.lifecycle.turn.used)
        call = self._upstream.call
        call = call.with_body(await self._turns.begin(call.body, self.translator))
        every_backend = replace(call.route, avoid=frozenset())  # one that failed may be well again
        self._opening = None
        self._upstream.ask_again(msgspec.structs.replace(call, route=every_backend))
        await self._open_and_begin()

    # ---- events ------------------------------------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        """Translate what one read brought, and pass it on in one go."""
        now = self._clock()
        self._upstream.last_read = now
        events = self._feed(data)
        needs = self.translator.needs
        if needs is not None and type(needs) in _NO_MORE_BODY:
            self._leave_backend()
        if events:
            self._pass_on(events, now)

    def emit(self, events: bytes) -> None:
        """Pass on events of the translator."""
        if self.translator.ended:
            self._leave_backend()
        if events:
            self.client.write(events, self._clock())

    def _leave_backend(self) -> None:
        if self.translator.status == "failed" or was_stopped(self.translator):
            self._upstream.disconnect()
        else:
            needs = self.translator.needs
            self._upstream.leave(needs.error if type(needs) is NotAnswered else None)

    # ---- the end -----------------------------------------------------------------------------------------------------

    def stop_after_item(self, reason: str) -> None:
        """Have the response end after the item that is open: see `Translator.stop_after_item`."""
        self.emit(self.translator.stop_after_item(reason))
        if was_stopped(self.translator):
            self._failure = server_error("The response was stopped.")  # nothing else is asked for it
            self._end_wait()

    def fail(self, error: ApiError) -> None:
        """End the response as failed, and leave the backend. A caller of `open` gets the error."""
        self._failure = error.copy()
        if self._prelude is not None:
            self._prelude.give_up()
        if self.translator.status != "queued":
            self._send_prelude()
            self.emit(self.translator.fail(self._failure))
        self._end_wait()
        self._upstream.disconnect()
        if self._tools is not None:
            self._tools.close()

    def _end_wait(self) -> None:
        """Wait for a backend no longer."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def close(self) -> None:
        """Leave the backend: it stops generating, unless it has finished."""
        if self._opening is not None and not self._opening.cancel() and not self._opening.cancelled():
            self._opening.exception()  # fetched, since nobody may be waiting for it any more
        if self._tools is not None:
            self._tools.close()
        self._upstream.close(self.translator)

    # ---- time --------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Apply the time limits, and keep the client's connection alive. The wait for a backend is limited by the pool."""
        if self.client.is_slow(now):
            self._answer_end.wait()
            return
        if self.translator.ended:
            return
        if self._answer_end.is_over(self.translator, self._upstream.last_read, now):
            self._end_answer()
        elif self._upstream.is_silent(now):
            self._drop_silent_backend()
        if not self.translator.ended:
            self._keep_alive(now)

    def _end_answer(self) -> None:
        """Do as at the end of the body, which is not waited for."""
        if self.translator.needs is None:
            self.emit(self.translator.finish())
        self._upstream.leave()

    def _drop_silent_backend(self) -> None:
        translator = self.translator
        upstream = self._upstream
        error = upstream.drop()
        recovers = translator.nothing_received or self._calls_are_whole
        recovers = recovers or (translator.continuable and upstream.continuation is not None)
        if self._waiting is None and recovers and upstream.silence is None:
            upstream.silence = error  # the read ends with that, and another backend may be asked
        else:
            self.fail(error)

    def _keep_alive(self, now: float) -> None:
        due = self.client.due(now)
        if due == "event":
            self.client.keep_alive(self.translator.keep_alive(), now)
        elif due == "comment":
            self.client.comment(now)

    def pause(self) -> None:
        """Read no more from the backend: the client is slower than the model."""
        self._upstream.pause()

    def resume(self) -> None:
        """Read on from the backend."""
        self._upstream.resume()


def shutting_down() -> ApiError:
    """Return the error for what cannot be finished, or begun, because the gateway is stopping."""
    error = server_error("The gateway is shutting down. Please try again.", 503)
    error.retry_after = 1
    return error
