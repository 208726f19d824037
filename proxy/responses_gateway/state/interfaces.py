"""What the store is built on: a database, and optionally a log of running responses beside it.

A transaction is an ordinary function that runs in a thread. So the event loop never waits for a disk, and a request that is
cancelled never leaves a transaction half done: the function runs to its end even if nobody waits for the result any more."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from responses_gateway.state.records import EventRow

T = TypeVar("T")
P = ParamSpec("P")


class StoreUnavailable(Exception):
    """The store cannot be opened, read or written. The message is for operators, `for_clients` is the message for clients."""

    for_clients = "The store of this gateway cannot be reached. Please try again."


# The message for clients of a store whose disk is full: it does not help to try again.
NO_ROOM = "The store of this gateway has no room: its operator has to make some on its disk."


class EventsUnavailable(StoreUnavailable):
    """The log of running responses cannot be reached. The message is for operators."""


class Rows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Sql(Protocol):
    """An open transaction. The values replace the `?` in a statement, in order."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows: ...

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], /, *, utf8: str = "") -> None:
        """Write new rows, which is faster than statements; the texts of the column `utf8` are given as bytes. If one cannot be
        written, the transaction cannot go on."""

    def new_keys(self, table: str, count: int, /) -> Sequence[int]:
        """Return so many keys that no row of a table has, or will have, for rows that are written in this transaction."""


class Database(Protocol):
    """A database with serializable transactions."""

    async def open(self) -> None:
        """Connect, and create the tables where there are none. Raises `StoreUnavailable`."""

    async def close(self) -> None:
        """Finish what was started, and disconnect."""

    async def run(self, work: Callable[[Sql], T]) -> T:
        """Run `work` as one transaction; repeat it after a conflict with another one. Raises `StoreUnavailable`, and whatever
        `work` raises; then nothing was written."""

    async def size(self) -> int:
        """Return about how many bytes the stored data take, without free space. Raises `StoreUnavailable`."""

    async def shrink(self) -> bool:
        """Give back some space that is no longer needed. Return False if there is no more of it. Raises `StoreUnavailable`."""


class LiveLog(Protocol):
    """A log of the events of running responses, faster to write and to follow than the database. When a response ends, the
    database gets its whole log together with the response. So this log may lose everything at any moment: the process that runs
    the response writes it again. Every method but `close`, `keep`, `written` and `forget` raises `EventsUnavailable`."""

    async def open(self) -> None:
        """Connect."""

    async def close(self) -> None:
        """Disconnect."""

    async def append(self, response_id: str, row: EventRow) -> bool:
        """Append a piece to a stream that this process runs. Return False if it has ended, or another process has adopted it.
        If it raises, the piece is not part of the log."""

    def keep(self, response_id: str, row: EventRow) -> None:
        """Have a piece that could not be appended be a part all the same: it is written with the next one."""

    async def adopt(self, response_id: str) -> Sequence[EventRow]:
        """Take over a stream of another process, which can append nothing to it any more. Return all pieces, with their
        journals: from now on they count as written by this process."""

    def written(self, response_id: str) -> Sequence[EventRow]:
        """Return from memory all pieces that this process has appended to a stream."""

    def forget(self, response_id: str) -> None:
        """Forget what this process has appended to a stream that is another one's by now."""

    async def end(self, response_id: str, last: EventRow | None) -> None:
        """End a stream with `last`, after all of it was written to the database; with None delete it at once. Nothing can be
        appended after that."""

    async def read(self, response_id: str, after: int, within: float) -> list[EventRow]:
        """Return the next pieces that have events with numbers above `after`, without a gap. If there are none, wait up to
        `within` seconds for some."""

    async def delete(self, response_id: str) -> None:
        """Delete a stream, whichever process runs it, if any does."""

    async def cancel(self, response_id: str) -> None:
        """Tell the process that runs the response to end it."""

    async def watch(self, cancelled: Callable[[str], None]) -> None:
        """Call `cancelled` with the id of each response that should end, until the task is cancelled."""


class Transactions(Protocol):
    """What runs transactions: a database, or something before one."""

    async def run(self, work: Callable[[Sql], T]) -> T:
        """Run `work` as one transaction. See `Database.run`."""


class DatabaseTable(Protocol):
    """What has methods that are transactions."""

    @property
    def database(self) -> Transactions: ...


TableT = TypeVar("TableT", bound=DatabaseTable)


def transaction(work: Callable[Concatenate[TableT, Sql, P], T]) -> Callable[Concatenate[TableT, P], Coroutine[Any, Any, T]]:
    """Make a method that gets an open transaction one that is to be awaited: each call is one transaction."""

    @wraps(work)
    def run(table: TableT, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return table.database.run(lambda sql: work(table, sql, *args, **kwargs))

    return run


def add_row(sql: Sql, table: str, row: Mapping[str, Any]) -> None:
    """Write a new row, given by the names of its columns."""
    sql.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))


def storable(values: Iterable[Any]) -> list[Any]:
    """Replace what databases do not accept in texts: lone surrogates and null characters."""
    return [
        value.encode("utf-8", "replace").decode().replace("\0", "\ufffd") if isinstance(value, str) else value
        for value in values
    ]
