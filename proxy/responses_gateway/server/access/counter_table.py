"""Counters that the workers of one gateway share: a table in a file that all of them map into memory.

A row is a client. It has the levels of the client's token buckets, which all workers share, and a column for each worker with
the number of requests that run there, which is cleared when that worker dies. An update takes microseconds, under a lock of the
file, which the kernel releases when its holder dies. A hung lock holder is ignored after 5 ms: a count that is off by one does
less harm than a gateway that does not answer."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
import time
from hashlib import blake2b
from pathlib import Path

FILE = "limits"
# A client is in any row of its set, and a new one replaces the least recently used one.
_SETS = 1024
_WAYS = 16
_ROWS = _SETS * _WAYS
# A row: the client, and (level, time) for each of two buckets. With a time of 0 nothing was counted yet.
_ROW = struct.Struct("=16s4d")
_LEVELS = struct.Struct("=4d")
_DIGEST_SIZE = 16
_LOCK_TIMEOUT = 0.005  # seconds to wait for the lock before an update is made without it

# (level, time) of the bucket of requests, and of that of tokens.
Levels = tuple[float, float, float, float]
NEW: Levels = (0.0, 0.0, 0.0, 0.0)


def create(folder: Path, columns: int) -> None:
    """Create an empty table with a column for each worker. Unused rows take no memory. Raise `OSError`."""
    with open(folder / FILE, "wb") as file:
        file.truncate(_ROWS * (_ROW.size + 4 * columns))


class Table:
    """The table as mapped by one process, which has a column of its own."""

    def __init__(self, folder: Path, column: int = -1) -> None:
        """Map the table; `column` is that of this process. Raise `OSError` if there is none."""
        self._column = column
        self._file = os.open(folder / FILE, os.O_RDWR | os.O_CLOEXEC)
        self._map = mmap.mmap(self._file, 0)
        # The same in all processes that map this table, and in no others: the folder's name is random.
        self.identity = digest(f"{socket.gethostname()} {folder} {os.fstat(self._file).st_ino}").hex()
        self._running = memoryview(self._map)[_ROWS * _ROW.size :].cast("i")
        self._columns = len(self._running) // _ROWS

    def clear(self, column: int) -> None:
        """Set the running requests of a worker to 0: it has ended, or it is new."""
        if column < self._columns:
            self._running[column * _ROWS : (column + 1) * _ROWS] = memoryview(bytes(4 * _ROWS)).cast("i")

    def close(self) -> None:
        """Unmap it."""
        self._running.release()
        self._map.close()
        os.close(self._file)

    def lock(self) -> bool:
        """Take the lock; return False if its holder did not release it in time."""
        until = 0.0
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                now = time.monotonic()
                until = until or now + _LOCK_TIMEOUT
                if now > until:
                    return False

    def unlock(self) -> None:
        """Release the lock."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def find(self, client: bytes, row: int) -> int:
        """Return the row of a client, usually the one that it had before (`row`). Assign one if there is none."""
        if row >= 0 and self.is_at(client, row):
            return row
        first = int.from_bytes(client[:4], "little") % _SETS * _WAYS
        oldest = first
        since = float("inf")
        for candidate in range(first, first + _WAYS):
            owner, _, requests_at, _, tokens_at = _ROW.unpack_from(self._map, candidate * _ROW.size)
            if owner == client:
                return candidate
            last = max(requests_at, tokens_at)
            if last < since and not self.running(candidate):
                oldest = candidate
                since = last
        self._running[oldest::_ROWS] = memoryview(bytes(4 * self._columns)).cast("i")
        _ROW.pack_into(self._map, oldest * _ROW.size, client, *NEW)
        return oldest

    def is_at(self, client: bytes, row: int) -> bool:
        """Tell whether a client still has this row."""
        start = row * _ROW.size
        return self._map[start : start + _DIGEST_SIZE] == client

    def levels(self, row: int) -> Levels:
        """Return the levels of the buckets of a row."""
        return _LEVELS.unpack_from(self._map, row * _ROW.size + _DIGEST_SIZE)

    def keep(self, row: int, levels: Levels) -> None:
        """Write the levels of the buckets of a row."""
        _LEVELS.pack_into(self._map, row * _ROW.size + _DIGEST_SIZE, *levels)

    def running(self, row: int) -> int:
        """Return the number of running requests of a row, in all workers."""
        return sum(self._running[row::_ROWS])

    def add(self, row: int, change: int) -> None:
        """Change the number of requests in this process; never below 0, since the row may have been given to another client."""
        if self._column < self._columns:  # else there are more workers at a time than columns
            place = self._column * _ROWS + row
            self._running[place] = max(0, self._running[place] + change)


def digest(name: str) -> bytes:
    """Return a client's name as the table has it."""
    return blake2b(name.encode(), digest_size=_DIGEST_SIZE).digest()


class SharedRow:
    """One client's row. All reads and writes within a `with` block are one atomic step for all workers."""

    def __init__(self, table: Table, name: str) -> None:
        self._table = table
        self._client = digest(name)
        self._row = -1
        self._locked = False

    def __enter__(self) -> SharedRow:
        self._locked = self._table.lock()
        self._row = self._table.find(self._client, self._row)
        return self

    def __exit__(self, *error: object) -> None:
        if self._locked:
            self._table.unlock()

    @property
    def levels(self) -> Levels:
        """The levels of its buckets."""
        return self._table.levels(self._row)

    @levels.setter
    def levels(self, levels: Levels) -> None:
        self._table.keep(self._row, levels)

    @property
    def running(self) -> int:
        """Its requests, in all workers."""
        return self._table.running(self._row)

    def add(self, change: int) -> None:
        """Count one more request that runs here, or one less."""
        self._table.add(self._row, change)
