"""The stores that the contract is held against."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from proxy.state import Database, Store


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


Opened = tuple[Store, Database, Clock]
Opening = Callable[[], AbstractAsyncContextManager[Opened]]


@pytest.fixture(params=["file", "memory"])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Opening:
    """Opens the store: a file that is there again the next time, or memory."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Opened]:
        clock = Clock()
        database = Database(tmp_path / "state" / "responses.sqlite3" if request.param == "file" else None)
        store = Store(database, 1000.0, clock)
        await store.open()
        try:
            yield store, database, clock
        finally:
            await store.close()

    return opened
