"""Responses, and the event logs of running ones, as SQL inside an open transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from responses_gateway.state import histories, journals, repeated_texts, waiting_rows
from responses_gateway.state.interfaces import Sql
from responses_gateway.state.records import (
    ACTIVE,
    Abandoned,
    AbandonedEnd,
    Ages,
    Claims,
    EventRow,
    Orphan,
    ResponseRecord,
    Running,
    Stored,
)

# How long the log of a stream that was not requested in the background is kept, in seconds.
_LOG_KEPT = 3600.0
# A heartbeat this far ahead, in seconds, is from before the clock was set back.
_AHEAD = 3600.0
# Ids in one statement.
_IDS = 1000
# The statuses that continue a conversation: after a failure the client will ask again, unless tools were run.
_CONTINUED = frozenset({"completed", "incomplete"})
EndAbandoned = Callable[[Abandoned], AbandonedEnd]
# Nobody runs it, nor will: those that wait for their completion window are queued.
_HAS_ENDED = "alive_until IS NULL AND status <> 'queued'"
_COLUMNS = "id, status, head, tail, background, conversation, input_begin, input_end, output_end, repeated_end"


def save(sql: Sql, record: ResponseRecord, expires_at: float, running: Running | None) -> bool:
    """Write a response, or its end. Return False if it had already ended, or was deleted while it ran."""
    begun = record.detached and running is None  # it was written when it started
    end = _update(sql, record) if begun else _insert(sql, record, expires_at, running)
    if end is None:
        return False
    if record.conversation is not None and running is None and (record.status in _CONTINUED or record.tools_ran):
        _continue_conversation(sql, record, end, expires_at)
    return True


def _insert(sql: Sql, record: ResponseRecord, expires_at: float, running: Running | None) -> int:
    """Write a response. Return the place of its last output item."""
    ends = _ends(sql, record)
    sql.execute(
        "INSERT INTO responses (id, tenant, created_at, expires_at, status, head, tail, input_begin, input_end, "
        "output_end, repeated_end, conversation, background, worker, alive_until, log_until) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            record.id,
            record.tenant,
            record.created_at,
            expires_at,
            record.status,
            record.head,
            repeated_texts.shortened(record.tail, record.repeated),
            *ends,
            repeated_texts.save(sql, record.tenant, record.repeated),
            record.conversation,
            int(record.background),
            running.worker if running is not None else None,
            running.until if running is not None else None,
            record.created_at + _LOG_KEPT if record.detached and not record.background else None,
        ),
    )
    return ends[2]


def _update(sql: Sql, record: ResponseRecord) -> int | None:
    """Write the end of a response. Return the place of its last output item; None if it has ended already, was deleted, or is
    run by another process by now."""
    statement = "SELECT input_end FROM responses WHERE id = ? AND status IN (?, ?) AND worker = coalesce(?, worker)"
    old = sql.execute(statement, (record.id, *ACTIVE, record.worker)).fetchone()
    if old is None:
        return None
    journals.delete(sql, record.id)
    ends = _ends(sql, record)
    tail = repeated_texts.shortened(record.tail, record.repeated)
    sql.execute(
        "UPDATE responses SET status = ?, head = ?, tail = ?, input_begin = ?, input_end = ?, output_end = ?, "
        "worker = NULL, alive_until = NULL WHERE id = ?",
        (record.status, record.head, tail, *ends, record.id),
    )
    if old[0] != ends[1]:
        histories.prune(sql, old[0])
    return ends[2]


def get(sql: Sql, tenant: str, response_id: str) -> Stored | None:
    """Return a response of this tenant."""
    statement = f"SELECT {_COLUMNS} FROM responses WHERE tenant = ? AND id = ?"
    row = sql.execute(statement, (tenant, response_id)).fetchone()
    if row is None:
        return None
    key, status, head, tail, background, conversation, input_begin, input_end, output_end, repeated_end = row
    has_events = sql.execute("SELECT 1 FROM events WHERE response = ? LIMIT 1", (key,)).fetchone() is not None
    tail = repeated_texts.restored(tail, repeated_texts.load(sql, repeated_end))
    text = head + ",".join(histories.texts(sql, output_end, input_end)) + tail
    return Stored(key, status, text, bool(background), conversation, output_end, input_begin, input_end, has_events)


def delete(sql: Sql, tenant: str, response_id: str) -> bool:
    """Delete a response and the items that only it has. Return False if there is none with this id."""
    row = sql.execute(
        "DELETE FROM responses WHERE tenant = ? AND id = ? RETURNING input_end, output_end, repeated_end", (tenant, response_id)
    ).fetchone()
    if row is None:
        return False
    _forget(sql, response_id, row)
    return True


def delete_expired(sql: Sql, now: float, limit: int) -> list[float]:
    """Delete at most `limit` responses that have expired, in that order. Return when each of them expired."""
    rows = sql.execute(
        "SELECT id, expires_at, input_end, output_end, repeated_end FROM responses "
        f"WHERE expires_at < ? AND {_HAS_ENDED} ORDER BY expires_at LIMIT ?",
        (now, limit),
    ).fetchall()
    for key, _, *ends in rows:
        sql.execute("DELETE FROM responses WHERE id = ?", (key,))
        _forget(sql, key, ends)
    return [row[1] for row in rows]


def ages(sql: Sql, now: float) -> Ages:
    """Return the age of the oldest response that has ended, and for how long one has been expired."""
    statement = f"SELECT created_at, expires_at FROM responses WHERE {_HAS_ENDED} ORDER BY expires_at LIMIT 1"
    row = sql.execute(statement).fetchone()
    return Ages(max(0.0, now - row[0]), max(0.0, now - row[1])) if row is not None else Ages(0.0, 0.0)


def delete_logs(sql: Sql, now: float, limit: int) -> int:
    """Delete the event logs of at most `limit` streams that can no longer be resumed. Return how many."""
    statement = "SELECT id FROM responses WHERE log_until < ? AND alive_until IS NULL LIMIT ?"
    rows = sql.execute(statement, (now, limit)).fetchall()
    for row in rows:
        sql.execute("DELETE FROM events WHERE response = ?", row)
        sql.execute("UPDATE responses SET log_until = NULL WHERE id = ?", row)
    return len(rows)


def cancel(sql: Sql, tenant: str, response_id: str) -> bool:
    """Ask the process that runs the response to end it. Return False if there is none with this id."""
    statement = "UPDATE responses SET cancelled = 1 WHERE tenant = ? AND id = ?"
    return sql.execute(statement, (tenant, response_id)).rowcount > 0


def end_waiting(sql: Sql, response_id: str, now: float, end: EndAbandoned) -> bool:
    """End a response that waits as `end` says. Return False if it waits no longer."""
    if not waiting_rows.delete(sql, response_id):
        return False
    sql.execute("UPDATE responses SET alive_until = 0 WHERE id = ? AND alive_until IS NULL", (response_id,))
    return end_abandoned(sql, response_id, now, (), end) is not None


def is_active(sql: Sql, tenant: str, response_id: str) -> bool | None:
    """Tell whether a response still runs; None if there is none with this id."""
    row = sql.execute("SELECT status FROM responses WHERE tenant = ? AND id = ?", (tenant, response_id)).fetchone()
    return None if row is None else row[0] in ACTIVE


def still_alive(sql: Sql, ids: Sequence[str], running: Running) -> Claims:
    """Write the heartbeat of a worker for the responses that it runs, in one statement for all. Return which it still runs."""
    alive: set[str] = set()
    ended: set[str] = set()
    for begin in range(0, len(ids), _IDS):
        some = ids[begin : begin + _IDS]
        marks = ", ".join("?" * len(some))
        statement = (
            "UPDATE responses SET alive_until = ? WHERE worker = ? AND alive_until IS NOT NULL "
            f"AND id IN ({marks}) RETURNING id, cancelled"
        )
        for key, cancelled in sql.execute(statement, (running.until, running.worker, *some)).fetchall():
            (ended if cancelled else alive).add(key)
    missing = [key for key in ids if key not in alive | ended]
    elsewhere = {key for key in missing if sql.execute("SELECT 1 FROM responses WHERE id = ?", (key,)).fetchone() is not None}
    return Claims(alive, elsewhere)


def leave_queue(sql: Sql, record: ResponseRecord, head: str) -> None:
    """Have a queued response be in progress; `head` is its JSON before the output from now on."""
    sql.execute(
        "UPDATE responses SET status = 'in_progress', head = ? "
        "WHERE id = ? AND status = 'queued' AND worker = coalesce(?, worker)",
        (head, record.id, record.worker),
    )


def append_events(sql: Sql, response_id: str, row: EventRow, repeated: Sequence[str], worker: str | None = None) -> bool:
    """Write a piece of a stream, perhaps again. Return False, and write nothing, if the response was deleted, has ended, or is
    run by another process than `worker`. `repeated` are those texts of the response."""
    written = sql.execute(
        "INSERT INTO events (response, first, next, data) SELECT id, ?, ?, ? FROM responses "
        "WHERE id = ? AND status IN (?, ?) AND worker = coalesce(?, worker) "
        "ON CONFLICT (response, first) DO UPDATE SET next = excluded.next, data = excluded.data",
        (row.first, row.next, repeated_texts.shortened_events(row.data, repeated), response_id, *ACTIVE, worker),
    ).rowcount
    if written and row.journal:
        journals.append(sql, response_id, row, worker)
    return written > 0


def events(sql: Sql, response_id: str, after: int) -> list[EventRow]:
    """Return the pieces of a stream that have events with numbers above `after`."""
    statement = "SELECT first, next, data FROM events WHERE response = ? AND next > ? ORDER BY first"
    rows = [EventRow(*row) for row in sql.execute(statement, (response_id, after + 1)).fetchall()]
    if not any(repeated_texts.is_shortened(row.data) for row in rows):
        return rows
    (repeated_end,) = sql.execute("SELECT repeated_end FROM responses WHERE id = ?", (response_id,)).fetchone()
    repeated = repeated_texts.load(sql, repeated_end)
    return [row._replace(data=repeated_texts.restored_events(row.data, repeated)) for row in rows]


def events_of(sql: Sql, response_id: str, after: int) -> tuple[list[EventRow], bool]:
    """Return the same, and whether the response still runs."""
    running = sql.execute("SELECT 1 FROM responses WHERE id = ? AND status IN (?, ?)", (response_id, *ACTIVE)).fetchone()
    return events(sql, response_id, after), running is not None


def abandoned(sql: Sql, now: float) -> list[tuple[str, float]]:
    """Return the responses of workers without a recent heartbeat that cannot be taken over: ids, and until when each was
    considered alive."""
    return _of_dead_workers(sql, now, f"(cancelled = 1 OR NOT {_HAS_JOURNAL})")


def orphans(sql: Sql, now: float) -> list[tuple[str, float]]:
    """Return the same of those that another process may take over."""
    return _of_dead_workers(sql, now, f"cancelled = 0 AND {_HAS_JOURNAL}")


_HAS_JOURNAL = "EXISTS (SELECT 1 FROM journals WHERE response = responses.id)"


def _of_dead_workers(sql: Sql, now: float, condition: str) -> list[tuple[str, float]]:
    statement = f"SELECT id, alive_until FROM responses WHERE (alive_until < ? OR alive_until > ?) AND {condition}"
    rows = sql.execute(statement, (now, now + _AHEAD)).fetchall()
    return [(row[0], row[1]) for row in rows]


def begin_waited(sql: Sql, response_id: str, expires_at: float, running: Running) -> Sequence[str] | None:
    """Have a worker run a response that has waited. Return its repeated texts; None if it waits no longer."""
    if not waiting_rows.delete(sql, response_id):
        return None
    row = sql.execute(
        "UPDATE responses SET worker = ?, alive_until = ?, expires_at = ? "
        "WHERE id = ? AND status = 'queued' AND alive_until IS NULL AND cancelled = 0 RETURNING repeated_end",
        (running.worker, running.until, expires_at, response_id),
    ).fetchone()
    return None if row is None else repeated_texts.load(sql, row[0])


def take_over(sql: Sql, response_id: str, now: float, running: Running) -> Orphan | None:
    """Have another worker run a response from now on. Return None if it is not an orphan any more."""
    statement = (
        "UPDATE responses SET worker = ?, alive_until = ? "
        "WHERE id = ? AND cancelled = 0 AND (alive_until < ? OR alive_until > ?) RETURNING tenant"
    )
    row = sql.execute(statement, (running.worker, running.until, response_id, now, now + _AHEAD)).fetchone()
    journal = journals.take(sql, response_id) if row is not None else None
    if row is None or journal is None:
        return None
    beginning, pieces = journal
    rows = [piece._replace(journal=pieces.get(piece.first, b"")) for piece in events(sql, response_id, -1)]
    return Orphan(response_id, row[0], beginning, rows)


def release(sql: Sql, response_id: str, worker: str, now: float) -> None:
    """Have a worker run a response no longer: it is an orphan at once."""
    statement = "UPDATE responses SET worker = '', alive_until = ? WHERE id = ? AND worker = ? AND alive_until IS NOT NULL"
    sql.execute(statement, (now, response_id, worker))


def end_abandoned(sql: Sql, response_id: str, now: float, live: Sequence[EventRow], end: EndAbandoned) -> AbandonedEnd | None:
    """End an abandoned response as `end` says. `live` is its log if the database does not have it. Return None if the response
    has ended otherwise."""
    row = sql.execute(
        "SELECT head, tail, input_end, repeated_end, tenant, cancelled FROM responses "
        "WHERE id = ? AND (alive_until < ? OR alive_until > ?)",
        (response_id, now, now + _AHEAD),
    ).fetchone()
    if row is None:
        return None
    head, tail, input_end, repeated_end, tenant, cancelled = row
    repeated = repeated_texts.load(sql, repeated_end)
    for piece in live:
        append_events(sql, response_id, piece, repeated)
    rows = events(sql, response_id, -1)
    ended = end(Abandoned(head, repeated_texts.restored(tail, repeated), rows, bool(cancelled)))
    if ended.last is not None:
        append_events(sql, response_id, ended.last, repeated)
    output_end = histories.append(sql, tenant, input_end, ended.output)
    sql.execute(
        "UPDATE responses SET status = ?, head = ?, output_end = ?, worker = NULL, alive_until = NULL WHERE id = ?",
        (ended.status, ended.head, output_end, response_id),
    )
    journals.delete(sql, response_id)
    return ended


def _ends(sql: Sql, record: ResponseRecord) -> tuple[int, int, int]:
    """Return the places before the input, of its last item, and of the last item of the output."""
    context = record.context
    if not histories.exists(sql, context):
        context = histories.append(sql, record.tenant, 0, record.history)
    input_end = histories.append(sql, record.tenant, context, record.input, record.results)
    return context, input_end, histories.append(sql, record.tenant, input_end, record.output, record.results)


def _continue_conversation(sql: Sql, record: ResponseRecord, end: int, expires_at: float) -> None:
    row = sql.execute(
        "SELECT output_end FROM conversations WHERE tenant = ? AND id = ?", (record.tenant, record.conversation)
    ).fetchone()
    if row is None:
        return  # deleted while the response ran
    if row[0] != record.context:  # it was continued meanwhile: add the items after that
        end = histories.append(sql, record.tenant, row[0], [*record.input, *record.output])
    sql.execute("UPDATE conversations SET output_end = ?, expires_at = ? WHERE id = ?", (end, expires_at, record.conversation))


def _forget(sql: Sql, response_id: str, ends: Sequence[int]) -> None:
    sql.execute("DELETE FROM events WHERE response = ?", (response_id,))
    journals.delete(sql, response_id)
    waiting_rows.delete(sql, response_id)
    for end in reversed(ends):
        histories.prune(sql, end)
