"""What another process needs to take a running response over, as SQL inside an open transaction.

The first row of a journal has the start of the response; each further one belongs to a piece of its events, and is written with
it. A takeover deletes the journal, so that there is no second one. No journal outlives its response."""

from __future__ import annotations

from responses_gateway.state.interfaces import Sql
from responses_gateway.state.records import ACTIVE, EventRow

# The place of the row with the start of the response.
_BEGINNING = -1


def begin(sql: Sql, response_id: str, beginning: bytes) -> None:
    """Write how a response began."""
    statement = "INSERT INTO journals (response, first, data) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
    sql.execute(statement, (response_id, _BEGINNING, beginning))


def append(sql: Sql, response_id: str, row: EventRow, worker: str | None) -> None:
    """Write what belongs to a piece of events, perhaps again; nothing happens if `worker` does not run the response."""
    sql.execute(
        "INSERT INTO journals (response, first, data) "
        "SELECT id, ?, ? FROM responses WHERE id = ? AND worker = ? AND status IN (?, ?) "
        "ON CONFLICT (response, first) DO UPDATE SET data = excluded.data",
        (row.first, row.journal, response_id, worker, *ACTIVE),
    )


def take(sql: Sql, response_id: str) -> tuple[bytes, dict[int, bytes]] | None:
    """Take a journal out: how the response began, and what belongs to its pieces, by their first number. Return None if there
    is none."""
    rows = sql.execute("SELECT first, data FROM journals WHERE response = ?", (response_id,)).fetchall()
    delete(sql, response_id)
    found = {int(first): bytes(data) for first, data in rows}
    beginning = found.pop(_BEGINNING, None)
    return None if beginning is None else (beginning, found)


def delete(sql: Sql, response_id: str) -> None:
    """Delete the journal of a response, if it has one."""
    sql.execute("DELETE FROM journals WHERE response = ?", (response_id,))
