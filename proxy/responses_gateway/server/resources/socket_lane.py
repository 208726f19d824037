"""One lane of a connection: its requests are answered one after the other, in the order in which they came."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from responses_gateway.server.generation.responses import Creation
from responses_gateway.server.http.bodies import Bodies, Body
from responses_gateway.server.resources.socket_steering import SocketSteering
from responses_gateway.wire.errors import ApiError

# Messages of a lane that may wait, and their bytes: two dozen requests of agents, with their tools. So many may wait where more
# would be refused, however large they are: all bodies of a process have a bound.
MOST_WAITING = 32
LEAST_WAITING = 24
MOST_WAITING_BYTES = 4 * 1024 * 1024


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
