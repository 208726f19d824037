"""Responses, and the event logs of running ones, as SQL inside an open transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from proxy.state import histories
from proxy.state.interfaces import Sql
from proxy.state.records import ACTIVE, EventRow, Record, Running, Stored

# The error in the terminal event of a cancelled response: there is no event `response.cancelled`.
CANCELLED = {"code": "server_error", "message": "The response was cancelled."}
# A heartbeat this far ahead, in seconds, is from before the clock was set back.
_AHEAD = 3600.0
# The statuses that continue a conversation: after a failure the client will ask again.
_CONTINUED = frozenset({"completed", "incomplete"})
# Given the events of a stream so far and the next number, returns the events that close the open item, and that item.
CloseOpen = Callable[[bytes, int], tuple[list[bytes], list[str]]]
_COLUMNS = "id, status, head, tail, background, conversation, input_begin, input_end, output_end"


def save(sql: Sql, record: Record, expires_at: float, running: Running | None) -> bool:
    """Write a response, or its end. Return False if it had already ended, or was deleted while it ran."""
    begin, *ends = _ends(sql, record)
    state = (record.status, record.head, record.tail, begin, *ends)
    worker = (running.worker, running.until) if running is not None else (None, None)
    if record.detached and running is None:  # it was written when it started
        old = sql.execute("SELECT input_end FROM responses WHERE id = ?", (record.id,)).fetchone()
        done = sql.execute(
            "UPDATE responses SET status = ?, head = ?, tail = ?, input_begin = ?, input_end = ?, output_end = ?, "
            "worker = NULL, alive_until = NULL WHERE id = ? AND status IN (?, ?)",
            (*state, record.id, *ACTIVE),
        )
        if not done.rowcount:
            histories.prune(sql, ends[1])
            return False
        if old[0] != ends[0]:
            histories.prune(sql, old[0])
    else:
        identity = (record.id, record.tenant, record.created_at)
        sql.execute(
            "INSERT INTO responses (id, tenant, created_at, expires_at, status, head, tail, input_begin, input_end, "
            "output_end, conversation, background, worker, alive_until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*identity, expires_at, *state, record.conversation, int(record.background), *worker),
        )
    if record.conversation is not None and running is None and record.status in _CONTINUED:
        _continue_conversation(sql, record, ends[1], expires_at)
    return True


def get(sql: Sql, tenant: str, response_id: str) -> Stored | None:
    """Return a response of this tenant."""
    statement = f"SELECT {_COLUMNS} FROM responses WHERE tenant = ? AND id = ?"
    row = sql.execute(statement, (tenant, response_id)).fetchone()
    if row is None:
        return None
    key, status, head, tail, background, conversation, input_begin, input_end, output_end = row
    has_events = sql.execute("SELECT 1 FROM events WHERE response = ? LIMIT 1", (key,)).fetchone() is not None
    text = head + ",".join(histories.texts(sql, output_end, input_end)) + tail
    return Stored(key, status, text, bool(background), conversation, output_end, input_begin, input_end, has_events)


def delete(sql: Sql, tenant: str, response_id: str) -> bool:
    """Delete a response and the items that only it has. Return False if there is none with this id."""
    row = sql.execute(
        "DELETE FROM responses WHERE tenant = ? AND id = ? RETURNING input_end, output_end", (tenant, response_id)
    ).fetchone()
    if row is None:
        return False
    _forget(sql, response_id, row)
    return True


def delete_expired(sql: Sql, now: float, limit: int) -> int:
    """Delete at most `limit` responses that have expired. Return how many."""
    rows = sql.execute(
        "SELECT id, input_end, output_end FROM responses WHERE expires_at < ? AND alive_until IS NULL LIMIT ?", (now, limit)
    ).fetchall()
    for key, *ends in rows:
        sql.execute("DELETE FROM responses WHERE id = ?", (key,))
        _forget(sql, key, ends)
    return len(rows)


def delete_logs(sql: Sql, before: float) -> None:
    """Delete the event logs of responses that have ended, were not requested in the background, and started before then."""
    sql.execute(
        "DELETE FROM events WHERE response IN "
        "(SELECT id FROM responses WHERE background = 0 AND alive_until IS NULL AND created_at < ?)",
        (before,),
    )


def cancel(sql: Sql, tenant: str, response_id: str) -> bool:
    """Ask the process that runs the response to end it. Return False if there is none with this id."""
    statement = "UPDATE responses SET cancelled = 1 WHERE tenant = ? AND id = ?"
    return sql.execute(statement, (tenant, response_id)).rowcount > 0


def is_active(sql: Sql, tenant: str, response_id: str) -> bool | None:
    """Tell whether a response still runs; None if there is none with this id."""
    row = sql.execute("SELECT status FROM responses WHERE tenant = ? AND id = ?", (tenant, response_id)).fetchone()
    return None if row is None else row[0] in ACTIVE


def still_alive(sql: Sql, ids: Iterable[str], until: float) -> set[str]:
    """Write the heartbeat of a worker for the responses that it runs; queued ones are in progress from then on. Returns those
    that it should go on with."""
    statement = (
        "UPDATE responses SET alive_until = ? WHERE id = ? AND alive_until IS NOT NULL RETURNING cancelled, status, head"
    )
    alive = set()
    for key in ids:
        row = sql.execute(statement, (until, key)).fetchone()
        if row is None:
            continue
        cancelled, status, head = row
        if status == "queued":
            head = head.replace('"status":"queued"', '"status":"in_progress"', 1)
            sql.execute("UPDATE responses SET status = 'in_progress', head = ? WHERE id = ?", (head, key))
        if not cancelled:
            alive.add(key)
    return alive


def append_events(sql: Sql, response_id: str, row: EventRow) -> None:
    """Write a piece of a stream, perhaps again; nothing happens if the response was deleted or has ended."""
    sql.execute(
        "INSERT INTO events (response, first, next, data) SELECT id, ?, ?, ? FROM responses WHERE id = ? AND status IN (?, ?) "
        "ON CONFLICT (response, first) DO UPDATE SET next = excluded.next, data = excluded.data",
        (row.first, row.next, row.data, response_id, *ACTIVE),
    )


def events(sql: Sql, response_id: str, after: int) -> list[EventRow]:
    """Return the pieces of a stream that have events with numbers above `after`."""
    statement = "SELECT first, next, data FROM events WHERE response = ? AND next > ? ORDER BY first"
    return [EventRow(*row) for row in sql.execute(statement, (response_id, after + 1)).fetchall()]


def events_of(sql: Sql, response_id: str, after: int) -> tuple[list[EventRow], bool]:
    """Return the same, and whether the response still runs."""
    running = sql.execute("SELECT 1 FROM responses WHERE id = ? AND status IN (?, ?)", (response_id, *ACTIVE)).fetchone()
    return events(sql, response_id, after), running is not None


def abandoned(sql: Sql, now: float) -> list[tuple[str, float]]:
    """Return the responses of workers without a recent heartbeat: ids, and until when each was considered alive."""
    statement = "SELECT id, alive_until FROM responses WHERE alive_until < ? OR alive_until > ?"
    rows = sql.execute(statement, (now, now + _AHEAD)).fetchall()
    return [(row[0], row[1]) for row in rows]


def fail_abandoned(
    sql: Sql, response_id: str, now: float, error: dict[str, Any], live: Sequence[EventRow] | None, close: CloseOpen
) -> EventRow | None:
    """End an abandoned response as failed, or as cancelled if that was requested. `live` is its log if the database does not
    have it. Returns the last events; None if the response has ended otherwise."""
    row = sql.execute(
        "SELECT head, tail, input_end, tenant, cancelled FROM responses WHERE id = ? AND (alive_until < ? OR alive_until > ?)",
        (response_id, now, now + _AHEAD),
    ).fetchone()
    if row is None:
        return None
    head, tail, input_end, tenant, cancelled = row
    for piece in live or ():
        append_events(sql, response_id, piece)
    log = events(sql, response_id, -1)
    done = [_item_of(line) for piece in log for line in piece.data.split(b"\n") if line.startswith(_DONE)]
    response: dict[str, Any] = msgspec.json.decode(head + tail)
    response |= {"status": "failed", "error": CANCELLED if cancelled else error, "output": []}
    new_head, new_tail = _split(response)
    begin = log[-1].next if log else 0
    closing, cut = close(b"".join(piece.data for piece in log), begin)
    done += cut
    number = begin + len(closing)
    text = f'{{"type":"response.failed","sequence_number":{number},"response":{new_head}{",".join(done)}{new_tail}}}'
    failed = f"event: response.failed\ndata: {text}\n\n".encode()
    last = EventRow(begin, number + 1, b"".join([*closing, failed]))
    append_events(sql, response_id, last)
    if cancelled:
        new_head, new_tail = _split(response | {"status": "cancelled", "error": None})
    output_end = histories.append(sql, tenant, input_end, done)
    sql.execute(
        "UPDATE responses SET status = ?, head = ?, tail = ?, output_end = ?, worker = NULL, alive_until = NULL WHERE id = ?",
        ("cancelled" if cancelled else "failed", new_head, new_tail, output_end, response_id),
    )
    return last


_DONE = b'data: {"type":"response.output_item.done"'


def _item_of(line: bytes) -> str:
    """Return the item of an `output_item.done`, byte for byte."""
    return bytes(msgspec.json.decode(line[6:], type=_ItemDone).item).decode()


class _ItemDone(msgspec.Struct):
    item: msgspec.Raw


def _split(response: dict[str, Any]) -> tuple[str, str]:
    text = msgspec.json.encode(response).decode()
    head, mark, tail = text.partition('"output":[')
    return head + mark, tail


def _ends(sql: Sql, record: Record) -> tuple[int, int, int]:
    """Return the places before the input, of its last item, and of the last item of the output."""
    context = record.context
    if not histories.exists(sql, context):
        context = histories.append(sql, record.tenant, 0, record.history)
    input_end = histories.append(sql, record.tenant, context, record.input)
    return context, input_end, histories.append(sql, record.tenant, input_end, record.output)


def _continue_conversation(sql: Sql, record: Record, end: int, expires_at: float) -> None:
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
    for end in reversed(ends):
        histories.prune(sql, end)
