"""Requests and tokens by day, key, team and model, in a table. Days are numbers since 1970-01-01, in UTC."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from responses_gateway.state.interfaces import Database, Sql, transaction

L = TypeVar("L")
# Seconds of a day.
DAY = 86_400
# What a sum may be divided by.
LABELS = ("day", "key", "team", "model")
# The session of an agent, by which it may be divided, too, for some days.
SESSION = "session"
SESSION_DAYS = 30
# Sessions of a key and a day that are told apart.
_MOST_SESSIONS = 10_000
_NO_SESSIONS: Mapping[tuple[int, str, str, str, str], Sequence[int]] = MappingProxyType({})
# What is summed.
AMOUNTS = ("requests", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
_ADD = (
    f"INSERT INTO token_usage ({', '.join((*LABELS, *AMOUNTS))}) VALUES ({', '.join('?' * len((*LABELS, *AMOUNTS)))}) "
    f"ON CONFLICT (day, key, model) DO UPDATE SET team = excluded.team, "  # a key belongs to one team
    + ", ".join(f"{name} = token_usage.{name} + excluded.{name}" for name in AMOUNTS)
)

_ADD_SESSION = (
    f"INSERT INTO session_usage ({', '.join((*LABELS, SESSION, *AMOUNTS))}) "
    f"VALUES ({', '.join('?' * len((*LABELS, SESSION, *AMOUNTS)))}) "
    f"ON CONFLICT (day, key, model, session) DO UPDATE SET team = excluded.team, "
    + ", ".join(f"{name} = session_usage.{name} + excluded.{name}" for name in AMOUNTS)
)


@dataclass(eq=False)
class UsageTable:
    """The table in a database. Every method raises `StoreUnavailable`."""

    database: Database

    @transaction
    def add(
        self,
        sql: Sql,
        sums: Mapping[tuple[int, str, str, str], Sequence[int]],
        oldest: int,
        sessions: Mapping[tuple[int, str, str, str, str], Sequence[int]] = _NO_SESSIONS,
    ) -> None:
        """Add amounts to those that are there, and delete what is older than the day `oldest`. `sessions` has those parts of
        the amounts that belong to a session: of the sessions of a key and a day those that come first are kept apart."""
        for labels, amounts in sorted(sums.items()):  # in one order, so that no two processes wait for each other
            sql.execute(_ADD, (*labels, *amounts))
        sql.execute("DELETE FROM token_usage WHERE day < ?", (oldest,))
        if not sessions:
            return
        full = {owner for owner in sorted({row[:2] for row in sessions}) if _number_of_sessions(sql, owner) >= _MOST_SESSIONS}
        for row, amounts in sorted(sessions.items()):
            if row[:2] not in full:
                sql.execute(_ADD_SESSION, (*row, *amounts))
        sql.execute("DELETE FROM session_usage WHERE day < ?", (max(row[0] for row in sessions) - SESSION_DAYS,))

    @transaction
    def sums(self, sql: Sql, first: int, last: int, by: Sequence[str]) -> dict[tuple[int | str, ...], list[int]]:
        """Return the sums from day `first` to day `last`, both included, for each combination of these `LABELS`."""
        assert set(by) <= set(LABELS)
        return _sums(sql, "token_usage", first, last, by)

    @transaction
    def session_sums(self, sql: Sql, first: int, last: int, by: Sequence[str]) -> dict[tuple[int | str, ...], list[int]]:
        """Return the same of what belongs to sessions, which are one of the labels."""
        assert set(by) <= {*LABELS, SESSION}
        return _sums(sql, "session_usage", first, last, by)


def _sums(sql: Sql, table: str, first: int, last: int, by: Sequence[str]) -> dict[tuple[int | str, ...], list[int]]:
    labels = ", ".join(by)
    statement = (
        f"SELECT {labels}, {', '.join(f'SUM({name})' for name in AMOUNTS)} FROM {table} "
        f"WHERE day BETWEEN ? AND ? GROUP BY {labels}"
    )
    rows = sql.execute(statement, (first, last)).fetchall()
    return {tuple(row[: len(by)]): [int(amount) for amount in row[len(by) :]] for row in rows}


def _number_of_sessions(sql: Sql, owner: tuple[int, str]) -> int:
    statement = "SELECT COUNT(*) FROM (SELECT 1 FROM session_usage WHERE day = ? AND key = ? LIMIT ?) AS found"
    return int(sql.execute(statement, (*owner, _MOST_SESSIONS)).fetchone()[0])


def today() -> int:
    """Return the number of the present day."""
    return int(time.time() // DAY)


def add_amounts(sums: dict[L, list[int]], labels: L, amounts: Sequence[int]) -> None:
    """Add amounts to those with the same labels."""
    known = sums.get(labels)
    sums[labels] = list(amounts) if known is None else [one + more for one, more in zip(known, amounts, strict=True)]
