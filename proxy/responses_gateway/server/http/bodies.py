"""The bodies of requests: unpacked, and counted together, so that many large ones cannot take all memory."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import TypeVar

from aiohttp import StreamReader

from responses_gateway.fair_queue import FairQueue
from responses_gateway.telemetry.instruments import Gauge
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.unpacking import Unpacker

BODY_BYTES = Gauge("request_body_bytes", "Size of the bodies of all requests under way.")
# Bytes that are unpacked in the event loop; the rest of a larger body is unpacked in a thread.
_FIRST_STEP = 128 * 1024
# Bytes that are unpacked in one step in a thread.
_STEP = 1024 * 1024
# `Retry-After` in seconds where there is no room for a body.
_RETRY_AFTER = 1
_NO_ROOM = "The gateway is holding as many request bodies as it may. Please try again."
_R = TypeVar("_R")


class NoRoomError(ApiError, TimeoutError):
    """503 for a body that was refused to make room for others. aiohttp takes it for a time-out, and closes the connection."""

    def __init__(self) -> None:
        super().__init__(503, _NO_ROOM, type="server_error", code="server_error", retry_after=_RETRY_AFTER)


class Bodies:
    """The bodies that one process holds. `largest` is the limit for one of them, `together` for all, in bytes. `show_size` is
    called by `report`, and `make_room` when half of the room is taken."""

    def __init__(
        self,
        largest: int,
        together: int,
        count_refusal: Callable[[], None],
        show_size: Callable[[float], None],
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        self.size = 0
        self.largest = largest
        self._together = together
        self._count_refusal = count_refusal
        self._show_size = show_size
        self._make_room = make_room
        self._arriving: set[Body] = set()
        self._queue = FairQueue(1, 1)

    def open(self, content: StreamReader | None = None) -> Body:
        """Begin to count a body. `content` is the stream that it is read from, unless it has arrived already."""
        body = Body(self, content)
        if content is not None:
            self._arriving.add(body)
        return body

    def hold(self, data: bytes) -> Body:
        """Count a body that has arrived. Raise `ApiError` 413 and 503."""
        size = len(data)
        if size > self.largest:
            raise too_large(self.largest)
        body = Body(self, None)
        self.add(body, size)
        return body

    def add(self, body: Body, size: int) -> None:
        """Count more bytes of a body. When there is no room, the largest of those that still arrive is refused: otherwise a
        few clients that send large bodies slowly could shut out all others. Raise `ApiError` 503 if it is this one."""
        if body.refusal is not None:
            raise body.refusal.copy()
        body.size += size
        self.size += size
        if self.size > self._together // 2:
            self._make_room()
        while self.size > self._together:
            victim = max(self._arriving, key=_size, default=body)
            if victim.size <= body.size:
                victim = body
            self.remove(victim)
            self._count_refusal()
            victim.refuse(NoRoomError())
            if victim is body:
                raise NoRoomError

    def arrived(self, body: Body) -> None:
        """Note that a body is complete: it keeps its room until its request ends."""
        self._arriving.discard(body)

    def remove(self, body: Body) -> None:
        """Count a body no longer."""
        self.size -= body.size
        body.size = 0
        self._arriving.discard(body)

    def report(self) -> None:
        """Show the size of all bodies."""
        self._show_size(self.size)

    async def unpack(self, owner: str, body: Body, packed: bytes, encoding: str) -> bytes:
        """Return what a compressed body of `owner` contains. Raise `ApiError` 413 and 503, `DamagedBodyError`."""
        unpacker = Unpacker(packed, encoding)
        piece = unpacker.read(min(_FIRST_STEP, self.largest + 1))  # one byte more than allowed tells what is too large
        body.add(len(piece))
        if len(piece) > self.largest:
            raise too_large(self.largest)
        if unpacker.ended:
            return piece
        unpacked = BytesIO()
        unpacked.write(piece)
        while not unpacker.ended:
            room = self.largest - unpacked.tell() + 1
            piece = await self.in_thread(owner, unpacker.read, min(_STEP, room))
            body.add(len(piece))
            unpacked.write(piece)
            if unpacked.tell() > self.largest:
                raise too_large(self.largest)
        return unpacked.getvalue()

    async def in_thread(self, owner: str, work: Callable[..., _R], *arguments: object) -> _R:
        """Do work on a large body in a thread. One at a time, since several would keep the event loop from the interpreter's
        lock, one after the other. The owners of bodies are served in turn, however many one of them sends."""
        return await self._queue.in_thread(owner, work, *arguments)


class Body:
    """One body that is counted."""

    __slots__ = ("_bodies", "_content", "refusal", "size")

    def __init__(self, bodies: Bodies, content: StreamReader | None) -> None:
        self._bodies = bodies
        self._content = content
        self.size = 0
        self.refusal: ApiError | None = None  # to make room for others

    def add(self, size: int) -> None:
        """Count more bytes. Raise `ApiError` 503 if there is no room."""
        self._bodies.add(self, size)

    def refuse(self, error: ApiError) -> None:
        """End the reading of this body."""
        self.refusal = error
        if self._content is not None and not self._content.is_eof():
            self._content.set_exception(error)

    def close(self) -> None:
        """Count it no longer: its request has ended."""
        self._bodies.remove(self)
        self._content = None


def too_large(limit: int) -> ApiError:
    """Return the error for a body that is larger than the limit, in bytes."""
    message = f"The request body is larger than this gateway accepts: at most {limit} bytes."
    return ApiError(413, message, code="request_too_large")


def _size(body: Body) -> int:
    return body.size
