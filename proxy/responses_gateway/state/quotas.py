"""What is charged to quotas: the vocabulary, and the counters in a database (`redis_quotas.py` has those in Redis).

A counter is the tokens that somebody has used in one day or month: its name begins with the period, in UTC, and ends with
whose it is. A charge has an id, and the total of tokens that it stands for: made once more, or by another process, it adds
only what is missing, so that it can be repeated after a failure that leaves open whether it was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol

from responses_gateway.state.interfaces import Database, Sql, transaction

Period = Literal["day", "month"]

# Seconds for which a counter is kept after its period, and for which a charge can be repeated.
KEPT = 2 * 86_400


class QuotasUnavailable(Exception):
    """The counters cannot be reached. The message is for operators."""


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter: its name, and the Unix time at which its period ends."""

    name: str
    ends: float


@dataclass(frozen=True, slots=True)
class Charge:
    """So many tokens, all that `id` stands for, to be charged to each of some counters."""

    id: str
    tokens: int
    counters: tuple[Counter, ...]


class QuotaCounters(Protocol):
    """The counters of all gateways. Every method but `close` raises `QuotasUnavailable`."""

    async def read(self, counters: Sequence[Counter], known: Mapping[str, int]) -> dict[str, int]:
        """Return the tokens of counters. `known` is what was seen before: a counter is never less."""

    async def charge(self, charges: Sequence[Charge], known: Mapping[str, int], now: float) -> dict[str, int]:
        """Charge all, or none if it raises; return the counters as they are then. `now` is the Unix time."""

    async def close(self) -> None:
        """Disconnect."""


def counter(owner: str, period: Period, now: float) -> Counter:
    """Return the counter of an owner for the day or the month at the Unix time `now`."""
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return Counter(f"{today:%Y-%m-%d} {owner}", (today + timedelta(days=1)).timestamp())
    next_month = (today.replace(day=1) + timedelta(days=32)).replace(day=1)
    return Counter(f"{today:%Y-%m} {owner}", next_month.timestamp())


_ADD = (
    "INSERT INTO quota_counters (name, tokens, expires_at) VALUES (?, ?, ?) "
    "ON CONFLICT (name) DO UPDATE SET tokens = quota_counters.tokens + excluded.tokens"
)
_NOTE = (
    "INSERT INTO quota_charges (id, tokens, expires_at) VALUES (?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET tokens = excluded.tokens"
)


@dataclass(eq=False)
class QuotaTable:
    """The counters in the tables of a database. Every method raises `StoreUnavailable`."""

    database: Database

    @transaction
    def read(self, sql: Sql, counters: Sequence[Counter], _known: Mapping[str, int]) -> dict[str, int]:
        """Return the tokens of counters; `known` is not needed, since a database forgets nothing."""
        return _tokens(sql, [counter.name for counter in counters])

    @transaction
    def charge(self, sql: Sql, charges: Sequence[Charge], _known: Mapping[str, int], now: float) -> dict[str, int]:
        """Charge all, and delete what is no longer needed; return the counters."""
        more: dict[Counter, int] = {}
        for charge in sorted(charges, key=lambda charge: charge.id):
            row = sql.execute("SELECT tokens FROM quota_charges WHERE id = ?", (charge.id,)).fetchone()
            missing = charge.tokens - (row[0] if row is not None else 0)
            if missing > 0:
                sql.execute(_NOTE, (charge.id, charge.tokens, now + KEPT))
            for counter in charge.counters:
                more[counter] = more.get(counter, 0) + max(0, missing)
        for counter in sorted(more, key=lambda counter: counter.name):  # in one order, so that no two wait for each other
            sql.execute(_ADD, (counter.name, more[counter], counter.ends + KEPT))
        for table in ("quota_charges", "quota_counters"):
            sql.execute(f"DELETE FROM {table} WHERE expires_at < ?", (now,))
        return _tokens(sql, [counter.name for counter in more])

    async def close(self) -> None:
        """Leave the database to the store, whose it is."""


def _tokens(sql: Sql, names: Sequence[str]) -> dict[str, int]:
    """Return the tokens of counters; 0 for those that were never charged."""
    tokens = dict.fromkeys(names, 0)
    if names:
        statement = f"SELECT name, tokens FROM quota_counters WHERE name IN ({', '.join('?' * len(names))})"
        tokens |= {name: int(number) for name, number in sql.execute(statement, names).fetchall()}
    return tokens
