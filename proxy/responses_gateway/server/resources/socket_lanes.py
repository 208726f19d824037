"""The lanes of a connection, as OpenAI has them: each is a queue whose requests are answered one after the other, in the order
in which they came, and they do not wait for each other.

A request says by its `stream_id` in which lane it is answered, and by its `previous_response_id` what it continues: a lane has
no conversation of its own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from responses_gateway.server.generation.responses import Creation
from responses_gateway.server.http.event_stream import WebSocketSender
from responses_gateway.server.http.exchange import Bodies, Body
from responses_gateway.server.resources.socket_messages import Message
from responses_gateway.server.resources.socket_steering import SocketSteering
from responses_gateway.wire.errors import ApiError, invalid_request

# Messages of a lane that may wait, and their bytes: two dozen requests of agents, with their tools. So many may wait where more
# would be refused, however large they are: all bodies of a process have a bound.
MOST_WAITING = 32
LEAST_WAITING = 24
MOST_WAITING_BYTES = 4 * 1024 * 1024
# Responses of one connection that are made at the same time, and names of its lanes: as many as OpenAI allows.
MOST_ACTIVE = 16
MOST_NAMES = 32
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,256}")


@dataclass(slots=True, eq=False)
class WaitingMessage:
    """A message that waits for its turn, or the error that answers it. `body` counts it until it is answered."""

    data: bytes
    body: Body
    refusal: ApiError | None = None

    def take(self) -> bytes:
        """Return the data, which is not kept here while the message is answered. Raise `ApiError`."""
        if self.refusal is not None:
            raise self.refusal
        data = self.data
        self.data = b""
        return data


class Lane:
    """The messages that wait, and the response that is being made. `name` is that of the client, None for the default lane."""

    def __init__(self, name: str | None, bodies: Bodies, steering: SocketSteering, turn: asyncio.Event) -> None:
        """`turn` is set when a message is taken or answered."""
        self.name = name
        self.steering = steering
        self.unanswered = 0  # messages, also the one that was taken
        self.creation: Creation | None = None  # of the response that has begun
        self.cancelled = False  # the response that has not begun yet
        self.continues: str | None = None  # what the message asks to continue that is being answered
        self._bodies = bodies
        self._turn = turn
        self._messages: asyncio.Queue[WaitingMessage] = asyncio.Queue()
        self._bytes = 0

    def accept(self, data: bytes) -> None:
        """Let a message wait."""
        message = WaitingMessage(data, self._bodies.open())
        try:
            message.body.add(len(data))
        except ApiError as error:
            message.refusal = error.copy()
            message.data = b""
        self.unanswered += 1
        self._bytes += len(message.data)
        self._messages.put_nowait(message)

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more should."""
        return self._bytes > MOST_WAITING_BYTES or self._messages.qsize() >= MOST_WAITING

    @property
    def refuses(self) -> bool:
        """Whether one more message is refused, where it cannot be left unread."""
        return self.is_full and self._messages.qsize() >= LEAST_WAITING

    async def next(self) -> WaitingMessage:
        """Wait for a message, and return it."""
        message = await self._messages.get()
        self._bytes -= len(message.data)
        self._turn.set()
        return message

    def answered(self) -> None:
        """Note that a message was answered."""
        self.unanswered -= 1
        self.cancelled = False
        self.continues = None
        self._turn.set()

    def cancel(self, response_id: object) -> None:
        """End the response that is being made, or the next one. One with another id has ended already."""
        running = self.creation
        if response_id is not None and (running is None or running.translator.response_id != response_id):
            return
        if running is None:
            self.cancelled = self.unanswered > 0
        else:
            running.cancel()

    def close(self) -> None:
        """Count nothing any more: what waits is not answered."""
        while not self._messages.empty():
            self._messages.get_nowait().body.close()
        self.steering.close()


class Lanes:
    """The default lane, and those with a name, which is never free again."""

    def __init__(self, bodies: Bodies, outbox: WebSocketSender) -> None:
        self._bodies = bodies
        self._outbox = outbox
        self.turn = asyncio.Event()  # a message was taken, or answered
        # Served in the order in which they came: a lane has one at a time, so that none takes those of others.
        self.active = asyncio.Semaphore(MOST_ACTIVE)
        self.default = self._new(None)
        self._named: dict[str, Lane] = {}

    @property
    def all(self) -> Iterable[Lane]:
        """All lanes."""
        return (self.default, *self._named.values())

    @property
    def unanswered(self) -> bool:
        """Whether a message is to be answered."""
        return any(lane.unanswered for lane in self.all)

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more is to be read. Others would wait with a lane that is full."""
        return not self._named and self.default.is_full

    @property
    def unsent_bytes(self) -> int:
        """Bytes of the messages that are answered behind the end of a response."""
        return sum(lane.steering.unsent_bytes for lane in self.all)

    def lane(self, name: object) -> Lane:
        """Return the lane with the name in a message. Raise `ApiError` if it cannot have one, or has too many waiting."""
        lane = self._lane(name)
        if self._named and lane.refuses:
            message = "Too many requests wait in this lane. Please wait for one of them to end."
            raise ApiError(429, message, type="rate_limit_error", code="rate_limit_exceeded")
        return lane

    def _lane(self, name: object) -> Lane:
        if name is None:
            return self.default
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            message = "Invalid 'stream_id': 1 to 256 ASCII letters, digits, underscores, hyphens and periods are expected."
            raise invalid_request(message, "stream_id", "invalid_stream_id")
        lane = self._named.get(name)
        if lane is None:
            if len(self._named) >= MOST_NAMES:
                message = f"A connection has {MOST_NAMES} names of lanes at most: use one of them, or open another connection."
                raise invalid_request(message, "stream_id", "websocket_stream_limit_reached")
            lane = self._named[name] = self._new(name)
        return lane

    def _new(self, name: str | None) -> Lane:
        return Lane(name, self._bodies, SocketSteering(self._outbox, self._bodies), self.turn)

    def steer(self, message: Message, size: int) -> None:
        """Steer a response, in the lane that makes or made it."""
        response_id = message["previous_response_id"]
        steered = next((lane for lane in self.all if lane.steering.steers.knows(response_id)), self.default)
        elsewhere = [steer for lane in self.all if lane is not steered for steer in lane.steering.steers.waiting]
        steered.steering.answer(message, size, steered.creation, elsewhere)

    def cancel(self, message: Message) -> None:
        """End the response that a message names, that of the lane it names, or all."""
        name = message.get("stream_id")
        for lane in self.all:
            if name is None or lane.name == name:
                lane.cancel(message.get("response_id"))

    def forget(self, response_ids: Sequence[str]) -> None:
        """Give back what steers responses that cannot be continued any more."""
        for response_id in response_ids:
            for lane in self.all:
                lane.steering.forget(response_id)

    def pause(self) -> None:
        """Read no more from the backends: the client is slower than they are."""
        for lane in self.all:
            if lane.creation is not None:
                lane.creation.pause()

    def resume(self) -> None:
        """Read on."""
        for lane in self.all:
            if lane.creation is not None:
                lane.creation.resume()

    def close(self) -> None:
        """Count nothing any more."""
        for lane in self.all:
            lane.close()
