"""Notifications of webhook endpoints about background responses that are due, in a table.

A row is written before its response begins, and becomes due when the store has the end of the response, whichever process wrote
that: so no end is missed. Whoever takes a row is its only sender for a while; it is deleted once it was delivered. A row
that was given up stays until it expires: operators can have it sent again."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from responses_gateway.state.interfaces import Database, Sql, transaction

# For how long a row is kept, in seconds: the longest response, and the attempts to deliver its end.
LIFETIME = 7 * 86_400.0

_ENDED = ("completed", "incomplete", "failed", "cancelled")
# Rows of responses that have ended: the others are no deliveries yet.
_OF_THE_ENDED = (
    "FROM webhooks JOIN responses ON responses.id = webhooks.response "
    f"WHERE responses.status IN ({', '.join('?' * len(_ENDED))}) "
)
_DUE = (
    "SELECT webhooks.id, webhooks.response, responses.status, webhooks.attempts, webhooks.ended_at, webhooks.due "
    f"{_OF_THE_ENDED}AND webhooks.endpoint = ? AND webhooks.given_up = 0 AND webhooks.due <= ? "
    "ORDER BY webhooks.due LIMIT ?"
)
_LEFT = (
    "SELECT webhooks.id, webhooks.endpoint, webhooks.response, responses.status, webhooks.attempts, webhooks.due, "
    "webhooks.sending_until, webhooks.given_up, webhooks.last_failure "
    f"{_OF_THE_ENDED}ORDER BY webhooks.due, webhooks.id LIMIT ?"
)
_COUNTS = f"SELECT webhooks.endpoint, webhooks.given_up, COUNT(*) {_OF_THE_ENDED}GROUP BY webhooks.endpoint, webhooks.given_up"


class Notice(NamedTuple):
    """What to tell one endpoint: that a response has ended, with this status. `ended_at`: the Unix time, in seconds, at which
    that was first seen. `attempts`: how often it was tried before."""

    id: str
    response_id: str
    status: str
    attempts: int
    ended_at: int


class Left(NamedTuple):
    """An event that an endpoint has not taken. `next_attempt_at`: Unix time in seconds, None unless it waits. `last_failure`:
    why the last attempt failed that came to an end, such as `status 503`."""

    id: str
    endpoint: str
    response_id: str
    status: str
    state: Literal["waiting", "sending", "failed"]
    attempts: int
    next_attempt_at: float | None
    last_failure: str | None


class Amounts(NamedTuple):
    """How many events of an endpoint wait, being sent included, and how many were given up."""

    waiting: int = 0
    failed: int = 0


@dataclass(eq=False)
class WebhookTable:
    """The table in a database. Every method raises `StoreUnavailable`."""

    database: Database
    clock: Callable[[], float] = time.time

    @transaction
    def announce(self, sql: Sql, response_id: str, endpoints: Sequence[str]) -> None:
        """Note that these endpoints are to be notified of the end of a response, which is about to begin."""
        now = self.clock()
        sql.execute("DELETE FROM webhooks WHERE expires_at < ?", (now,))
        for endpoint in endpoints:
            sql.execute(
                "INSERT INTO webhooks (id, response, endpoint, due, attempts, expires_at) VALUES (?, ?, ?, 0, 0, ?)",
                (secrets.token_hex(16), response_id, endpoint, now + LIFETIME),
            )

    @transaction
    def take(self, sql: Sql, endpoint: str, most: int, lease: float) -> list[Notice]:
        """Return what is due for an endpoint, at most so many. Nobody else gets it within `lease` seconds."""
        now = self.clock()
        taken = []
        for row in sql.execute(_DUE, (*_ENDED, endpoint, now, most)).fetchall():
            notice_id, response_id, status, attempts, ended_at, due = row
            ended_at = int(now) if ended_at is None else int(ended_at)
            claimed = sql.execute(
                "UPDATE webhooks SET due = ?, sending_until = ?, ended_at = ?, attempts = attempts + 1 "
                "WHERE id = ? AND due = ?",
                (now + lease, now + lease, ended_at, notice_id, due),
            )
            if claimed.rowcount == 1:
                taken.append(Notice(notice_id, response_id, status, int(attempts), ended_at))
        return taken

    @transaction
    def delivered(self, sql: Sql, notice: Notice) -> None:
        """Forget what an endpoint has taken."""
        sql.execute("DELETE FROM webhooks WHERE id = ?", (notice.id,))

    @transaction
    def retry(self, sql: Sql, notice: Notice, after: float, failure: str) -> None:
        """Have a notice tried again, by anybody, in so many seconds; note why it was not taken."""
        statement = "UPDATE webhooks SET due = ?, sending_until = 0, last_failure = ? WHERE id = ?"
        sql.execute(statement, (self.clock() + after, failure, notice.id))

    @transaction
    def give_up(self, sql: Sql, notice: Notice, failure: str) -> None:
        """Have a notice tried no more, unless an operator asks for it; note why it was not taken."""
        statement = "UPDATE webhooks SET given_up = 1, sending_until = 0, last_failure = ? WHERE id = ?"
        sql.execute(statement, (failure, notice.id))

    @transaction
    def left(self, sql: Sql, most: int) -> list[Left]:
        """Return what was not delivered yet, of all endpoints, the next one first."""
        now = self.clock()
        return [_left(row, now) for row in sql.execute(_LEFT, (*_ENDED, most)).fetchall()]

    @transaction
    def amounts(self, sql: Sql) -> dict[str, Amounts]:
        """Return how much was not delivered yet, by endpoint, of those that have any."""
        left: dict[str, Amounts] = {}
        for endpoint, given_up, count in sql.execute(_COUNTS, _ENDED).fetchall():
            amounts = left.get(endpoint, Amounts())
            left[endpoint] = amounts._replace(failed=int(count)) if given_up else amounts._replace(waiting=int(count))
        return left

    @transaction
    def send_again(self, sql: Sql, notice_id: str) -> Literal["due", "sending", "unknown"]:
        """Make a notice due now, unless somebody is sending it. Return what it is."""
        now = self.clock()
        row = sql.execute("SELECT sending_until FROM webhooks WHERE id = ?", (notice_id,)).fetchone()
        if row is None:
            return "unknown"
        if row[0] > now:
            return "sending"
        sql.execute("UPDATE webhooks SET due = ?, given_up = 0 WHERE id = ?", (now, notice_id))
        return "due"


def _left(row: Sequence[Any], now: float) -> Left:
    notice_id, endpoint, response_id, status, attempts, due, sending_until, given_up, last_failure = row
    state: Literal["waiting", "sending", "failed"] = "waiting"
    if given_up:
        state = "failed"
    elif sending_until > now:
        state = "sending"
    next_attempt_at = max(float(due), now) if state == "waiting" else None
    return Left(notice_id, endpoint, response_id, status, state, int(attempts), next_attempt_at, last_failure)
