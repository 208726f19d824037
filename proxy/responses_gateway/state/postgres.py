"""PostgreSQL, for replicas on several machines. Needs the extra `postgres`.

Transactions are serializable, as SQLite's always are; after a conflict they are repeated, one at a time."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar, cast

import psycopg
from psycopg import IsolationLevel, errors
from psycopg.conninfo import conninfo_to_dict

from responses_gateway.state.interfaces import NO_ROOM, Rows, Sql, StoreUnavailable, storable
from responses_gateway.state.schema import POSTGRES, create_tables

T = TypeVar("T")

_CONNECTIONS = 8  # connections of a process
# When a silent server is given up (libpq's parameters, in seconds and milliseconds), unless the URL says otherwise.
_TIMEOUTS = {
    "connect_timeout": 10,
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}
# Raised when a connection is lost.
_LOST = (psycopg.OperationalError, errors.IdleInTransactionSessionTimeout)
# How long a transaction may do nothing, in seconds: others wait for the rows that a process has written which was halted.
IDLE_TIMEOUT = 10.0
# The clock of the server, and seconds between two looks at it.
_TIME = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS float8)"
_TIME_INTERVAL = 1.0
_ATTEMPTS = 20  # how often a transaction is attempted
# The advisory lock for creating the tables: any number that nobody else uses.
_SCHEMA_LOCK = 7_265_737_031
_AS_BLOB = re.compile(r"CAST\((.+) AS BLOB\)")
# Pages of each table that are read to estimate its size. The same ones each time: so the estimate does not jump.
_SAMPLE = 1000
_PAGE = 8192
_ROW_BYTES = 130  # what a row takes beside its long columns, in bytes, with its part of the indexes
# The long columns of each table.
_LONG_COLUMNS = {
    "items": ("body", "digest", "digest", "result"),
    "nodes": ("item_id", "item_id", "tenant", "tenant", "digest", "digest", "body"),
    "responses": ("head", "tail", "id", "id", "tenant"),
    "conversations": ("metadata", "id", "id"),
    "events": ("data", "response", "response"),
    "journals": ("data", "response", "response"),
}


class Postgres:
    """A database on a server, with a few connections and a thread for each."""

    def __init__(self, url: str) -> None:
        """Read `url` as libpq does (`postgresql://user@host/name`); `PGPASSWORD` and the like supply what it leaves out. Raises
        `StoreUnavailable` for an invalid URL."""
        self._target: dict[str, Any] = {**_TIMEOUTS, **_parsed(url)}
        self._threads = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="store")
        self._connections: dict[int, psycopg.Connection[Any]] = {}  # by the threads
        self._ahead = 0.0  # the clock of the server, compared with the monotonic one here
        self._compare_at = 0.0  # when to look at it next, on the monotonic clock

    async def open(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, self._open)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        for connection in self._connections.values():
            connection.close()

    def now(self) -> float:
        """Return the Unix time of the server: on it all replicas agree, whose clocks may differ."""
        return time.monotonic() + self._ahead

    async def run(self, work: Callable[[Sql], T]) -> T:
        # Who no longer waits for the result does not stop it.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._threads, self._run, work))

    async def size(self) -> int:
        # Serializable transactions would conflict with what is written meanwhile.
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, _size, IsolationLevel.READ_COMMITTED)

    async def shrink(self) -> bool:
        return False  # autovacuum makes room for new rows

    def _open(self) -> None:
        def locked(sql: Sql) -> None:
            sql.execute("SELECT pg_advisory_xact_lock(?)", (_SCHEMA_LOCK,))
            create_tables(sql, POSTGRES)

        try:
            self._once(locked, IsolationLevel.READ_COMMITTED)
        except psycopg.Error as error:
            raise StoreUnavailable(f"cannot use the PostgreSQL store: {error}") from error

    def _run(self, work: Callable[[Sql], T], isolation: IsolationLevel = IsolationLevel.SERIALIZABLE) -> T:
        for attempt in range(_ATTEMPTS):
            try:
                return self._once(work, isolation, again=attempt > 0)
            except (errors.SerializationFailure, errors.DeadlockDetected, errors.UniqueViolation) as error:
                last: psycopg.Error = error
            except psycopg.Error as error:  # try once more with a new connection: this one may lead to a standby by now
                last = error
                if connection := self._connections.pop(threading.get_ident(), None):
                    connection.close()
                if attempt:
                    break
        unavailable = StoreUnavailable(str(last))
        if isinstance(last, errors.DiskFull):
            unavailable.for_clients = NO_ROOM
        raise unavailable from last

    def _once(self, work: Callable[[Sql], T], isolation: IsolationLevel, *, again: bool = False) -> T:
        connection = self._connection()
        connection.isolation_level = isolation
        sql = _Transaction(connection)
        number: int | None = None
        try:
            with connection.transaction():
                if connection.prepare_threshold is None:
                    _limit_idleness(connection, "LOCAL")
                if again:  # of a table that nobody else writes; this is before the transaction has seen anything
                    connection.execute("LOCK TABLE version IN EXCLUSIVE MODE")
                result = work(sql)
                if sql.writes:
                    number = sql.execute("SELECT txid_current_if_assigned()").fetchone()[0]
        except _LOST:
            if number is None or not self._is_committed(number):
                raise
        return result

    def _is_committed(self, number: int) -> bool:
        """Tell whether a transaction was committed though the answer to that was lost: to repeat it would write twice. Raise
        `StoreUnavailable` if the server does not know yet."""
        try:
            status = _Transaction(self._connection()).execute("SELECT txid_status(?)", (number,)).fetchone()[0]
        except psycopg.Error as error:
            raise StoreUnavailable(str(error)) from error
        if status not in ("committed", "aborted"):
            raise StoreUnavailable("the connection was lost while a transaction was committed")
        return bool(status == "committed")

    def _connection(self) -> psycopg.Connection[Any]:
        thread = threading.get_ident()
        connection = self._connections.get(thread)
        if connection is None or connection.closed:
            connection = self._connect()
            self._connections[thread] = connection
        if time.monotonic() >= self._compare_at:
            self._ahead = _Transaction(connection).execute(_TIME).fetchone()[0] - time.monotonic()
            self._compare_at = time.monotonic() + _TIME_INTERVAL
        return connection

    def _connect(self) -> psycopg.Connection[Any]:
        """Connect. Behind a pooler each transaction may be one of another session, which knows neither the settings nor the
        prepared statements of the last one: so nothing is prepared there."""
        connection = psycopg.connect(autocommit=True, **self._target)
        if connection.execute("SELECT pg_backend_pid()").fetchone() == (connection.info.backend_pid,):
            _limit_idleness(connection, "SESSION")
        else:
            connection.prepare_threshold = None
        return connection


def _limit_idleness(connection: psycopg.Connection[Any], scope: str) -> None:
    connection.execute(f"SET {scope} idle_in_transaction_session_timeout = {IDLE_TIMEOUT * 1000:.0f}")


def _parsed(url: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # its message repeats the URL, perhaps with a password
        raise StoreUnavailable("the URL of the PostgreSQL store is not valid") from None


def _size(sql: Sql) -> int:
    """Estimate the size of the stored data: that of the files includes what was deleted."""
    total = 0
    for table, columns in _LONG_COLUMNS.items():
        pages = sql.execute("SELECT pg_relation_size(CAST(? AS regclass)) / ?", (table, _PAGE)).fetchone()[0]
        percent = min(100.0, 100.0 * _SAMPLE / max(1, pages))
        long = " + ".join(f"coalesce(pg_column_size({column}), 0)" for column in columns)
        statement = f"SELECT coalesce(sum({long} + {_ROW_BYTES}), 0) FROM {table} TABLESAMPLE SYSTEM (?) REPEATABLE (0)"
        total += int(float(sql.execute(statement, (percent,)).fetchone()[0]) * 100 / percent)
    return total


@lru_cache(maxsize=256)
def _translated(statement: str) -> str:
    # No statement of the store has another question mark, or a per cent sign. Texts come as texts.
    return _AS_BLOB.sub(r"\1", statement).replace("?", "%s")


class _Transaction:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.writes = False

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        self.writes = self.writes or not statement.startswith("SELECT")
        return self._connection.execute(cast("Any", _translated(statement)), storable(values))

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], /, *, utf8: str = "") -> None:
        self.writes = True
        statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
        with self._connection.cursor() as cursor, cursor.copy(cast("Any", statement)) as copy:
            for row in rows:
                values = (value.decode() if value and name == utf8 else value for name, value in zip(columns, row, strict=True))
                copy.write_row(storable(values))

    def new_keys(self, table: str, count: int, /) -> Sequence[int]:
        statement = "SELECT nextval(pg_get_serial_sequence(?, 'key')) FROM generate_series(1, CAST(? AS integer))"
        return [row[0] for row in self.execute(statement, (table, count)).fetchall()]
