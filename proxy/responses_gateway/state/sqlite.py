"""SQLite: one file, or memory. Several processes of one machine may have the same file open (WAL).

Work that arrives while the file is busy is done together, with one commit."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from responses_gateway.state.interfaces import NO_ROOM, Rows, Sql, StoreUnavailable, storable
from responses_gateway.state.schema import SQLITE, OtherSchema, create_tables

T = TypeVar("T")

# What clients are told of a file that takes nothing more, and whom to ask, because it does not help to try again.
_UNWRITABLE = {
    sqlite3.SQLITE_READONLY: "The store of this gateway cannot be written: its operator has to make the file writable.",
    sqlite3.SQLITE_FULL: NO_ROOM,
}
BUSY_TIMEOUT = 10  # how long a transaction waits for one of another process, in seconds
# How long the next ones wait when it was too long.
_MOMENT = 0.2
_RETRY = 0.02
_BATCH = 64  # the largest number of pieces of work in one transaction
_COMMIT_INTERVAL = 0.002  # the shortest time between the beginnings of two transactions, in seconds
# Pages in the write-ahead log after which they are copied to the file. Most change many times: the fewer copies, the better.
_CHECKPOINT = 4000
_CACHE = 16 * 1024  # page cache, in KiB

# Pages that are given back at once. Some stay free, for what comes next: so many, and this part of the file.
_PAGES = 256
_SPARE_PAGES = 256
_SPARE_PART = 16
# The write-ahead log shrinks to this size, in bytes, when it has been copied to the file.
_LARGEST_LOG = 16 * 1024 * 1024

# Rows in one statement. With more of them, what each row saves no longer grows, but the values are copied more slowly.
_ROWS = 20

# The result of a piece of work, or its error.
_Outcome = tuple[Any, Exception | None]


class Sqlite:
    """A database with a thread of its own."""

    def __init__(self, path: Path | None) -> None:
        """Use the file at `path`, created with its folder if absent; None keeps everything in memory."""
        self.path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode of the open file
        self._closed = True
        self._waiting: deque[_Work] = deque()
        self._busy = False  # the thread will look for waiting work
        self._several_at_once = False  # so it was in the last transaction
        self._patience: float = BUSY_TIMEOUT  # how long a transaction waits for the file, in seconds
        self._begun_at = 0.0  # when the last transaction began, on the monotonic clock

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
        if not self._busy:
            self._busy = True
            self._thread.submit(self._do_waiting, loop)
        return await result

    async def size(self) -> int:
        return await self.run(lambda sql: _pages(sql).used_bytes)

    async def shrink(self) -> bool:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._shrink)

    # ---- in the thread ----------------------------------------------------------------------------------------------

    def _do_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do all work that waits."""
        try:
            while self._waiting:
                self._do_batch(loop)
                if not self._waiting:
                    self._busy = False  # before the last look: what comes behind it is done by another call
        finally:
            self._busy = False

    def _do_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do as much of the waiting work as fits into one transaction."""
        if self._several_at_once:
            self._wait_for_more()
        self._begun_at = time.monotonic()
        batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
        self._several_at_once = len(batch) > 1
        values, error = self._alone(lambda sql: [one.function(sql) for one in batch])
        # Whether another process has had the file for as long as a transaction waits.
        busy = error is not None and getattr(error.__cause__, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
        self._expect_busy(busy)
        if error is None:
            outcomes: list[_Outcome] = [(value, None) for value in values]
        elif len(batch) == 1 or busy:
            if busy:  # what waits would wait as long again
                batch += [self._waiting.popleft() for _ in range(len(self._waiting))]
            outcomes = [(None, error)] * len(batch)
        else:  # nothing was written
            outcomes = [self._alone(one.function) for one in batch]
        loop.call_soon_threadsafe(_deliver, batch, outcomes)

    def _wait_for_more(self) -> None:
        """Wait a moment if there was a transaction just now: by then there is more to do, and commits are expensive."""
        wait = self._begun_at + _COMMIT_INTERVAL - time.monotonic()
        if wait > 0 and not self._closed:
            time.sleep(wait)

    def _expect_busy(self, busy: bool) -> None:
        """Wait for a file that was `busy` for long no longer than a moment, until a transaction gets it."""
        patience = _MOMENT if busy else BUSY_TIMEOUT
        if patience != self._patience:
            self._patience = patience
            if self._connection is not None:
                self._connection.execute(f"PRAGMA busy_timeout = {1000 * patience:.0f}")

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

    def _shrink(self) -> bool:
        try:
            connection = self._usable()
            surplus = _pages(connection).surplus
            if surplus <= 0:
                return False
            # `execute` would end after one page.
            connection.executescript(f"PRAGMA incremental_vacuum({min(_PAGES, surplus)})")
            return _pages(connection).surplus < surplus  # nothing happens in a file that another program made
        except sqlite3.Error as error:
            raise _unavailable(error) from error

    def _usable(self) -> sqlite3.Connection:
        """Return the connection; a new one if the file was deleted, or replaced by a backup."""
        if self._connection is None or (self.path is not None and _identity(self.path) != self._file):
            self._close()
            self._open()
        assert self._connection is not None
        return self._connection

    def _open(self) -> None:
        connection = None
        try:
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            connection = sqlite3.connect(self.path or ":memory:", timeout=self._patience, isolation_level=None)
            # Files may shrink. The first write of a new file fixes this.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            if self.path is not None:
                self.path.chmod(0o600)
                _switch_to_wal(connection)
                connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")
                connection.execute(f"PRAGMA journal_size_limit = {_LARGEST_LOG}")
            # With WAL, a crash of the process loses nothing; a power cut may lose the last transactions, but not consistency.
            connection.execute("PRAGMA synchronous = NORMAL")
            # Deleted content is overwritten.
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA cache_size = -{_CACHE}")
            connection.execute("BEGIN IMMEDIATE")
            create_tables(_Transaction(connection), SQLITE)
            connection.execute("COMMIT")
        except (sqlite3.Error, OSError, OtherSchema) as error:
            if connection is not None:
                connection.close()
            text = f"cannot open {self.path}: {error}"
            raise (OtherSchema(text) if isinstance(error, OtherSchema) else _unavailable(error, text)) from error
        self._connection = connection
        self._file = _identity(self.path) if self.path is not None else None

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


def _unavailable(error: Exception, text: str | None = None) -> StoreUnavailable:
    unavailable = StoreUnavailable(text or str(error))
    kind = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of the code says more of it
    unavailable.for_clients = _UNWRITABLE.get(kind, unavailable.for_clients)
    unavailable.__cause__ = error
    return unavailable


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL; wait, as SQLite does not do here, if another process switches the new file at the same moment."""
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY)


class _Pages(NamedTuple):
    """The pages of a file, how many of them are free, and their size in bytes."""

    all: int
    free: int
    size: int

    @property
    def used_bytes(self) -> int:
        return (self.all - self.free) * self.size

    @property
    def surplus(self) -> int:
        """How many free pages are not needed soon."""
        return self.free - max(_SPARE_PAGES, self.all // _SPARE_PART)


def _pages(sql: Sql | sqlite3.Connection) -> _Pages:
    statement = "SELECT page_count, freelist_count, page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    return _Pages(*sql.execute(statement).fetchone())


@lru_cache(maxsize=256)
def _insertion(table: str, columns: tuple[str, ...], rows: int, utf8: str) -> str:
    """Return the statement that writes so many rows. After a failure it leaves those that it has written to the transaction,
    which is rolled back: else SQLite would copy every page before a row changes it."""
    row = f"({', '.join('CAST(? AS TEXT)' if name == utf8 else '?' for name in columns)})"
    return f"INSERT OR FAIL INTO {table} ({', '.join(columns)}) VALUES {', '.join([row] * rows)}"


class _Transaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        try:
            return self._execute(statement, values)
        except UnicodeEncodeError:
            return self._execute(statement, storable(values))

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], /, *, utf8: str = "") -> None:
        rest = iter(rows)
        while some := list(islice(rest, _ROWS)):
            self.execute(_insertion(table, tuple(columns), len(some), utf8), list(chain.from_iterable(some)))

    def new_keys(self, table: str, count: int, /) -> Sequence[int]:
        row = self._execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        last = 0 if row is None else row[0]  # nobody else writes during this transaction
        return range(last + 1, last + 1 + count)
