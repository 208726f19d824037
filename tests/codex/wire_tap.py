"""A wire tap between the client and the gateway: it copies bytes both ways and remembers them.

Nothing is re-encoded, so the client sees the gateway's own bytes, and each side notices at once when the other one leaves.
"""

from __future__ import annotations

import asyncio
import io
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse, IncompleteRead, parse_headers
from typing import Any, cast

_READ = 65536
# Of the Responses and of the Messages API.
_TERMINAL = (
    b"event: response.completed", b"event: response.failed", b"event: response.incomplete",
    b"event: message_stop", b"event: error",
)  # fmt: skip


@dataclass
class Exchange:
    """One request and its answer. `body` is the answer without transfer encoding, as far as it came."""

    method: str
    path: str
    headers: dict[str, str]
    request: dict[str, Any]
    status: int = 0
    body: bytes = b""
    is_stream: bool = False
    # the client closed the connection before the terminal event
    abandoned: bool = False

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of the body."""
        return [json.loads(line[6:]) for line in self.body.split(b"\n") if line.startswith(b"data: {")]


@dataclass
class _Connection:
    sent: bytearray = field(default_factory=bytearray)
    received: bytearray = field(default_factory=bytearray)
    client_left: bool = False


class Tape:
    """All connections so far, in the order of their opening."""

    def __init__(self) -> None:
        self._connections: list[_Connection] = []

    @property
    def exchanges(self) -> list[Exchange]:
        """What was asked and answered on them."""
        return [exchange for connection in list(self._connections) for exchange in _exchanges(connection)]

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[int]:
        """Relay a free port to `host`:`port` while the block runs; yields the free port."""
        running: set[asyncio.Task[None]] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            running.add(task)
            task.add_done_callback(running.discard)
            with suppress(asyncio.CancelledError):  # else the stream's own callback reports that it was cancelled
                await self._relay(reader, writer, host, port)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
        connection = _Connection()
        self._connections.append(connection)
        gateway_reader, gateway_writer = await asyncio.open_connection(host, port)
        copies = [
            asyncio.ensure_future(_copy(reader, gateway_writer, connection.sent)),
            asyncio.ensure_future(_copy(gateway_reader, writer, connection.received)),
        ]
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
            connection.client_left = copies[0].done()
        finally:
            for end in (writer, gateway_writer):
                end.close()  # before the next await, where this task may be cancelled once more
            for copy in copies:
                copy.cancel()
            await asyncio.gather(*copies, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray) -> None:
    try:
        while data := await reader.read(_READ):
            record += data
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        return  # one side broke the connection: the other one is closed next


def _exchanges(connection: _Connection) -> Iterator[Exchange]:
    """Requests and answers alternate: no client of ours pipelines."""
    sent = io.BytesIO(bytes(connection.sent))
    received = _Recording(bytes(connection.received))
    while (exchange := _read_request(sent)) is not None:
        _read_answer(received, exchange)
        exchange.abandoned = connection.client_left and not any(mark in exchange.body for mark in _TERMINAL)
        yield exchange
        if exchange.status == 101:
            return  # a WebSocket from here on


def _read_request(stream: io.BytesIO) -> Exchange | None:
    line = stream.readline().decode().split()
    if len(line) != 3:
        return None
    headers = {name.lower(): value for name, value in parse_headers(stream).items()}
    body = stream.read(int(headers.get("content-length", 0)))
    try:
        request = json.loads(body) if body else {}
    except ValueError:  # still on its way
        return None
    return Exchange(line[0], line[1], headers, request)


class _Recording(io.BytesIO):
    """As much of a socket as `HTTPResponse` needs. It stays open: the next answer follows in the same stream."""

    def makefile(self, mode: str) -> io.BytesIO:
        return self

    def close(self) -> None:
        """Not yet."""


def _read_answer(stream: _Recording, exchange: Exchange) -> None:
    answer = HTTPResponse(cast("socket.socket", stream), method=exchange.method)
    try:
        answer.begin()
        exchange.status = answer.status
        exchange.is_stream = (answer.getheader("content-type") or "").startswith("text/event-stream")
        exchange.body = answer.read()
    except IncompleteRead as cut:
        exchange.body = cut.partial
    except HTTPException:
        return  # no answer yet, or none at all
