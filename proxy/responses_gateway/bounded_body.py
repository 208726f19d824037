"""Bodies of HTTP answers, read to a bound: whoever sends one may never end."""

from __future__ import annotations

from aiohttp import StreamReader


async def read_at_most(content: StreamReader, limit: int) -> bytes:
    """Return the body, or the first `limit` bytes of one that is longer. Ask for one more than may be, and its length tells.

    The rest is not read: leave the answer's context, and its connection is closed. Raise `aiohttp.ClientError` if the body
    breaks off."""
    body = bytearray()
    while len(body) < limit and (piece := await content.read(limit - len(body))):
        body += piece
    return bytes(body)
