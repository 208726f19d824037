"""Events for a WebSocket: accepted at once, sent one per frame, as fast as the client reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

# Bytes that may wait before the model is slowed down.
_HIGH_WATER = 1024 * 1024


class WebSocketSender:
    """Accepts events with `write` and sends them in `run`.

    `on_slow` is called when too much waits, `on_ready` when nothing waits any more."""

    live = False  # a WebSocket has pings of its own

    def __init__(self, socket: web.WebSocketResponse, on_slow: Callable[[], None], on_ready: Callable[[], None]) -> None:
        self._socket = socket
        self._on_slow = on_slow
        self._on_ready = on_ready
        self._waiting: list[bytes] = []
        self._size = 0
        self._slow = False
        self._filled = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def slow(self) -> bool:
        """Whether so much waits for the client that nothing should be added."""
        return self._slow

    def write(self, events: bytes) -> None:
        """Accept complete server-sent events."""
        self._waiting.append(events)
        self._size += len(events)
        self._empty.clear()
        self._filled.set()
        if self._size > _HIGH_WATER and not self._slow:
            self._slow = True
            self._on_slow()

    async def flush(self) -> None:
        """Wait until everything is sent."""
        await self._empty.wait()

    async def run(self) -> None:
        """Send until cancelled, or until the connection is gone."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            waiting = self._waiting
            self._waiting = []
            self._size = 0
            for event in b"".join(waiting).split(b"\n\n"):
                _, mark, data = event.partition(b"\ndata: ")
                if mark:  # not `[DONE]`, which ends event streams
                    await self._socket.send_str(data.decode())
            if self._waiting:
                continue
            self._empty.set()
            if self._slow:
                self._slow = False
                self._on_ready()
