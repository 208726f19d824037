"""SQLite: one file, or memory. Several processes of one machine may have the same file open (WAL).

Work that arrives while the file is busy is done together, with one commit."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from proxy.state.interfaces import Rows, Sql, StoreUnavailable, storable
from proxy.state.schema import SQLITE, TooNew, migrate

T = TypeVar("T")

# How long a transaction waits for one of another process, in seconds.
_BUSY_TIMEOUT = 10
_RETRY = 0.02
# The largest number of pieces of work in one transaction.
_BATCH = 64
# Page cache, in KiB.
_CACHE = 16 * 1024

# The result of a piece of work, or its error.
_Outcome = tuple[Any, Exception | None]


class Sqlite:
    """A database with a thread of its own."""

    def __init__(self, path: Path | None) -> None:
        """Use the file at `path`, created with its folder if absent; None keeps everything in memory."""
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode of the open file
        self._closed = True
        self._waiting: deque[_Work] = deque()

    async def open(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._open)
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    async def run(self, work: Callable[[Sql], T]) -> T:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        self._waiting.append(_Work(work, result))
        self._thread.submit(self._do_waiting, loop)
        return await result

    # ---- in the thread ----------------------------------------------------------------------------------------------

    def _do_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do all waiting work, or as much as fits into one transaction; nothing if another call has done it already."""
        batch: list[_Work] = []
        while self._waiting and len(batch) < _BATCH:
            batch.append(self._waiting.popleft())
        if batch:
            outcomes = self._together(batch) if len(batch) > 1 else None
            if outcomes is None:
                outcomes = [self._alone(one.function) for one in batch]
            loop.call_soon_threadsafe(_deliver, batch, outcomes)

    def _together(self, batch: Sequence[_Work]) -> list[_Outcome] | None:
        """Do each piece of work in a savepoint of one transaction. Return None if the database failed: nothing was written."""
        outcomes: list[_Outcome] = []

        def run_batch(sql: Sql) -> None:
            for one in batch:
                sql.execute("SAVEPOINT work")
                try:
                    outcomes.append((one.function(sql), None))
                except sqlite3.Error:
                    raise
                except Exception as error:
                    sql.execute("ROLLBACK TO work")
                    outcomes.append((None, error))
                sql.execute("RELEASE work")

        return outcomes if self._alone(run_batch)[1] is None else None

    def _alone(self, function: Callable[[Sql], Any]) -> _Outcome:
        """Do one piece of work as a transaction."""
        try:
            connection = self._usable()
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = function(_Transaction(connection))
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:  # it failed; some errors have already ended it
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            if not isinstance(error, sqlite3.OperationalError):  # damaged or not a database: the file may be replaced later
                self._close()
            return None, _unavailable(error)
        except Exception as error:
            return None, error
        return result, None

    def _usable(self) -> sqlite3.Connection:
        """Return the connection; a new one if the file was deleted, or replaced by a backup."""
        if self._connection is None or (self._path is not None and _identity(self._path) != self._file):
            self._close()
            self._open()
        assert self._connection is not None
        return self._connection

    def _open(self) -> None:
        connection = None
        try:
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            connection = sqlite3.connect(self._path or ":memory:", timeout=_BUSY_TIMEOUT, isolation_level=None)
            if self._path is not None:
                self._path.chmod(0o600)
                _switch_to_wal(connection)
            # With WAL, a crash of the process loses nothing; a power cut may lose the last transactions, but not consistency.
            connection.execute("PRAGMA synchronous = NORMAL")
            # Deleted content is overwritten.
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA cache_size = -{_CACHE}")
            connection.execute("BEGIN IMMEDIATE")
            migrate(_Transaction(connection), SQLITE)
            connection.execute("COMMIT")
        except (sqlite3.Error, OSError, TooNew) as error:
            if connection is not None:
                connection.close()
            reason = str(error) if isinstance(error, TooNew) else f"cannot open {self._path}: {error}"
            raise StoreUnavailable(reason) from error
        self._connection = connection
        self._file = _identity(self._path) if self._path is not None else None

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Work(NamedTuple):
    function: Callable[[Sql], Any]
    result: asyncio.Future[Any]


def _deliver(batch: Sequence[_Work], outcomes: Sequence[_Outcome]) -> None:
    for one, (value, error) in zip(batch, outcomes, strict=True):
        if one.result.done():
            continue  # its caller was cancelled
        if error is not None:
            one.result.set_exception(error)
        else:
            one.result.set_result(value)


def _unavailable(error: sqlite3.Error) -> StoreUnavailable:
    unavailable = StoreUnavailable(str(error))
    unavailable.__cause__ = error
    return unavailable


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL; wait, as SQLite does not do here, if another process switches the new file at the same moment."""
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
