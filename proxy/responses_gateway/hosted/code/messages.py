"""What the workers of a gateway and the process that runs code for all of them say to each other, over a Unix socket.

Each message is its length in four bytes, and JSON. A worker sends `Join` on one connection, which it keeps open as long as it
lives, and each question on a connection of its own; closing that one cancels what was asked for."""

from __future__ import annotations

import asyncio

import msgspec

from responses_gateway.hosted.code.runner import CodeOutcome

# A message beyond this is no message of ours: files of a request come in base64.
_LONGEST = 256 * 1024**2
_SIZE = 4


class Join(msgspec.Struct, tag=True):
    """A worker is here, until it sends `Leave` or its connection ends. The answer is `Joined`."""


class Leave(msgspec.Struct, tag=True):
    """The worker ends. The answer is `Left`; the last worker gets it once all containers have ended."""


class HasContainer(msgspec.Struct, tag=True):
    """Is there this container? The answer is a `ContainerExists`."""

    tenant: str
    container_id: str


class RunCode(msgspec.Struct, tag=True):
    """Run this code, in UTF-8 that may contain half surrogate pairs. The answer is `Ran`."""

    tenant: str
    container_id: str
    code: bytes
    files: dict[str, bytes]


class Joined(msgspec.Struct):
    """`error`: why no code can be run."""

    error: str | None = None


class Left(msgspec.Struct):
    """`last`: no worker is left, so the process ends."""

    last: bool


class ContainerExists(msgspec.Struct):
    """Whether there is the container."""

    exists: bool


class Ran(msgspec.Struct):
    """The result of a run, or why the code was not run, in words for the model."""

    outcome: CodeOutcome | None = None
    failure: str | None = None


Question = Join | Leave | HasContainer | RunCode


async def receive(reader: asyncio.StreamReader) -> bytes:
    """Return the next message. Raise `IncompleteReadError` or `ConnectionError` at the end of the connection."""
    size = int.from_bytes(await reader.readexactly(_SIZE), "big")
    if size > _LONGEST:
        raise ConnectionError("a message is too long")
    return await reader.readexactly(size)


def send(writer: asyncio.StreamWriter, message: msgspec.Struct) -> None:
    """Write a message."""
    data = msgspec.json.encode(message)
    writer.write(len(data).to_bytes(_SIZE, "big") + data)
