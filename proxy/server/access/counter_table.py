"""What the workers of one gateway count together: a table in a file that all of them map into memory.

A row is a client. It has the levels of the client's buckets, which all workers share, and for each worker the requests that run
there: they are forgotten with its column when it dies. An update takes microseconds, under a lock of the file, which the kernel
releases when its holder dies. A hung lock holder is ignored after 5 ms: a count that is off by one is better than a gateway
that answers no request."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
import time
from hashlib import blake2b
from pathlib import Path

# Another layout has another name, since a rolling restart may bring another version.
FILE = "limits-1"
# A client is in any row of its set: the one that was not seen for longest makes room for another one.
_SETS = 1024
_WAYS = 16
_ROWS = _SETS * _WAYS
# A row: the client, and (level, time) for each of two buckets. With a time of 0 nothing was counted yet.
_ROW = struct.Struct("=16s4d")
_LEVELS = struct.Struct("=4d")
_WHO = 16
# Seconds after which an update proceeds without the lock.
_LOCK_TIMEOUT = 0.005

# (level, time) of the bucket of requests, and of that of tokens.
Levels = tuple[float, float, float, float]
NEW: Levels = (0.0, 0.0, 0.0, 0.0)


def create(folder: Path, columns: int) -> None:
    """Create an empty table for so many workers. It takes no memory before it is used. Raise `OSError`."""
    with open(folder / FILE, "wb") as file:
        file.truncate(_ROWS * (_ROW.size + 4 * columns))


class Table:
    """The table, mapped by one process, which has a column there."""

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
        """Forget the running requests of a worker that has ended, or is new."""
        if column < self._columns:
            self._running[column * _ROWS : (column + 1) * _ROWS] = memoryview(bytes(4 * _ROWS)).cast("i")

    def close(self) -> None:
        """Unmap it."""
        self._running.release()
        self._map.close()
        os.close(self._file)

    def lock(self) -> bool:
        """Lock the table; return False if the holder of the lock hangs."""
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

    def find(self, who: bytes, row: int) -> int:
        """Return the row of a client, most often the one that it had before (`row`). Make one where there is none."""
        if row >= 0 and self.is_at(who, row):
            return row
        first = int.from_bytes(who[:4], "little") % _SETS * _WAYS
        oldest = first
        since = float("inf")
        for candidate in range(first, first + _WAYS):
            found, _, requests_at, _, tokens_at = _ROW.unpack_from(self._map, candidate * _ROW.size)
            if found == who:
                return candidate
            last = max(requests_at, tokens_at)
            if last < since and not self.running(candidate):
                oldest = candidate
                since = last
        self._running[oldest::_ROWS] = memoryview(bytes(4 * self._columns)).cast("i")
        _ROW.pack_into(self._map, oldest * _ROW.size, who, *NEW)
        return oldest

    def is_at(self, who: bytes, row: int) -> bool:
        """Tell whether a client still has this row."""
        start = row * _ROW.size
        return self._map[start : start + _WHO] == who

    def levels(self, row: int) -> Levels:
        """Return the levels of the buckets of a row."""
        return _LEVELS.unpack_from(self._map, row * _ROW.size + _WHO)

    def keep(self, row: int, levels: Levels) -> None:
        """Write the levels of a row."""
        _LEVELS.pack_into(self._map, row * _ROW.size + _WHO, *levels)

    def running(self, row: int) -> int:
        """Return the requests of a row that run in any worker."""
        return sum(self._running[row::_ROWS])

    def add(self, row: int, change: int) -> None:
        """Change the number of requests in this process; never below 0, since the row may have been given to another client."""
        if self._column < self._columns:  # else there are more workers at a time than columns
            place = self._column * _ROWS + row
            self._running[place] = max(0, self._running[place] + change)


def digest(name: str) -> bytes:
    """Return a client's name as the table has it."""
    return blake2b(name.encode(), digest_size=_WHO).digest()


class SharedRow:
    """One client's row. With `with`, what is read and written inside is one step for all workers."""

    def __init__(self, table: Table, name: str) -> None:
        self._table = table
        self._who = digest(name)
        self._row = -1
        self._locked = False

    def __enter__(self) -> SharedRow:
        self._locked = self._table.lock()
        self._row = self._table.find(self._who, self._row)
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
