"""The client's side of a response: the sink of its events, keep-alives, and clients that do not read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from responses_gateway.server.generation.request_log.request_log import RequestLog
from responses_gateway.settings import Settings
from responses_gateway.stream.lifecycle.machine import Lifecycle
from responses_gateway.wire.sse import COMMENT


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
        self, sink: Sink, log: RequestLog, settings: Settings, lifecycle: Lifecycle, drop_client: Callable[[], None], now: float
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
