"""A relay between the gateway and a server that cuts a chat stream where it is told to, as the death of the process does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

_READ = 1 << 16


@dataclass
class Scissors:
    """When a chat stream is cut: behind so many events; None for never. `spared`: how many of the next streams are left whole.
    `events`: how many the last one had. `kill` ends the server that sends it, in the place of the connection."""

    after: int | None = None
    spared: int = 0
    events: int = 0
    kill: Callable[[str], None] | None = None


@asynccontextmanager
async def relay(target: Callable[[], str], scissors: Scissors) -> AsyncIterator[str]:
    """Pass bytes on between the gateway and a server, whose URL may change."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(asyncio.CancelledError):  # at the end of the block
            await _Connection(scissors, target()).run(reader, writer)
        writer.close()
        tasks.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Connection:
    """One connection to a server. `chat`: whether what runs on it is a chat stream, the only one that is cut. `spared`: whether
    it is left whole."""

    def __init__(self, scissors: Scissors, url: str) -> None:
        self._scissors = scissors
        self._url = url
        self._chat = False
        self._spared = False

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy both ways until one side ends."""
        place = urlsplit(self._url)
        with suppress(OSError):
            there, back = await asyncio.open_connection(place.hostname, place.port)
            copies = [asyncio.create_task(self._up(reader, back)), asyncio.create_task(self._down(there, writer))]
            try:
                await asyncio.wait(copies, return_when="FIRST_COMPLETED")
            finally:
                for copy in copies:
                    copy.cancel()
                await asyncio.gather(*copies, return_exceptions=True)
                back.close()

    async def _up(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        while data := await reader.read(_READ):
            if data.startswith(b"POST "):
                self._chat = data.startswith(b"POST /v1/chat/completions ")
                if self._chat:
                    self._spared = self._scissors.spared > 0
                    self._scissors.spared -= self._spared
                    self._scissors.events = 0
            back.write(data)

    async def _down(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await there.read(_READ):
            for piece in data.splitlines(keepends=True):
                if self._chat and piece.startswith(b"data: ") and self._is_cut(writer):
                    return
                writer.write(piece)

    def _is_cut(self, writer: asyncio.StreamWriter) -> bool:
        """Count an event; return whether it is one too many."""
        scissors = self._scissors
        if self._spared or scissors.after != scissors.events:
            scissors.events += 1
            return False
        scissors.after = None
        if scissors.kill is None:
            writer.transport.abort()
        else:
            scissors.kill(self._url)
        return True
