"""One answer of the backend, from its socket to a function that takes events; whoever it is made for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
from yarl import URL

from proxy.backend.served_models import Route
from proxy.backend.transport.client import ChatStream
from proxy.server.custom_tools.repair import count_later, settle
from proxy.server.generation.gateway import Gateway
from proxy.server.generation.prepare import count_input
from proxy.server.generation.request_log import Books
from proxy.server.recording.recorder import Recording
from proxy.stream.translator import Translator
from proxy.wire.chat_errors import read_error
from proxy.wire.errors import ApiError, server_error

if TYPE_CHECKING:
    from proxy.server.generation.compaction import AutomaticCompaction

#: Largest body of a backend that answers with one JSON object, in bytes.
COMPLETION_LIMIT = 64 * 1024 * 1024
#: How long the first events of the backend may wait until the tokens of the request are counted, in seconds.
_COUNTING_LIMIT = 1.0

Sink = Callable[[bytes], None]


class Generation:
    """`open` it, then `run` it, then `close` it; `with` sees to the end, to its books and to the time limits.

    `sink` gets the events as they come, whole ones, all but the terminal event: that one is what `run` returns, so that
    the response can be stored before it is sent.
    """

    __slots__ = (
        "_attached", "_books", "_chat", "_clock", "_compaction", "_counting", "_failure", "_feed", "_gateway", "_last",
        "_last_read", "_note", "_opener", "_opening", "_recording", "_request", "_silence", "_sink", "_summary", "_watching",
        "ended", "last_event", "translator",
    )  # fmt: skip

    def __init__(
        self,
        gateway: Gateway,
        translator: Translator,
        body: bytes,
        headers: Mapping[str, str],
        route: Route,
        books: Books,
        sink: Sink,
        recording: Recording | None = None,
        compaction: AutomaticCompaction | None = None,
    ) -> None:
        """`body` is the chat request; `headers` go with it, and `route` says where. `compaction` comes before it, and gives
        another body."""
        self.translator = translator
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gateway = gateway
        self._books = books
        self._feed, self._note, self._sink = translator.feed, books.reads.append, sink  # for each read
        self._recording = recording
        self._clock = asyncio.get_running_loop().time
        self._request = body, headers, route
        self._compaction = compaction  # until it is done
        self._summary: str | None = None  # what came of it, until it is shown
        self._opener: asyncio.Task[object] | None = None  # the task that waits for the backend to answer
        self._opening: asyncio.Task[None] | None = None  # the same, where it is one of our own
        self._chat: ChatStream | None = None
        self._counting: asyncio.Task[None] | None = None
        self._attached = False
        self._failure: ApiError | None = None
        self._silence: ApiError | None = None  # the answer was dropped for it
        self._last = b""
        self._watching = True  # until nobody looks at single reads any more
        self.last_event = self._last_read = self._clock()

    def __enter__(self) -> Generation:
        self._gateway.exchanges.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
        if kind is not None and issubclass(kind, asyncio.CancelledError | ConnectionError):
            self._books.client_left()
        outcome = self._books.close(self.translator, self._clock())
        if self._recording is not None:
            self._recording.end(outcome)
        self._gateway.exchanges.discard(self)
        self.ended.set_result(None)

    def close(self) -> None:
        """Leave the backend: it stops, unless it has said everything."""
        if self._opening is not None and not self._opening.cancel() and not self._opening.cancelled():
            self._opening.exception()  # asked for: nobody may wait for it any more
        if self._counting is not None:
            self._counting.cancel()
        if self._chat is not None:
            self._chat.close()
        if self.translator.lifecycle.usage is not None:
            self._gateway.pool.members.usage_reported(self._chat.backend if self._chat is not None else "")
        count_later(self._gateway, self.translator)

    # ---- opening -----------------------------------------------------------------------------------------------------

    def count_input(self, request: Mapping[str, Any]) -> None:
        """For a backend that may report no usage: count the tokens of the chat request while it works on it."""
        tokenizer = self._gateway.tokenizer if self._compaction is None else None
        if tokenizer is not None and not self._gateway.pool.members.all_report_usage(self._request[2].model):
            self._counting = asyncio.create_task(count_input(self.translator, tokenizer, request))

    async def open(self) -> None:
        """Wait for the backend's answer to begin. Raises `ApiError` if it refuses the request, or cannot be reached."""
        if self._opening is not None:
            await asyncio.wait({self._opening})
            self._opening.result()
            return
        self._books.phase = "backend"
        self._opener = task = asyncio.current_task()
        assert task is not None
        try:
            if self._failure is not None:
                raise self._failure
            await self._open()
            if self._counting is not None:
                await asyncio.wait({self._counting}, timeout=_COUNTING_LIMIT)
        except asyncio.CancelledError:
            if self._failure is None or task.uncancel():
                raise
            raise self._failure from None
        finally:
            self._opener = None

    async def open_within(self, seconds: float) -> None:
        """As `open`, for one that is not entered yet: what fails within the time is raised, the rest is left to `run`."""
        opening = asyncio.create_task(self.open())
        try:
            await asyncio.wait({opening}, timeout=seconds)
            if opening.done():
                opening.result()
            self._opening = opening
        except BaseException as error:
            opening.cancel()
            with self:
                if isinstance(error, ApiError):
                    self.refused(error)
                else:
                    self._books.client_left()
            raise

    async def _open(self) -> None:
        body, headers, route = self._request
        if self._compaction is not None:
            self._summary, body = await self._compaction.run(self._books)
            self._request = body, headers, route
            if self._recording is not None:
                self._recording.summarised(body)
            self._compaction, self._last_read = None, self._clock()
            self._show_summary()
            self.count_input(msgspec.json.decode(body))

        def call(backend: str, url: URL) -> Mapping[str, str]:
            now = self._last_read = self._clock()
            return self._books.calls(backend, url, headers, now)

        chat = self._chat = await self._gateway.pool.open_chat(body, call, route)
        if chat.status == 200:
            return
        refusal = await chat.read_refusal()
        if self._recording is not None:
            self._recording.refused(chat.status, refusal, chat.retry_after)
        raise read_error(chat.status, refusal, chat.retry_after)

    # ---- running -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Emit the first events, and what the backend has sent already."""
        if self.translator.status == "queued":
            self.emit(self.translator.start())
        self._show_summary()
        if self._chat is not None and self._chat.is_event_stream and not self._attached and self._failure is None:
            self._attached = True
            self._books.phase = "stream"
            self._chat.attach(self._receive)

    def _show_summary(self) -> None:
        if self._summary is not None and self.translator.status != "queued":
            item, self._summary = self._summary, None
            self.emit(self.translator.insert("compaction", item))

    async def run(self) -> bytes:
        """Take the answer to its end, whatever that is; returns the terminal event and `[DONE]`."""
        translator = self.translator
        try:
            self.begin()
            if self._chat is None or self._failure is not None:
                await self.open()
                self.begin()
            await self._take()
        except ApiError as error:
            self.fail(error)
        except Exception as defect:
            translator.defect = defect  # the books log it; there is a terminal event all the same
            self.fail(server_error("The gateway failed. This is a defect: please report it.", 500))
        return self._last

    async def _take(self) -> None:
        chat, translator = self._chat, self.translator
        assert chat is not None
        try:
            completion = b""
            if self._attached:
                await chat.finish()
                if translator.unheard and not translator.ended:  # a body without a length ends like this when its server dies
                    raise server_error("The backend closed the stream before the model finished.")
            else:
                self._books.phase = "stream"
                completion = await chat.read(COMPLETION_LIMIT)
                chat.close()  # its place is free for whoever waits: a correction, say
        except ApiError as error:
            if not await self._asked_elsewhere():
                raise self._silence or error from None
            await self._take()
        else:
            self.emit(translator.finish() if self._attached else translator.feed_completion(completion))
            await settle(self._gateway, translator, self._request[1], self.emit)

    async def _asked_elsewhere(self) -> bool:
        """An answer broke off, or was dropped, before the model said anything: whether another backend answers in its place.
        What the client has seen so far holds for any. Raises `ApiError` if that one refuses."""
        chat, (body, headers, route) = self._chat, self._request
        if chat is None or self._failure is not None or not self.translator.unheard:
            return False
        chat.close()
        other = self._gateway.pool.retry_route(route, chat.backend, "silent" if self._silence is not None else "broke")
        if other is None:
            return False
        self._request, self._attached, self._opening = (body, headers, other), False, None
        self._chat = self._silence = None
        await self.open()
        self.begin()
        return True

    def _receive(self, data: bytes) -> None:
        """What one read brought: translated and passed on in one go."""
        now = self._last_read = self._clock()
        events = self._feed(data)
        if self.translator.awaiting is not None and self._chat is not None:
            self._chat.leave()  # the answer is complete, but for a verdict
        if not events:
            return
        self._note(now)
        if self._watching:
            self._watch(events, now)
        if self.translator.ended:
            events = self._without_last(events)
        if events:
            self.last_event = now
            self._sink(events)

    def _watch(self, events: bytes, now: float) -> None:
        """What only some reads need: the moment of the first visible token, and a copy where the stream is sampled."""
        books = self._books
        if books.visible_at is None and self.translator.visible:
            books.visible_at = now
        books.sent(events)
        self._watching = books.visible_at is None or books.sampling

    def emit(self, events: bytes) -> None:
        """Pass events of the translator on."""
        if not events:
            return
        self._books.sent(events)
        if self.translator.ended:
            events = self._without_last(events)
        if events:
            self.last_event = self._clock()
            self._sink(events)

    def _without_last(self, events: bytes) -> bytes:
        """Keep the terminal event for `run`; nothing more is wanted of the backend."""
        status = self.translator.status
        events, self._last = without_last(events, status)
        if self._chat is not None:
            (self._chat.close if status == "failed" else self._chat.leave)()
        return events

    def refused(self, error: ApiError) -> None:
        """The error was told to the client in another way than as a response."""
        self._books.refused(error)
        if self._recording is not None:
            self._recording.failed(error)

    def fail(self, error: ApiError) -> None:
        """End the response as failed, and leave the backend. The caller of `open` gets the error."""
        self._failure = error
        if self.translator.status != "queued":
            self.emit(self.translator.fail(error))
        if self._opener is not None:
            self._opener.cancel()
        if self._chat is not None:
            self._chat.close()

    def tick(self, now: float) -> None:
        """Time limits. The head of an answer is the pool's matter, and so is the wait in its line."""
        self._books.fold()
        chat, limit = self._chat, self._gateway.settings.idle_timeout
        if chat is None or self.translator.ended or now - self._last_read <= limit:
            return
        chat.drop()
        error = server_error(f"The backend sent nothing for {limit:g} seconds.", 504)
        if self._opener is None and self.translator.unheard and self._silence is None:
            self._silence = error  # whoever reads the answer sees that it is over, and may ask another backend
        else:
            self.fail(error)

    def cancel(self) -> None:
        """Whoever asked for the response wants it no longer."""
        self.fail(ApiError(499, "The response was cancelled.", type="server_error", code="server_error"))

    def shut_down(self) -> None:
        """The gateway is stopping."""
        self.fail(server_error("The gateway is shutting down. Please try again.", 503))

    def abandon(self) -> None:
        """There is no client to drop; whoever waits is told by `shut_down`."""

    def pause(self) -> None:
        """Whoever takes the events is slower than the model."""
        if self._chat is not None:
            self._chat.pause()

    def resume(self) -> None:
        """Go on."""
        self._last_read = self._clock()
        if self._chat is not None:
            self._chat.resume()


def without_last(events: bytes, status: str) -> tuple[bytes, bytes]:
    """Events up to the terminal one, and that one with `[DONE]`, of a response that has ended with this status."""
    at = events.rfind(b"event: response.%b\n" % status.encode())
    return events[:at], events[at:]
