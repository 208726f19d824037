"""The events of running responses, in pieces, and what another process needs to take such a response over: its journal.

The first row of a journal has what is kept of the response; each further one belongs to a piece of its events, and is written
with it. A takeover deletes the journal, so that there is no second one. No journal outlives its response."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from responses_gateway.state import histories, repeated_texts, responses
from responses_gateway.state.interfaces import Database, EventsUnavailable, LiveLog, Sql, StoreUnavailable, transaction
from responses_gateway.state.records import ACTIVE, EventRow, JsonText, NewEvents

_KEPT = -1  # the place of the first row of a journal


@dataclass(eq=False)
class EventTable:
    """The events of all running responses: in a database, or in the log `live` beside it until a response has ended. Every
    method raises `StoreUnavailable`."""

    database: Database
    live: LiveLog | None

    @property
    def signals(self) -> bool:
        """Whether `read` returns as soon as there are events, and not only after `within` seconds."""
        return self.live is not None

    async def append(self, pieces: Sequence[NewEvents]) -> dict[str, bool]:
        """Write the next piece of each of several streams. Return, by the ids of the responses, whether it was written; False:
        the response was deleted, has ended, or is run by another process. (A log beside the database notices no deletion.)
        What is missing in the result failed: it may be written again, and be longer. Raises `StoreUnavailable` if all did."""
        live = self.live
        if live is None:
            return await self._append(pieces)
        if any(piece.head is not None for piece in pieces):
            await self.database.run(lambda sql: _leave_queue(sql, pieces))
        appending = (live.append(piece.record.id, piece.row) for piece in pieces)
        results = await asyncio.gather(*appending, return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        for failure in failures:
            if len(failures) == len(results) or not isinstance(failure, StoreUnavailable):
                raise failure
        return {piece.record.id: done for piece, done in zip(pieces, results, strict=True) if isinstance(done, bool)}

    async def read(self, response_id: str, after: int, within: float = 0.0) -> list[EventRow]:
        """Return the next pieces of a stream that have events with numbers above `after`; all of them once it has ended. If
        there are none, wait about `within` seconds for some."""
        if self.live is None:
            rows = await self.database.run(lambda sql: read(sql, response_id, after))
            if not rows and within > 0:
                await asyncio.sleep(within)
            return rows
        try:
            if rows := await self.live.read(response_id, after, within):
                return rows
        except EventsUnavailable:
            if await self.database.run(lambda sql: responses.is_active(sql, response_id)):
                raise
        return await self.database.run(lambda sql: read(sql, response_id, after))

    @transaction
    def _append(self, sql: Sql, pieces: Sequence[NewEvents]) -> dict[str, bool]:
        _leave_queue(sql, pieces)
        return {record.id: append(sql, record.id, row, record.repeated, record.worker) for record, row, _ in pieces}


# ---- inside an open transaction ----------------------------------------------------------------------------------------


def append(sql: Sql, response_id: str, row: EventRow, repeated: Sequence[JsonText], worker: str | None = None) -> bool:
    """Write a piece of a stream, perhaps again. Return False, and write nothing, if the response was deleted, has ended, or is
    run by another process than `worker`. `repeated` are those texts of the response."""
    written = sql.execute(
        "INSERT INTO events (response, first, next, data) SELECT id, ?, ?, ? FROM responses "
        "WHERE id = ? AND status IN (?, ?) AND worker = coalesce(?, worker) "
        "ON CONFLICT (response, first) DO UPDATE SET next = excluded.next, data = excluded.data",
        (row.first, row.next, repeated_texts.shortened_events(row.data, repeated), response_id, *ACTIVE, worker),
    ).rowcount
    if written and row.journal and worker is not None:
        _append_to_journal(sql, response_id, row.first, row.journal)
    return written > 0


def read(sql: Sql, response_id: str, after: int) -> list[EventRow]:
    """Return the pieces of a stream that have events with numbers above `after`."""
    statement = "SELECT first, next, data FROM events WHERE response = ? AND next > ? ORDER BY first"
    rows = [EventRow(*row) for row in sql.execute(statement, (response_id, after + 1)).fetchall()]
    if not any(repeated_texts.is_shortened(row.data) for row in rows):
        return rows
    (repeated_end,) = sql.execute("SELECT repeated_end FROM responses WHERE id = ?", (response_id,)).fetchone()
    repeated = histories.texts(sql, repeated_end)
    return [row._replace(data=repeated_texts.restored_events(row.data, repeated)) for row in rows]


def begin_journal(sql: Sql, response_id: str, kept: bytes | None) -> None:
    """Write what is kept of a response, unless none may take it over."""
    if kept is not None:
        _append_to_journal(sql, response_id, _KEPT, kept)


def take_journal(sql: Sql, response_id: str) -> tuple[bytes, dict[int, bytes]] | None:
    """Take a journal out: what was kept of the response, and what belongs to its pieces, by their first number. Return None if
    there is none."""
    rows = sql.execute("DELETE FROM journals WHERE response = ? RETURNING first, data", (response_id,)).fetchall()
    pieces = {int(first): bytes(data) for first, data in rows}
    kept = pieces.pop(_KEPT, None)
    return None if kept is None else (kept, pieces)


def _append_to_journal(sql: Sql, response_id: str, first: int, data: bytes) -> None:
    sql.execute(
        "INSERT INTO journals (response, first, data) VALUES (?, ?, ?) "
        "ON CONFLICT (response, first) DO UPDATE SET data = excluded.data",
        (response_id, first, data),
    )


def _leave_queue(sql: Sql, pieces: Sequence[NewEvents]) -> None:
    """Have those responses be in progress that have left the queue, with their JSON before the output from now on."""
    statement = (
        "UPDATE responses SET status = 'in_progress', head = ? "
        "WHERE id = ? AND status = 'queued' AND worker = coalesce(?, worker)"
    )
    for record, _, head in pieces:
        if head is not None:
            sql.execute(statement, (head, record.id, record.worker))
