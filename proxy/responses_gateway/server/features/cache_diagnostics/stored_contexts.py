"""What servers have read of the threads of sessions, in the store: for other processes, and for this one after a restart.

Each thread there is as the process left it that had its last turn."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

import msgspec

from responses_gateway.ended_tasks import KeptTasks
from responses_gateway.request.prompt_cache.context import CachedContext
from responses_gateway.request.prompt_cache.contexts import Asking, Contexts
from responses_gateway.request.who_asks import session_id
from responses_gateway.state import StoreUnavailable
from responses_gateway.state.prompt_hashes import PromptHashTable

# Bytes of a thread that are written, and of its contexts the last ones, because that is done for each turn.
LARGEST = 64 * 1024
_MOST_WRITTEN = 4
MOST_AT_ONCE = 1_000  # threads that are read or written at once: those that wait for a store that is away
_MOST_MESSAGES = 100_000  # messages whose checksums are known


class _Thread(NamedTuple):
    """A thread as it is stored: by which process, and its contexts; none where they are too large."""

    process: str
    contexts: Sequence[CachedContext]


class StoredContexts:
    """Reads and writes threads beside the requests: none waits for the store, which is `shared` with other processes or not."""

    def __init__(self, table: PromptHashTable, contexts: Contexts, *, shared: bool) -> None:
        self._table = table
        self._shared = shared
        self._process = secrets.token_hex(8)
        self._contexts = contexts
        self._tasks: KeptTasks[None] = KeptTasks()
        self._checksums: dict[int, int] = {}  # by hash, which an object has only once

    def checksum(self, message: bytes) -> int:
        """Return a checksum that all processes compute alike."""
        key = hash(message)
        known = self._checksums.get(key)
        if known is None:
            if len(self._checksums) >= _MOST_MESSAGES:
                self._checksums.clear()
            known = self._checksums[key] = crc32(message)
        return known

    def read(self, asking: Asking) -> None:
        """Begin to read a thread, if nothing is known of it here, or others may know better."""
        if self._shared or not self._contexts.of(asking):
            self._begin(asking, b"")

    def write(self, asking: Asking) -> None:
        """Begin to write a thread, in which a turn has ended. What the store does not take is lost."""
        data = msgspec.msgpack.encode(_Thread(self._process, self._contexts.of(asking)[-_MOST_WRITTEN:]))
        if len(data) > LARGEST:
            data = msgspec.msgpack.encode(_Thread(self._process, ()))
        self._begin(asking, data)

    async def close(self) -> None:
        """Wait until what was begun is done."""
        await asyncio.gather(*self._tasks)

    def _begin(self, asking: Asking, data: bytes) -> None:
        if len(self._tasks) < MOST_AT_ONCE:
            self._tasks.begin(self._exchange(asking, data), name="earlier turns")

    async def _exchange(self, asking: Asking, data: bytes) -> None:
        """Write a thread; read it if there is nothing to write."""
        known = self._contexts.of(asking)[-1:]
        name = session_id(asking.tenant, f"{asking.session}\n{asking.thread}")
        with suppress(StoreUnavailable, msgspec.MsgspecError):  # `Background` logs outages; another version wrote other data
            kept = await self._table.exchange(asking.tenant, name if data else "", data, name)
            if kept and not data and self._contexts.of(asking)[-1:] == known:  # the turn has not ended yet
                thread = msgspec.msgpack.decode(kept, type=_Thread)
                if thread.process != self._process and thread.contexts:
                    self._contexts.begin(asking, [*thread.contexts])
