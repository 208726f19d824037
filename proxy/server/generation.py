"""A response that is made for no HTTP exchange in particular: from the backend's socket to a function that takes events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType

from proxy.backend.client import ChatStream
from proxy.server.books import Books
from proxy.server.gateway import Gateway
from proxy.stream.translator import Translator
from proxy.wire.chat_errors import read_error
from proxy.wire.errors import ApiError, server_error

#: How long a backend may keep the connection open after its last event, in seconds.
LINGER = 1.0
#: Largest body of a backend that answers with one JSON object, in bytes.
COMPLETION_LIMIT = 64 * 1024 * 1024

Sink = Callable[[bytes], None]


class Generation:
    """One answer of the backend. `with` it, `open` it, then `run` it.

    `sink` gets the events as they come, whole ones, all but the terminal event: that one is what `run` returns, so that
    the response can be stored before it is sent.
    """

    def __init__(
        self, gateway: Gateway, translator: Translator, body: bytes, headers: Mapping[str, str], books: Books, sink: Sink
    ) -> None:
        """`body` is the chat request; `headers` go with it."""
        self.translator = translator
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gateway = gateway
        self._books = books
        self._sink = sink
        self._clock = asyncio.get_running_loop().time
        self._request = body, headers
        self._opening: asyncio.Task[ChatStream] | None = None
        self._chat: ChatStream | None = None
        self._failure: ApiError | None = None
        self._last = b""
        self._last_read = self._clock()
        self._ended_at: float | None = None

    def __enter__(self) -> Generation:
        self._gateway.exchanges.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._opening is not None and not self._opening.cancel() and not self._opening.cancelled():
            self._opening.exception()  # asked for: nobody may wait for it any more
        if self._chat is not None:
            self._chat.close()
        if kind is not None and issubclass(kind, asyncio.CancelledError | ConnectionError):
            self._books.client_left()
        self._books.close(self.translator, self._clock())
        self._gateway.exchanges.discard(self)
        self.ended.set_result(None)

    async def open(self) -> None:
        """Wait for the backend's answer to begin. Raises `ApiError` if it refuses the request, or cannot be reached."""
        self._books.phase = "backend"
        opening = self._opening = self._opening or asyncio.create_task(self._open())
        await asyncio.wait({opening})
        if self._failure is not None:
            raise self._failure
        self._chat = opening.result()

    async def open_within(self, seconds: float) -> None:
        """As `open`, for one that is not entered yet: what fails within the time is raised, the rest is left to `run`."""
        try:
            async with asyncio.timeout(seconds):
                await self.open()
        except TimeoutError:
            return
        except BaseException as error:
            with self:
                if isinstance(error, ApiError):
                    self.refused(error)
                else:
                    self._books.client_left()
            raise

    async def run(self) -> bytes:
        """Take the answer to its end, whatever that is; returns the terminal event and `[DONE]`."""
        translator = self.translator
        if translator.status == "queued":
            self._emit(translator.start())
        try:
            if self._chat is None:
                await self.open()
            await self._take()
        except ApiError as error:
            self.fail(error)
        except Exception as defect:
            translator.defect = defect  # the books log it; there is a terminal event all the same
            self.fail(server_error("The gateway failed. This is a defect: please report it.", 500))
        return self._last

    def refused(self, error: ApiError) -> None:
        """The error was told to the client in another way than as a response."""
        self._books.refused(error)

    def fail(self, error: ApiError) -> None:
        """End the response as failed, and leave the backend."""
        self._failure = error
        self._emit(self.translator.fail(error))
        if self._opening is not None:
            self._opening.cancel()
        if self._chat is not None:
            self._chat.close()

    def tick(self, now: float) -> None:
        """Time limits."""
        self._books.fold()
        limit = self._gateway.settings.idle_timeout
        if self._ended_at is not None:
            if self._chat is not None and now - self._ended_at > LINGER:
                self._chat.close()
        elif now - self._last_read > limit:
            self.fail(server_error(f"The backend sent nothing for {limit:g} seconds.", 504))

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

    async def _open(self) -> ChatStream:
        chat = self._chat = await self._gateway.backend.open_chat(*self._request)
        if chat.status == 200:
            return chat
        raise read_error(chat.status, await chat.read_refusal(), chat.retry_after)

    async def _take(self) -> None:
        chat, translator = self._chat, self.translator
        assert chat is not None
        self._books.phase = "stream"
        if not chat.is_event_stream:
            self._emit(translator.feed_completion(await chat.read(COMPLETION_LIMIT)))
            return
        chat.attach(self._receive)
        await chat.finish()
        self._emit(translator.finish())

    def _receive(self, data: bytes) -> None:
        now = self._last_read = self._clock()
        events = self.translator.feed(data)
        if events:
            self._books.reads.append(now)
            if self._books.visible_at is None and self.translator.visible:
                self._books.visible_at = now
        self._emit(events)

    def _emit(self, events: bytes) -> None:
        if not events:
            return
        self._books.sent(events)
        if self.translator.ended:
            at = events.rfind(b"event: response.%b\n" % self.translator.status.encode())
            events, self._last = events[:at], events[at:]
            self._ended_at = self._clock()
            if self.translator.status == "failed" and self._chat is not None:
                self._chat.close()
        if events:
            self._sink(events)
