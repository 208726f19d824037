"""Backends written by hand, byte by byte, for what no well-behaved server does.

A backend is a coroutine that plays one request on a raw `Connection`. `chat_stream` is the answer they cut and garble:
reasoning, text, a call, finish_reason, usage, `[DONE]`, with the place in it by name (`PHASES`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSED_HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
# What a backend might let slip: none of it may ever reach a client.
SECRETS = (b"sk-backend-secret", b"s3cr3t-cookie", b"some-other-model", b"Traceback", b"/srv/engine/core.py")
SECRET_HEADERS = (
    b"openai-model: some-other-model\r\nset-cookie: session=s3cr3t-cookie\r\nx-secret: sk-backend-secret\r\n"
    b"x-models-etag: some-other-model\r\n"
)
TRACEBACK = 'Traceback (most recent call last):\n  File "/srv/engine/core.py", line 3, in step\nKeyError: "sk-backend-secret"'
# Phase -> how many payloads of `chat_stream` have been sent when it is reached.
PHASES = {
    "before the first token": 0, "role": 1, "reasoning": 3, "text": 5, "arguments": 7, "finished": 8, "usage": 9, "done": 10,
}  # fmt: skip
# The phases in which the model has not finished yet.
UNFINISHED = [phase for phase, sent in PHASES.items() if sent < 8]


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    """Return one chat chunk as a server-sent event."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    value = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **fields}
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def call(arguments: str, **fields: Any) -> dict[str, Any]:
    """Return the delta of a piece of a call."""
    name = {"name": "get_weather"} if fields else {}
    return {"tool_calls": [{"index": 0, **fields, "function": {**name, "arguments": arguments}}]}


def chat_stream() -> list[bytes]:
    """Return the payloads of a complete answer."""
    usage = {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16, "prompt_tokens_details": {"cached_tokens": 4}}
    return [
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning": "Let me "}),
        chunk({"reasoning": "think. "}),
        chunk({"content": "Grüße "}),
        chunk({"content": "from here."}),
        chunk(call('{"city": ', id="call-1", type="function")),
        chunk(call('"Paris"}')),
        chunk({}, "tool_calls"),
        chunk(None, usage=usage),
        b"data: [DONE]\n\n",
    ]


def text_stream(*pieces: str) -> list[bytes]:
    """Return the payloads of an answer that is text alone."""
    return [chunk({"content": piece}) for piece in pieces] + [chunk({}, "stop"), b"data: [DONE]\n\n"]


def chunked(data: bytes) -> bytes:
    """Encode as one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Connection(asyncio.Protocol):
    """A connection of the gateway, as the backend sees it."""

    def __init__(self, play: Play, requests: list[bytes], tasks: set[asyncio.Task[None]]) -> None:
        self._play = play
        self.requests = requests
        self._tasks = tasks
        self.data = b""
        self.request = b""  # the one that came last
        self._loop = asyncio.get_running_loop()
        # Done when the gateway has closed the connection; the value is the loop's time then.
        self.lost: asyncio.Future[float] = self._loop.create_future()
        self.transport: asyncio.Transport
        # Set while the gateway reads as fast as we write.
        self.writable = asyncio.Event()
        self.writable.set()
        self.has_waited = False  # to write, at any time
        self.sent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop has a class of its own

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, end, rest = self.data.partition(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        if end and len(rest) >= length:
            self.data = rest[length:]
            self.request = head + end + rest[:length]
            self.requests.append(self.request)
            task = asyncio.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(self._loop.time())
        self.writable.set()  # nobody need wait any more

    def pause_writing(self) -> None:
        self.writable.clear()
        self.has_waited = True

    def resume_writing(self) -> None:
        self.writable.set()

    async def _run(self) -> None:
        with suppress(ConnectionError):  # the gateway is gone: `lost` tells
            await self._play(self)

    def send(self, *pieces: bytes) -> None:
        """Send each piece as an HTTP chunk of its own, all in one write."""
        self.write(b"".join(chunked(piece) for piece in pieces))

    def write(self, data: bytes) -> None:
        """Bytes as they are."""
        if self.lost.done():
            raise ConnectionResetError
        self.sent += len(data)
        self.transport.write(data)

    def end(self) -> None:
        """Send the last HTTP chunk; the connection stays open."""
        self.write(b"0\r\n\r\n")

    def close(self) -> None:
        """Close the connection in good order (FIN)."""
        self.transport.close()

    def reset(self) -> None:
        """Reset the connection (RST)."""
        self.transport.abort()


Play = Callable[[Connection], Awaitable[None]]


class Backend:
    """A running backend: its URL, the requests that came (head and body), its open connections."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[bytes] = []
        self.connections: list[Connection] = []

    def forget(self) -> None:
        """Keep no request that came, nor one that a connection keeps: two at once may take a connection more than before."""
        self.requests.clear()
        for connection in self.connections:
            connection.request = b""
            if connection.lost.done():
                connection.data = b""


@asynccontextmanager
async def backend(play: Play) -> AsyncIterator[Backend]:
    """Serve on a free port; every request is answered by `play`."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()
    running = Backend("")

    def connect() -> Connection:
        connection = Connection(play, running.requests, tasks)
        running.connections.append(connection)
        return connection

    server = await loop.create_server(connect, "127.0.0.1", 0)
    running.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield running
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        for connection in running.connections:
            if not connection.lost.done():  # a transport that is gone has no loop any more
                connection.transport.abort()


def answering(head: bytes, body: bytes = b"") -> Play:
    """Return a backend that gives one fixed answer and closes the connection."""

    async def play(connection: Connection) -> None:
        connection.write(head + body)
        connection.close()

    return play


def streaming(*pieces: bytes) -> Play:
    """Return a backend that streams these pieces, an HTTP chunk each, and ends the body."""

    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(*pieces)
        connection.end()

    return play


def refusing(status: int, body: bytes, content_type: bytes = b"application/json", headers: bytes = b"") -> Play:
    """Return a backend that refuses with a status and a body, and reveals secrets in its headers."""
    head = b"HTTP/1.1 %d No\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b%b\r\n" % (
        status, content_type, len(body), SECRET_HEADERS, headers,
    )  # fmt: skip
    return answering(head, body)
