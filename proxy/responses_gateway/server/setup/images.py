"""The server of images behind the tool `image_generation`: one of the backends."""

from __future__ import annotations

from functools import partial

import aiohttp

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.served_models import Route
from responses_gateway.hosted.images.generation import LONGEST_ANSWER, Generate
from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.wire.errors import ApiError, read_error

_PATH = "images/generations"
_HEADERS = (("Content-Type", "application/json"),)
_READ = 64 * 1024
# How much of a server's refusal the model reads, in characters.
_LONGEST_REASON = 300


def image_server(pool: Pool, model: str) -> Generate:
    """Return what asks the backends that serve the model for images."""
    return partial(_generate, pool, Route(model))


async def _generate(pool: Pool, route: Route, body: bytes) -> bytes:
    try:
        async with pool.request("POST", _PATH, route, body=body, headers=_HEADERS) as answer:
            found = await _read(answer)
            if answer.status != 200:
                reason = read_error(answer.status, found).message[:_LONGEST_REASON]
                raise ToolFailure(f"The server of images refused: {reason}")
            return found
    except (ApiError, aiohttp.ClientError):
        raise ToolFailure("The server of images cannot be reached.") from None


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    """Return the body, unless it is too long."""
    pieces: list[bytes] = []
    size = 0
    async for piece in answer.content.iter_chunked(_READ):
        size += len(piece)
        if size > LONGEST_ANSWER:
            raise ToolFailure("The image is too large. Ask for a smaller one.")
        pieces.append(piece)
    return b"".join(pieces)
