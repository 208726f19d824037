"""How many tokens a block of a server's prefix cache has, as the server tells it."""

from __future__ import annotations

import asyncio
import re

import aiohttp

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.transport.client import Backend
from responses_gateway.bounded_body import read_at_most
from responses_gateway.ended_tasks import end_tasks
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.usage import CACHE_BLOCK

# How vLLM's metrics and SGLang's info tell it: what to look for, and the size behind that. There are other sizes of blocks.
_FORMS = (
    (b"\nvllm:cache_config_info{", re.compile(rb'[{,]block_size="([0-9]{1,6})"')),
    (b'"page_size":', re.compile(rb": ?([0-9]{1,6})\b")),
)
_LONGEST_LINE = 16 * 1024
_LARGEST_BLOCK = 65_536
# Where a server may tell it, in this order; the seconds it may take for that, and the bytes that are read of an answer.
_PATHS = ("metrics", "server_info", "get_server_info")
_TIMEOUT = 5.0
_LARGEST = 2 * 1024 * 1024
# Least seconds between two questions to a backend, because no server is started again in less.
LEAST_INTERVAL = 5.0


async def block_size(backend: Backend) -> int | None:
    """Ask a server; None if it does not tell."""
    try:
        async with asyncio.timeout(_TIMEOUT):
            for path in _PATHS:
                async with await backend.request("GET", path, below=backend.root) as answer:
                    body = await read_at_most(answer.content, _LARGEST) if answer.status == 200 else b""
                size = _told_in(body)
                if size is not None and 0 < size <= _LARGEST_BLOCK:
                    return size
    except (TimeoutError, ApiError, aiohttp.ClientError):
        pass
    return None


class BlockSizes:
    """Asks each backend in the background when a size is wanted, and one for all members of a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._sizes: dict[str, int] = {}
        self._asked: dict[str, float] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def of(self, name: str) -> int:
        """Return the size at a backend; until it has told that, and if it does not, vLLM's own default."""
        member = self._pool.members.by_name.get(name)
        if member is None:
            return CACHE_BLOCK
        if member.label not in self._asked:
            self.ask(name)
        return self._sizes.get(member.label, CACHE_BLOCK)

    def ask(self, name: str) -> None:
        """Ask a backend, again if that was not a moment ago: it may have been started again in another way."""
        member = self._pool.members.by_name.get(name)
        now = asyncio.get_running_loop().time()
        if member is None or now - self._asked.get(member.label, float("-inf")) < LEAST_INTERVAL:
            return
        self._asked[member.label] = now
        self._asking[member.label] = asyncio.create_task(self._note(member.label, member.backend), name="block size")

    async def close(self) -> None:
        """Stop asking."""
        await end_tasks(*self._asking.values())

    async def _note(self, label: str, backend: Backend) -> None:
        size = await block_size(backend)
        if size is not None:
            self._sizes[label] = size


def _told_in(body: bytes) -> int | None:
    for mark, form in _FORMS:
        start = body.find(mark)
        size = form.search(body, start, start + _LONGEST_LINE) if start >= 0 else None
        if size is not None:
            return int(size[1])
    return None
