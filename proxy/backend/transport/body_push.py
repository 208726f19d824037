"""The hot path of the backend's side: body bytes of an event stream are pushed to a sink inside `data_received`.

aiohttp's own way (StreamReader, a future, a task step and several coroutines for each read) costs more than the whole
translation. This protocol lets aiohttp parse the head of a response. If that announces a chunked event stream, it undoes
the chunking itself and calls the sink; the last chunk goes to aiohttp again, so that pool, keep-alive and errors stay its own.

It reads private parts of aiohttp (`TCPConnector._factory`, `ResponseHandler`), which is why `pyproject.toml` pins its minor
version. Where they are missing, `install` returns False and the caller reads responses in the ordinary way.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

#: Takes the bytes that one read brought.
Sink = Callable[[bytes], None]

_HEAD_LIMIT = 64 * 1024
_SIZE_LINE_LIMIT = 1024
_EARLY_LIMIT = 256 * 1024


class BodyBroken(ConnectionError):
    """The connection ended before the body did."""


class PushHandler(ResponseHandler):
    """A client protocol that can push the body of a chunked event stream."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._expects_head = False
        self._requests = 0
        self._reset_body(pushing=False)

    def _reset_body(self, *, pushing: bool) -> None:
        self._pushing = pushing
        self._lost = False
        self._sink: Sink | None = None
        self._ready: Sink | None = None  # the sink, while the next byte is the first of a chunk
        self._finished: asyncio.Future[None] | None = None
        self._early = b""  # what came before a sink was there
        self._line = b""  # a size line cut by the end of a read
        self._left = 0  # bytes of the current chunk still to come, its line end included

    @property
    def pushing(self) -> bool:
        """The current response is an event stream whose body has to be taken with `attach`."""
        return self._pushing

    @property
    def outlived(self) -> bool:
        """The connection had served a request before, and brought nothing at all for the last one."""
        return self._requests > 1 and self._expects_head

    def attach(self, sink: Sink) -> asyncio.Future[None]:
        """Push the body to `sink` from now on. The future ends with the body, or with `BodyBroken`."""
        self._finished = finished = self._loop.create_future()
        self._sink = sink
        early, self._early = self._early, b""
        if len(early) > _EARLY_LIMIT:
            self.resume()
        self._receive(early)
        if self._lost and not finished.done():
            finished.set_exception(BodyBroken())
        return finished

    def pause(self) -> None:
        """Stop reading: the client is slower than the model. Nothing happens once the body is over: the connection is in the
        pool then, and a paused one would never bring the next answer."""
        if self._pushing and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def set_response_params(self, **params: Any) -> None:
        """Called by aiohttp when a request is about to be sent."""
        self._expects_head = True
        self._requests += 1
        self._reset_body(pushing=False)
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop with what one read brought."""
        sink = self._ready
        if sink is not None:
            end = data.find(b"\r\n", 0, 16)
            size = len(data) - end - 4
            if size > 0 and data[:end] == b"%x" % size:
                sink(data[end + 2 : -2])  # the usual case: one read is one chunk
            else:
                self._receive(data)
        elif self._pushing:
            if self._sink is not None:
                self._receive(data)
                return
            self._early += data
            if len(self._early) > _EARLY_LIMIT:
                self.pause()
        elif self._expects_head and data:
            self._expects_head = False
            end = data.find(b"\r\n\r\n", 0, _HEAD_LIMIT) + 4
            if end < 4 or not _is_pushable(data[:end]):
                super().data_received(data)
                return
            super().data_received(data[:end])
            self._reset_body(pushing=True)
            self._early = data[end:]
        else:
            super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by the event loop when the connection is gone."""
        self._lost = True
        if self._finished is not None and not self._finished.done():
            self._finished.set_exception(BodyBroken())
        super().connection_lost(exc)

    def _receive(self, data: bytes) -> None:
        sink = self._sink
        assert sink is not None
        body = self._unchunk(data)
        self._ready = sink if self._pushing and not self._left and not self._line else None
        if body:
            sink(body)
        if not self._pushing:
            self._sink = None  # the connection may wait long for its next request
            if self._finished is not None and not self._finished.done():
                self._finished.set_result(None)

    def _unchunk(self, data: bytes) -> bytes:
        """The payload in `data`; chunks may be cut anywhere. Hands what is behind the last chunk to aiohttp."""
        if self._line:
            data, self._line = self._line + data, b""
        out: list[bytes] = []
        at, length, left = 0, len(data), self._left
        while at < length:
            if left:  # the rest of a chunk, as much of it as is here
                end = at + left - 2
                out.append(data[at : max(at, end)])
                at, left = min(length, end + 2), max(0, end + 2 - length)
                continue
            end = data.find(b"\r\n", at, at + _SIZE_LINE_LIMIT)
            if end < 0 and length - at < _SIZE_LINE_LIMIT:
                self._line = data[at:]
                break
            line = data[at:end]
            try:
                size = int(line, 16)
            except ValueError:
                size = _size(line) if end >= 0 else -1
            if size <= 0:  # the last chunk, or nothing that is a chunk: aiohttp's parser knows what to do
                self._pushing = False
                super().data_received(data[at:])
                break
            at = end + 2 + size
            if at + 2 <= length:
                out.append(data[end + 2 : at])  # a whole chunk
                at += 2
            else:
                at, left = end + 2, size + 2
        self._left = left
        return b"".join(out)


def install(connector: aiohttp.TCPConnector) -> bool:
    """Make `connector` use this protocol. False if this aiohttp is not the one it was written for."""
    factory = getattr(connector, "_factory", None)
    if not isinstance(factory, functools.partial) or factory.func is not ResponseHandler:
        return False
    connector._factory = functools.partial(PushHandler, *factory.args, **factory.keywords)  # type: ignore[assignment]
    return True


def _is_pushable(head: bytes) -> bool:
    """200, an event stream, chunked, and nothing else done to its body."""
    if not head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 200\r\n")):
        return False
    head = head.lower()
    return (
        b"\r\ncontent-type: text/event-stream" in head
        and b"\r\ntransfer-encoding: chunked\r\n" in head
        and b"\r\ncontent-encoding:" not in head
    )


def _size(line: bytes) -> int:
    """The size that a chunk's first line gives, if it has extensions; -1 if it gives none."""
    size, mark, _ = line.partition(b";")
    try:
        return int(size, 16) if mark else -1
    except ValueError:
        return -1
