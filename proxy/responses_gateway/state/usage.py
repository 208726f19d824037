"""Requests and tokens by day, key, team and model, in a table. Days are numbers since 1970-01-01, in UTC."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from responses_gateway.state.interfaces import Database, Sql, transaction

L = TypeVar("L")
# Seconds of a day.
DAY = 86_400
# What a sum may be divided by.
LABELS = ("day", "key", "team", "model")
# What is summed.
AMOUNTS = ("requests", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
_ADD = (
    f"INSERT INTO token_usage ({', '.join((*LABELS, *AMOUNTS))}) VALUES ({', '.join('?' * len((*LABELS, *AMOUNTS)))}) "
    f"ON CONFLICT (day, key, model) DO UPDATE SET team = excluded.team, "  # a key belongs to one team
    + ", ".join(f"{name} = token_usage.{name} + excluded.{name}" for name in AMOUNTS)
)


@dataclass(eq=False)
class UsageTable:
    """The table in a database. Every method raises `StoreUnavailable`."""

    database: Database

    @transaction
    def add(self, sql: Sql, sums: Mapping[tuple[int, str, str, str], Sequence[int]], oldest: int) -> None:
        """Add amounts to those that are there, and delete what is older than the day `oldest`."""
        for labels, amounts in sorted(sums.items()):  # in one order, so that no two processes wait for each other
            sql.execute(_ADD, (*labels, *amounts))
        sql.execute("DELETE FROM token_usage WHERE day < ?", (oldest,))

    @transaction
    def sums(self, sql: Sql, first: int, last: int, by: Sequence[str]) -> dict[tuple[int | str, ...], list[int]]:
        """Return the sums from day `first` to day `last`, both included, for each combination of these `LABELS`."""
        assert set(by) <= set(LABELS)
        labels = ", ".join(by)
        statement = (
            f"SELECT {labels}, {', '.join(f'SUM({name})' for name in AMOUNTS)} FROM token_usage "
            f"WHERE day BETWEEN ? AND ? GROUP BY {labels}"
        )
        rows = sql.execute(statement, (first, last)).fetchall()
        return {tuple(row[: len(by)]): [int(amount) for amount in row[len(by) :]] for row in rows}


def today() -> int:
    """Return the number of the present day."""
    return int(time.time() // DAY)


def add_amounts(sums: dict[L, list[int]], labels: L, amounts: Sequence[int]) -> None:
    """Add amounts to those with the same labels."""
    known = sums.get(labels)
    sums[labels] = list(amounts) if known is None else [one + more for one, more in zip(known, amounts, strict=True)]
