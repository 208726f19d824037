"""How busy a vLLM server says it is, in its metrics: what other gateways send to it counts there, too."""

from __future__ import annotations

import asyncio
import re

import aiohttp

from responses_gateway.backend.transport.client import Backend
from responses_gateway.wire.errors import ApiError

# One line for each engine of a server (its data-parallel ranks), which add up.
_REQUESTS = re.compile(rb"^vllm:num_requests_(?:running|waiting)(?:\{[^\n]*\})? ([0-9.e+]+)\s*$", re.MULTILINE)


def requests_in(metrics: bytes) -> int | None:
    """Return how many requests a server has, running and waiting; None if its metrics do not tell."""
    numbers = _REQUESTS.findall(metrics)
    return round(sum(map(float, numbers))) if numbers else None


async def requests_at(backend: Backend, within: float) -> int | None:
    """Ask a server how many requests it has; None if it does not tell within so many seconds."""
    try:
        async with asyncio.timeout(within), await backend.request("GET", "metrics", below=backend.root) as answer:
            return requests_in(await answer.read()) if answer.status == 200 else None
    except (TimeoutError, ApiError, aiohttp.ClientError, ValueError):
        return None
