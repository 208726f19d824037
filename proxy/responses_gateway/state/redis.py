"""The log of running responses in Redis or Valkey: a stream for each response, and one for cancellations.

Needs the extra `redis`. An entry of a log is a piece of the response's stream; its id is the number of
the event after it. A writer names the entry that must be the last one: so it notices what a restart of the server has lost, and
writes the log again from memory. A process that adopts a log writes its name beside it, and all others write nothing more."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar, cast

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from responses_gateway.state.interfaces import EventsUnavailable, StoreUnavailable
from responses_gateway.state.records import EventRow

T = TypeVar("T")

_LOG = "responses-gateway:events:"
_OWNER = "responses-gateway:owner:"
_CANCELLATIONS = "responses-gateway:cancelled"

# Pieces of one log, and cancellations, that the server keeps; a reader that needs older ones waits for the database.
MAX_PIECES = 20_000
_MAX_CANCELLATIONS = 1000
_PIECES = 500  # pieces per read
# How long a log is kept after the last write, and after its end, in seconds.
_ABANDONED = 3600
_ENDED = 60
# Connections of a process for commands, and for readers that wait; further readers poll.
_CONNECTIONS = 16
_WAITING = 128
# How long connecting, and waiting for an answer, may take, in seconds.
_CONNECT_TIMEOUT = 2.0
_TIMEOUT = 5.0
# How long a read of cancellations waits, and how long until the next one after an error, in seconds.
_WATCH = 5.0
_WATCH_RETRY = 0.5


class RedisLog:
    """A `LiveLog` in Redis."""

    def __init__(self, url: str) -> None:
        """Connect to `url`: `redis://`, `rediss://` or `unix://` (or `valkey://`), with user, password and database."""
        self._commands = connect(url, _CONNECTIONS, _TIMEOUT)
        self._readers = connect(url, _WAITING + 1, _TIMEOUT + _WATCH)
        self._append = self._commands.register_script(script("append"))
        self._delete_own = self._commands.register_script(script("delete"))
        self._owner = secrets.token_hex(8)
        self._written: dict[str, list[EventRow]] = {}
        self._waiting = asyncio.Semaphore(_WAITING)

    async def open(self) -> None:
        await _send(self._commands, "PING")

    async def close(self) -> None:
        await self._commands.aclose()
        await self._readers.aclose()

    async def append(self, response_id: str, row: EventRow) -> bool:
        own = self._written.get(response_id, [])
        expected = f"{own[-1].next}-0" if own else "0-0"
        result = await self._write(response_id, expected, row, _ABANDONED)
        if result == 0:
            pieces = [*own, row]
            data = b"".join(piece.data for piece in pieces)
            whole = EventRow(pieces[0].first, row.next, data, b"".join(piece.journal for piece in pieces))
            result = await self._write(response_id, "", whole, _ABANDONED)
        self.keep(response_id, row)  # of what has never come here nothing is to stay
        return result > 0

    def keep(self, response_id: str, row: EventRow) -> None:
        self._written.setdefault(response_id, []).append(row)

    async def adopt(self, response_id: str) -> Sequence[EventRow]:
        await _send(self._commands, "SET", _OWNER + response_id, self._owner, "EX", _ABANDONED)
        rows: list[EventRow] = []
        while more := await self.read(response_id, rows[-1].next - 1 if rows else -1, 0):
            rows += more
        self._written[response_id] = list(rows)
        return rows

    def written(self, response_id: str) -> Sequence[EventRow]:
        return self._written.get(response_id, ())

    def forget(self, response_id: str) -> None:
        self._written.pop(response_id, None)

    async def end(self, response_id: str, last: EventRow | None) -> None:
        own = self._written.pop(response_id, [])
        if last is None:
            await _translating_errors(self._delete_own(keys=_keys(response_id), args=[self._owner]))
        elif await self._write(response_id, f"{own[-1].next if own else last.first}-0", last, _ENDED, last=True) == 0:
            # Readers find everything in the database: only the mark of the end is needed here.
            await self._write(response_id, "", last, _ENDED, last=True)

    async def read(self, response_id: str, after: int, within: float) -> list[EventRow]:
        query = ("STREAMS", _LOG + response_id, f"{after + 1}-0")
        waits = within > 0 and not self._waiting.locked()
        if waits:
            async with self._waiting:
                rows = _rows(await _send(self._readers, "XREAD", "COUNT", _PIECES, "BLOCK", max(1, int(within * 1000)), *query))
        else:
            rows = _rows(await _send(self._commands, "XREAD", "COUNT", _PIECES, *query))
        if rows and rows[0].first <= after + 1:
            return rows
        if within > 0 and (rows or not waits):
            await asyncio.sleep(within)
        return []

    async def delete(self, response_id: str) -> None:
        await _send(self._commands, "DEL", *_keys(response_id))

    async def cancel(self, response_id: str) -> None:
        await _send(self._commands, "XADD", _CANCELLATIONS, "MAXLEN", "~", _MAX_CANCELLATIONS, "*", "id", response_id)

    async def watch(self, cancelled: Callable[[str], None]) -> None:
        seen: Any = "$"
        while True:
            try:
                command = ("XREAD", "BLOCK", int(_WATCH * 1000), "STREAMS", _CANCELLATIONS, seen)
                for entry_id, fields in _entries(await _send(self._readers, *command)):
                    seen = entry_id
                    cancelled(fields.get(b"id", b"").decode("utf-8", "replace"))
            except EventsUnavailable:
                seen = "$"  # what was missed is found in the database
                await asyncio.sleep(_WATCH_RETRY)

    async def _write(self, response_id: str, expected: str, row: EventRow, kept: int, *, last: bool = False) -> int:
        values: list[str | int | bytes] = [expected, f"{row.next}-0", row.first, row.data, kept, MAX_PIECES, int(last)]
        values += [self._owner, row.journal]
        return cast("int", await _translating_errors(self._append(keys=_keys(response_id), args=values)))


def connect(url: str, connections: int, timeout: float) -> Redis:
    """Return a client that waits `timeout` seconds for an answer. Raise `StoreUnavailable` for a malformed URL."""
    url = url.replace("valkey", "redis", 1) if url.startswith("valkey") else url
    try:
        # A command on a connection that the server has closed is sent once more: nearly all of them are idempotent.
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=connections,
            timeout=_TIMEOUT,
            socket_timeout=timeout,
            socket_connect_timeout=_CONNECT_TIMEOUT,
            retry=Retry(NoBackoff(), 1),
            retry_on_error=[exceptions.ConnectionError],
            protocol=2,
        )
    except ValueError:  # its message may repeat a password
        raise StoreUnavailable("events: the URL of the Redis or Valkey server is not valid") from None
    return Redis.from_pool(pool)


@cache
def script(name: str) -> str:
    """Return a script in Lua that the server runs."""
    return (files("responses_gateway.state") / "redis_scripts" / f"{name}.lua").read_text(encoding="utf-8")


async def within(seconds: float, command: Awaitable[T], unavailable: type[Exception]) -> T:
    """Return the answer to a command for which a request waits. Raise `unavailable` if there is none in so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            return await _uncancelled(command)
    except TimeoutError:
        raise unavailable(f"no answer within {seconds:g} seconds") from None
    except (exceptions.RedisError, OSError) as error:
        raise unavailable(type(error).__name__) from error


def _send(client: Any, *words: str | int) -> Awaitable[Any]:
    return _translating_errors(client.execute_command(*words))


async def _translating_errors(command: Awaitable[T]) -> T:
    try:
        return await _uncancelled(command)
    except (exceptions.RedisError, OSError) as error:
        raise EventsUnavailable(f"the log of running responses cannot be reached: {error}") from error


async def _uncancelled(command: Awaitable[T]) -> T:
    """Return the answer to a command, unless its task was cancelled meanwhile. Before Python 3.12 the driver drops a wish
    to cancel that comes while data are sent (`asyncio.wait_for`): a loop of commands would go on, and a stop wait forever."""
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    cancelled = task.cancelling()
    try:
        return await command
    except RuntimeError as error:  # of uvloop, for a connection that the server has closed before anything was sent
        raise exceptions.ConnectionError(str(error)) from error
    finally:
        if task.cancelling() > cancelled:
            raise asyncio.CancelledError


def _keys(response_id: str) -> list[str]:
    return [_LOG + response_id, _OWNER + response_id]


def _rows(answer: Any) -> list[EventRow]:
    return [
        EventRow(int(fields[b"first"]), int(entry_id.partition(b"-")[0]), fields[b"data"], fields.get(b"journal", b""))
        for entry_id, fields in _entries(answer)
    ]


def _entries(answer: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Return the entries of an answer to XREAD about one stream."""
    return [entry for _, entries in answer or () for entry in entries]
