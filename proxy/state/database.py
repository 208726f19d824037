"""What the store needs of a database: pieces of work, each one transaction, written as an ordinary function.

They run in threads. So the event loop never waits for a disk, and a request that is cancelled never leaves a transaction
half done: the function runs to its end, whoever still waits for the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class StoreUnavailable(Exception):
    """The store cannot be opened, read or written. The message is for operators."""


class Rows(Protocol):
    """What a statement brought."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Sql(Protocol):
    """An open transaction. Values stand for the `?` in a statement, in order."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows: ...


class Database(Protocol):
    """A database; transactions are as if one came after the other."""

    async def open(self) -> None:
        """Connect, and bring the schema up to date. Raises `StoreUnavailable`."""

    async def close(self) -> None:
        """Finish what was begun, and disconnect."""

    async def run(self, work: Callable[[Sql], T]) -> T:
        """Run `work` as one transaction, again from the start if another got in its way. Raises `StoreUnavailable`, and
        whatever `work` raises (then nothing was written)."""


def storable(values: Sequence[Any]) -> list[Any]:
    """The values without what no database takes in a text: half a surrogate pair, and zero bytes."""
    return [
        value.encode("utf-8", "replace").decode().replace("\0", "\ufffd") if isinstance(value, str) else value
        for value in values
    ]
