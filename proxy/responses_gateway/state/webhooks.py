"""What is to be told to webhook endpoints about background responses, in a table.

A row is written before its response begins, and becomes due when the store has the end of the response, whichever process wrote
that: so no end is missed. Whoever takes a row is its only sender for a while; it is deleted once it was delivered."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from responses_gateway.state.interfaces import Database, Sql

# For how long a row is kept, in seconds: the longest response, and the attempts to deliver its end.
LIFETIME = 7 * 86_400.0

_ENDED = ("completed", "incomplete", "failed", "cancelled")
_DUE = (
    "SELECT webhooks.id, webhooks.response, responses.status, webhooks.attempts, webhooks.ended_at, webhooks.due "
    "FROM webhooks JOIN responses ON responses.id = webhooks.response "
    f"WHERE webhooks.endpoint = ? AND webhooks.due <= ? AND responses.status IN ({', '.join('?' * len(_ENDED))}) "
    "ORDER BY webhooks.due LIMIT ?"
)


class Notice(NamedTuple):
    """What to tell one endpoint: that a response has ended, with this status. `ended_at`: the Unix time, in seconds, at which
    that was first seen. `attempts`: how often it was tried before."""

    id: str
    response_id: str
    status: str
    attempts: int
    ended_at: int


class WebhookTable:
    """The table in a database. Every method is one transaction, and raises `StoreUnavailable`."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns the Unix time in seconds."""
        self._database = database
        self._clock = clock

    async def announce(self, response_id: str, endpoints: Sequence[str]) -> None:
        """Note that these endpoints are to be told of the end of a response, which is about to begin."""
        now = self._clock()

        def work(sql: Sql) -> None:
            sql.execute("DELETE FROM webhooks WHERE expires_at < ?", (now,))
            for endpoint in endpoints:
                sql.execute(
                    "INSERT INTO webhooks (id, response, endpoint, due, attempts, expires_at) VALUES (?, ?, ?, ?, 0, ?)",
                    (secrets.token_hex(16), response_id, endpoint, now, now + LIFETIME),
                )

        await self._database.run(work)

    async def take(self, endpoint: str, most: int, lease: float) -> list[Notice]:
        """Return what is due for an endpoint, at most so many. Nobody else gets it within `lease` seconds."""
        now = self._clock()

        def work(sql: Sql) -> list[Notice]:
            taken = []
            for row in sql.execute(_DUE, (endpoint, now, *_ENDED, most)).fetchall():
                notice_id, response_id, status, attempts, ended_at, due = row
                ended_at = int(now) if ended_at is None else int(ended_at)
                claimed = sql.execute(
                    "UPDATE webhooks SET due = ?, ended_at = ?, attempts = attempts + 1 WHERE id = ? AND due = ?",
                    (now + lease, ended_at, notice_id, due),
                )
                if claimed.rowcount == 1:
                    taken.append(Notice(notice_id, response_id, status, int(attempts), ended_at))
            return taken

        return await self._database.run(work)

    async def delivered(self, notice: Notice) -> None:
        """Forget what an endpoint has taken, or will never take."""
        await self._database.run(lambda sql: sql.execute("DELETE FROM webhooks WHERE id = ?", (notice.id,)))

    async def retry(self, notice: Notice, after: float) -> None:
        """Have a notice tried again, by anybody, in so many seconds."""
        due = self._clock() + after
        await self._database.run(lambda sql: sql.execute("UPDATE webhooks SET due = ? WHERE id = ?", (due, notice.id)))
