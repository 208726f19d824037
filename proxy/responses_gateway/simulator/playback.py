"""Send the frames of a stream at the pace of a GPU.

There is one timer per stream and no task switch per chunk, so that one process can play a thousand streams. A stream that falls
behind sends several chunks in one write, as a busy server does."""

from __future__ import annotations

import asyncio
from typing import Literal

from aiohttp import web

from responses_gateway.simulator.frames import Frames
from responses_gateway.simulator.state import COUNTERS, Counters

# `finished`: all was sent; `cut`: the connection was cut on purpose; `disconnected`: the client disconnected.
Ending = Literal["finished", "cut", "disconnected"]

_BURST = 8  # chunks per write if no pace is set
_HIGH_WATER = 256 * 1024  # bytes that may wait for a slow reader before the stream pauses
_WATCH = 0.05  # the longest time, in seconds, in which a disconnect of the client goes unnoticed


class Player:
    """Sends frames to a transport. `tokens_per_second` 0 means as fast as the reader reads."""

    def __init__(
        self, frames: Frames, transport: asyncio.Transport, counters: Counters, *, chunked: bool, tokens_per_second: float
    ) -> None:
        self._frames = frames
        self.transport = transport
        self._counters = counters
        self._chunked = chunked
        self._interval = 1 / tokens_per_second if tokens_per_second > 0 else 0.0
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._position = 0
        self._pauses = dict(frames.pauses)
        self._ending: asyncio.Future[Ending] = self._loop.create_future()
        self._timer: asyncio.Handle | None = None

    async def play(self, delay: float = 0.0) -> Ending:
        """Send the frames after `delay` seconds; return how it ended."""
        self._start += delay
        self._step()
        try:
            return await self._ending
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def abort(self) -> None:
        """End the answer now, as a server does that is stopped."""
        self._frames.abort(self._position)
        self._interval = 0.0

    def _step(self) -> None:
        if self.transport.is_closing():
            self._ending.set_result("disconnected")
            return
        now = self._loop.time()
        if self.transport.get_write_buffer_size() > _HIGH_WATER:
            self._timer = self._loop.call_later(_WATCH / 5, self._step)
            return
        end = self._ready(now)
        if end > self._position:
            self._send(end)
        if end == len(self._frames.frames):
            self._end()
            return
        if end in self._pauses:
            self._start += max(0.0, now - self._due(end)) + self._pauses.pop(end)
        self._timer = self._loop.call_at(min(max(self._due(end), now), now + _WATCH), self._step)

    def _due(self, position: int) -> float:
        return self._start + max(0, self._frames.counts[position] - 1) * self._interval

    def _ready(self, now: float) -> int:
        """Return up to which frame everything may be sent now."""
        position = self._position
        length = len(self._frames.frames)
        limit = length if self._interval else min(position + _BURST, length)
        while position < limit and self._due(position) <= now:
            if position in self._pauses and position > self._position:
                return position
            position += 1
        return position

    def _send(self, end: int) -> None:
        data = self._frames.bytes_of(self._position, end)
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        before = self._frames.counts[self._position - 1] if self._position else 0
        self._counters.generation_tokens += self._frames.counts[end - 1] - before
        self._position = end

    def _end(self) -> None:
        if self._frames.cut:
            self.transport.abort()
        self._ending.set_result("cut" if self._frames.cut else "finished")


# the streams that are being sent
PLAYERS: web.AppKey[set[Player]] = web.AppKey("players", set)


async def stream_frames(
    request: web.Request, frames: Frames, first_token_seconds: float, tokens_per_second: float, finish_reason: str | None = None
) -> web.StreamResponse:
    """Answer with an event stream, and count how it ended: with this `finish_reason`, if one is counted."""
    transport = request.transport
    assert transport is not None
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    if request.version >= (1, 1):
        response.enable_chunked_encoding()
    await response.prepare(request)
    counters = request.app[COUNTERS]
    player = Player(frames, transport, counters, chunked=response.chunked, tokens_per_second=tokens_per_second)
    request.app[PLAYERS].add(player)
    try:
        ending = await player.play(first_token_seconds)
    finally:
        request.app[PLAYERS].discard(player)
    if ending == "finished":
        if finish_reason is not None:
            counters.finished[finish_reason] += 1
        await response.write_eof()
    elif ending == "disconnected":
        counters.aborted += 1
    return response
