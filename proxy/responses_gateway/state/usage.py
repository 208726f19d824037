"""Requests and tokens by day, key, team and model, in a table. Days are numbers since 1970-01-01, in UTC."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from responses_gateway.state.interfaces import Database, Sql, transaction

L = TypeVar("L")
DAY = 86_400  # seconds of a day
# What a sum may be divided by.
LABELS = ("day", "key", "team", "model")
# What is summed.
AMOUNTS = ("requests", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


@dataclass(eq=False)
class UsageTable:
    """A table of sums in a database. Every method raises `StoreUnavailable`. `labels` are what a sum may be divided by;
    `most`: rows of a key and a day, of which those that come first are kept."""

    database: Database
    name: str = "token_usage"
    labels: Sequence[str] = LABELS
    most: int | None = None

    @transaction
    def add(self, sql: Sql, sums: Mapping[tuple[Any, ...], Sequence[int]], oldest: int) -> None:
        """Add amounts to those that are there, and delete what is older than the day `oldest`."""
        columns = (*self.labels, *AMOUNTS)
        statement = (
            f"INSERT INTO {self.name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) "
            f"ON CONFLICT ({', '.join(label for label in self.labels if label != 'team')}) "  # a key belongs to one team
            f"DO UPDATE SET team = excluded.team, "
            + ", ".join(f"{name} = {self.name}.{name} + excluded.{name}" for name in AMOUNTS)
        )
        full = set() if self.most is None else {owner for owner in {row[:2] for row in sums} if self._is_full(sql, owner)}
        for labels, amounts in sorted(sums.items()):  # in one order, so that no two processes wait for each other
            if labels[:2] not in full:
                sql.execute(statement, (*labels, *amounts))
        sql.execute(f"DELETE FROM {self.name} WHERE day < ?", (oldest,))

    def _is_full(self, sql: Sql, owner: tuple[Any, ...]) -> bool:
        statement = f"SELECT COUNT(*) FROM (SELECT 1 FROM {self.name} WHERE day = ? AND key = ? LIMIT ?) AS found"
        return int(sql.execute(statement, (*owner, self.most)).fetchone()[0]) == self.most

    @transaction
    def sums(self, sql: Sql, first: int, last: int, by: Sequence[str]) -> dict[tuple[int | str, ...], list[int]]:
        """Return the sums from day `first` to day `last`, both included, for each combination of these labels."""
        assert set(by) <= set(self.labels)
        columns = ", ".join((*by, *(f"SUM({name})" for name in AMOUNTS)))
        grouping = f" GROUP BY {', '.join(by)}" if by else ""
        statement = f"SELECT {columns} FROM {self.name} WHERE day BETWEEN ? AND ?{grouping}"
        rows = sql.execute(statement, (first, last)).fetchall()
        return {tuple(row[: len(by)]): [int(amount) for amount in row[len(by) :]] for row in rows if row[-1] is not None}


def today() -> int:
    """Return the number of the present day."""
    return int(time.time() // DAY)


def add_amounts(sums: dict[L, list[int]], labels: L, amounts: Sequence[int]) -> None:
    """Add amounts to those with the same labels."""
    known = sums.get(labels)
    sums[labels] = list(amounts) if known is None else [one + more for one, more in zip(known, amounts, strict=True)]
