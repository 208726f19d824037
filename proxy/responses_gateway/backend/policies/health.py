"""Health checks: is a backend healthy, and which models does it list?"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from responses_gateway.backend.policies.alike import checkpoint_of
from responses_gateway.backend.policies.routers import QUESTIONS, identified_by
from responses_gateway.backend.served_models import Listing
from responses_gateway.backend.transport.client import Backend
from responses_gateway.bounded_body import read_at_most
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.json_text import decode_as

# Failed checks in a row after which a backend is unhealthy; one that succeeds makes it healthy again.
FAILURES = 2
# How servers without `/health` answer. Their list of models tells as much.
_NO_SUCH_PATH = frozenset({401, 403, 404, 405, 501})
LARGEST_LIST = 8 * 1024 * 1024  # bytes that are read of a list of models


class _ModelList(msgspec.Struct):
    data: list[dict[str, Any]] = []


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The result of a check: `problem` is empty for a healthy backend. `listed`: None if it did not list its models, because
    it requires a client's key, for example."""

    problem: str = ""
    listed: Listing | None = None


async def check_health(backend: Backend, within: float) -> HealthReport:
    """Ask `/health`, if there is one, and `/v1/models`. `within` is in seconds, for both together."""
    try:
        async with asyncio.timeout(within):
            async with await backend.request("GET", "health", below=backend.root) as answer:
                status = answer.status
            if not (status < 300 or status in _NO_SUCH_PATH):
                return HealthReport(f"/health answered with HTTP {status}")
            return await _list_models(backend)
    except TimeoutError:
        return HealthReport(f"no answer within {within:g} seconds")
    except ApiError as error:
        return HealthReport(error.message)
    except aiohttp.ClientError:
        return HealthReport("the connection broke in the middle of an answer")


async def asks_many(backend: Backend, within: float) -> bool | None:
    """Ask a backend whether it is a router in front of many; None if it does not answer. `within` is in seconds."""
    try:
        async with asyncio.timeout(within):
            for question in QUESTIONS:
                async with await backend.request("GET", question, below=backend.root) as answer:
                    body = await read_at_most(answer.content, LARGEST_LIST)
                with suppress(msgspec.DecodeError):
                    if identified_by(question, msgspec.json.decode(body)):
                        return True
    except (TimeoutError, ApiError, aiohttp.ClientError):
        return None
    return False


async def _list_models(backend: Backend) -> HealthReport:
    async with await backend.request("GET", "models") as answer:
        body = await read_at_most(answer.content, LARGEST_LIST)
    if answer.status >= 500:
        return HealthReport(f"/v1/models answered with HTTP {answer.status}")
    try:
        data = decode_as(body, _ModelList).data if answer.status == 200 else None
    except msgspec.DecodeError:
        data = None
    if data is None:
        return HealthReport()
    entries = {entry["id"]: entry for entry in data if entry.get("id") and isinstance(entry["id"], str)}
    owners = {name: owner if isinstance(owner := entry.get("owned_by"), str) else None for name, entry in entries.items()}
    contexts = {name: length for name, entry in entries.items() if type(length := entry.get("max_model_len")) is int}
    checkpoints = {name: listed for name, entry in entries.items() if (listed := checkpoint_of(entry)) is not None}
    return HealthReport(listed=Listing(owners, contexts, checkpoints))
