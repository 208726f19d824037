"""SQLite: one file, or memory. Several processes of one machine may have the same file open (WAL)."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from proxy.state.database import Rows, Sql, StoreUnavailable, storable
from proxy.state.schema import SQLITE, TooNew, migrate

T = TypeVar("T")

#: How long a transaction waits for that of another process, in seconds.
_BUSY_TIMEOUT = 10
_RETRY = 0.02
#: Memory for pages, in KiB.
_CACHE = 16 * 1024


class Sqlite:
    """A database on a thread of its own."""

    def __init__(self, path: Path | None) -> None:
        """`path` is created with its folder when absent; None keeps everything in memory."""
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """See `Database`."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._open)

    async def close(self) -> None:
        """See `Database`."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    async def run(self, work: Callable[[Sql], T]) -> T:
        """See `Database`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)

    def _open(self) -> None:
        try:
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            connection = sqlite3.connect(self._path or ":memory:", timeout=_BUSY_TIMEOUT, isolation_level=None)
            if self._path is not None:
                self._path.chmod(0o600)
                _switch_to_wal(connection)
            # With WAL, a crash of the process loses nothing; a power cut may lose the last moments, never consistency.
            connection.execute("PRAGMA synchronous = NORMAL")
            # What is deleted is overwritten.
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA cache_size = -{_CACHE}")
            self._connection = connection
            self._run(lambda sql: migrate(sql, SQLITE))
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailable(f"cannot open {self._path}: {error}") from error
        except TooNew as error:
            raise StoreUnavailable(str(error)) from error

    def _run(self, work: Callable[[Sql], T]) -> T:
        connection = self._connection
        if connection is None:
            raise StoreUnavailable("the store is closed")
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(_Transaction(connection))
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise StoreUnavailable(str(error)) from error
        return result

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """SQLite does not wait by itself here, when another process switches the new file at the same moment."""
    deadline = time.monotonic() + _BUSY_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY)


class _Transaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        try:
            return self._execute(statement, values)
        except UnicodeEncodeError:
            return self._execute(statement, storable(values))
