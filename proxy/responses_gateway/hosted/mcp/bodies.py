"""Bodies of HTTP answers, read message by message before the library reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2

from responses_gateway.hosted.mcp.messages import MessageReader

EVENT_STREAM = "text/event-stream"
# Fields of an event that the library uses, apart from its data.
_FIELDS = (b"event", b"id", b"retry")
_LONGEST_FIELD = 4 * 1024  # bytes of one of these, and of the data of an event that is no message


def read_body(
    parts: AsyncIterator[bytes], content_type: str, reader: MessageReader, request_id: str | int | None
) -> AsyncIterator[bytes]:
    """Return a body with its messages as the library is given them. `request_id` is the id of what was asked, if it was."""
    return _read_events(parts, reader) if content_type.startswith(EVENT_STREAM) else _read_whole(parts, reader, request_id)


async def _read_whole(parts: AsyncIterator[bytes], reader: MessageReader, request_id: str | int | None) -> AsyncIterator[bytes]:
    yield await reader.read(b"".join([part async for part in parts]), request_id)


async def _read_events(parts: AsyncIterator[bytes], reader: MessageReader) -> AsyncIterator[bytes]:
    event = _Event()
    line = bytearray()
    ended_with_cr = False
    async for part in parts:
        if ended_with_cr and part.startswith(b"\n"):
            part = part[1:]  # noqa: PLW2901  (the other half of a line end)
        ended_with_cr = part.endswith(b"\r")
        for piece in part.splitlines(keepends=True):
            line += piece
            if piece[-1] not in b"\r\n":
                break
            complete = bytes(line).rstrip(b"\r\n")
            line.clear()
            if complete:
                event.add(complete)
            elif event.begun:
                yield await event.read(reader)
                event = _Event()
        if event.size + len(line) > reader.limits.message_bytes:
            raise httpx2.StreamError(f"an event is longer than {reader.limits.message_bytes} bytes")
        await asyncio.sleep(0)


class _Event:
    """An event that is read line by line. Comments are left out."""

    def __init__(self) -> None:
        self.begun = False
        self.size = 0
        self._data: list[bytes] = []
        self._fields: dict[bytes, bytes] = {}

    def add(self, line: bytes) -> None:
        """Add a line, which is not empty."""
        name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")  # .NET begins a text with this mark
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name in _FIELDS and len(value) <= _LONGEST_FIELD:
            self._fields[name] = value.removeprefix(b" ")
        else:
            return
        self.begun = True
        self.size += len(line)

    async def read(self, reader: MessageReader) -> bytes:
        """Return the event as the library is given it."""
        data = b"\n".join(self._data)
        if self._fields.get(b"event", b"message") != b"message":
            data = data[:_LONGEST_FIELD]
        elif data:
            data = await reader.read(data)
        fields = [name + b": " + value for name, value in self._fields.items()]
        return b"\n".join([*fields, b"data: " + data.replace(b"\n", b" ")]) + b"\n\n"
