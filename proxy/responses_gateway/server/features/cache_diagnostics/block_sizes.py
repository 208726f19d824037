"""How many tokens a block of each server's prefix cache has, as the server says: vLLM in its metrics, SGLang in its info."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import aiohttp
import msgspec

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.transport.client import Backend
from responses_gateway.bounded_body import read_at_most
from responses_gateway.request.prompt_cache.explanation import BLOCK
from responses_gateway.wire.errors import ApiError

_CONFIG = b"\nvllm:cache_config_info{"
# The label, and not `mamba_block_size` or another one.
_SIZE = re.compile(rb'[{,]block_size="([0-9]{1,6})"')
_LARGEST_BLOCK = 65_536
# Where a server may tell it, in this order.
_PATHS = ("metrics", "server_info", "get_server_info")
# Seconds after which a server is asked again, because another one may have been started, and those within which it answers.
_KNOWN_FOR = 3600.0
_TIMEOUT = 5.0
# Bytes that are read of an answer, and of the line of the metrics.
_LARGEST = 2 * 1024 * 1024
_LONGEST_LINE = 16 * 1024
# Servers that are asked at a time, and that are known, because a pool may have a thousand members that come and go.
_AT_A_TIME = 16
_MOST = 10_000


class _Info(msgspec.Struct):
    """The part of SGLang's answer that is read."""

    page_size: int | None = None


class BlockSizes:
    """Remembers the sizes by backend, and asks for those that are not known."""

    def __init__(self, pool: Pool, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._clock = clock
        self._known: dict[str, tuple[int, float]] = {}  # and when the backend was asked, the last one at the end
        self._asking: dict[str, asyncio.Task[None]] = {}

    def of(self, name: str) -> int:
        """Return the size at a backend; until it has told that, and where it does not, vLLM's own default."""
        size, asked = self._known.get(name, (BLOCK, -_KNOWN_FOR))
        if self._clock() - asked >= _KNOWN_FOR and name not in self._asking and len(self._asking) < _AT_A_TIME:
            member = self._pool.members.by_name.get(name)
            if member is not None:
                self._asking[name] = asyncio.create_task(self._ask(name, member.backend), name="block size")
        return size

    async def _ask(self, name: str, backend: Backend) -> None:
        try:
            size = await block_size(backend)
        finally:
            del self._asking[name]
        self._known.pop(name, None)
        self._known[name] = (size or BLOCK, self._clock())
        if len(self._known) > _MOST:
            del self._known[next(iter(self._known))]

    async def close(self) -> None:
        """Ask no more."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def block_size(backend: Backend) -> int | None:
    """Ask a server for the size of its blocks; None if it does not tell."""
    try:
        async with asyncio.timeout(_TIMEOUT):
            for path in _PATHS:
                async with await backend.request("GET", path, below=backend.root) as answer:
                    body = await read_at_most(answer.content, _LARGEST) if answer.status == 200 else b""
                size = _in_metrics(body) if path == "metrics" else _in_info(body)
                if size is not None and 0 < size <= _LARGEST_BLOCK:
                    return size
    except (TimeoutError, ApiError, aiohttp.ClientError):
        pass
    return None


def _in_metrics(text: bytes) -> int | None:
    start = text.find(_CONFIG)
    label = _SIZE.search(text, start, start + _LONGEST_LINE) if start >= 0 else None
    return None if label is None else int(label[1])


def _in_info(body: bytes) -> int | None:
    try:
        return msgspec.json.decode(body, type=_Info).page_size
    except msgspec.DecodeError:
        return None
