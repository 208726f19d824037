"""The lanes of a connection, as OpenAI has them: each is a queue, and they do not wait for each other.

A request says by its `stream_id` in which lane it is answered, and by its `previous_response_id` what it continues: a lane has
no conversation of its own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence

from responses_gateway.server.http.bodies import Bodies
from responses_gateway.server.http.event_stream import WebSocketSender
from responses_gateway.server.resources.socket_lane import Lane
from responses_gateway.server.resources.socket_messages import Message
from responses_gateway.server.resources.socket_steering import SocketSteering
from responses_gateway.wire.errors import ApiError, invalid_request

# Responses of one connection that are made at the same time, and names of its lanes: as many as OpenAI allows.
MOST_ACTIVE = 16
MOST_NAMES = 32
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,256}")


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
        steered = next((lane for lane in self.all if lane.steering.knows(response_id)), self.default)
        elsewhere = [steer for lane in self.all if lane is not steered for steer in lane.steering.waiting]
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
