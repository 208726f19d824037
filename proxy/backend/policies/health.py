"""Asking a backend whether it is well, and what it serves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import aiohttp
import msgspec

from proxy.backend.transport.client import Backend
from proxy.wire.errors import ApiError

#: Failed checks in a row after which a backend is unhealthy; one that succeeds makes it healthy again.
FAILURES = 2
#: Servers without `/health` say so in one of these ways: their list of models tells as much.
_NO_SUCH_PATH = frozenset({401, 403, 404, 405, 501})
#: In bytes.
_LONGEST_LIST = 8 * 1024 * 1024


class _Model(msgspec.Struct):
    id: str = ""
    owned_by: str | None = None


class _ModelList(msgspec.Struct):
    data: list[_Model] = []


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: `problem` is empty for a backend that is well. `models`: name → owner, None if it did not list them
    (it wants a client's key, say)."""

    problem: str = ""
    models: dict[str, str | None] | None = field(default=None)


async def examine(backend: Backend, within: float) -> Finding:
    """Ask `/health`, where there is one, and `/v1/models`. `within` is in seconds, for both together."""
    try:
        async with asyncio.timeout(within):
            async with await backend.request("GET", "health", below=backend.root) as answer:
                status = answer.status
            if not (status < 300 or status in _NO_SUCH_PATH):
                return Finding(f"/health answers with HTTP {status}")
            return await _list(backend)
    except TimeoutError:
        return Finding(f"no answer within {within:g} seconds")
    except ApiError as error:
        return Finding(error.message)
    except aiohttp.ClientError:
        return Finding("the connection broke in the middle of an answer")


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    """The body, or the beginning of one that is no list of models, so long is it."""
    pieces, size = [], 0
    while size < _LONGEST_LIST and (data := await answer.content.readany()):
        pieces.append(data)
        size += len(data)
    return b"".join(pieces)


async def _list(backend: Backend) -> Finding:
    async with await backend.request("GET", "models") as answer:
        status, body = answer.status, await _read(answer)
    if status >= 500:
        return Finding(f"/v1/models answers with HTTP {status}")
    try:
        listed = msgspec.json.decode(body, type=_ModelList) if status == 200 else None
    except msgspec.DecodeError:
        listed = None
    return Finding(models=None if listed is None else {model.id: model.owned_by for model in listed.data if model.id})
