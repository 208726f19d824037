"""Stored responses. Those that run, or wait to, are rows of the same table (see `running.py`, `waiting.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import is_

from responses_gateway.state import conversations, histories, repeated_texts
from responses_gateway.state.interfaces import Database, EventsUnavailable, LiveLog, Sql, add_row, transaction
from responses_gateway.state.records import ACTIVE, Ages, NewItem, Place, ResponseRecord, Running, Stored

# How long the log of a stream that was not requested in the background is kept, in seconds.
_LOG_KEPT = 3600.0
# The statuses with which a conversation continues with the output, too: what failed is half an answer, unless tools were run.
_CONTINUED = frozenset({"completed", "incomplete"})
# Nobody runs it, nor will: those that wait for their completion window are queued.
_HAS_ENDED = "alive_until IS NULL AND status <> 'queued'"
_COLUMNS = "id, status, head, tail, background, conversation, input_begin, input_end, output_end, repeated_end, session"
# The places before the input of a response, of its last item, and of the last item of the output.
_Ends = tuple[Place, Place, Place]
# Tables of which rows belong to a response that has not ended.
_OF_ACTIVE = ("events", "journals", "waiting")
# The tokens of a response in no rollout, and of those that it continues or that continue it, if none of them is there any more.
_TOKENS_LEFT = (
    "SELECT key FROM token_trees WHERE key IN (SELECT tree FROM model_calls WHERE response = ? UNION "
    "SELECT key FROM token_trees WHERE tenant = ? AND name = ?) AND substr(name, 1, 9) = 'response:' AND NOT EXISTS "
    "(SELECT 1 FROM model_calls JOIN responses ON responses.id = response WHERE tree = token_trees.key)"
)


@dataclass(eq=False)
class ResponseTable:
    """The table in a database. Every method raises `StoreUnavailable`. A response is kept for `retention` seconds. `live` has
    the events of running ones, if not the database."""

    database: Database
    retention: float
    live: LiveLog | None

    @transaction
    def save(self, sql: Sql, record: ResponseRecord) -> bool:
        """Write a response that has ended, in the place of what was written when it began. Return False if it had ended
        otherwise or was deleted: then nothing was written."""
        return save(sql, record, self.retention)

    @transaction
    def get(self, sql: Sql, tenant: str, response_id: str) -> Stored | None:
        """Return a response; None if there is none with this id."""
        row = sql.execute(f"SELECT {_COLUMNS} FROM responses WHERE tenant = ? AND id = ?", (tenant, response_id)).fetchone()
        if row is None:
            return None
        key, status, head, tail, background, conversation, input_begin, input_end, output_end, repeated_end, session = row
        has_events = sql.execute("SELECT 1 FROM events WHERE response = ? LIMIT 1", (key,)).fetchone() is not None
        tail = repeated_texts.restored(tail, histories.texts(sql, repeated_end))
        text = head + ",".join(histories.texts(sql, output_end, input_end)) + tail
        ends = (output_end, input_begin, input_end)
        return Stored(key, status, text, bool(background), conversation, *ends, has_events, session)

    @transaction
    def is_active(self, sql: Sql, tenant: str, response_id: str) -> bool | None:
        """Tell whether a response still runs, or waits; None if there is none with this id."""
        row = sql.execute("SELECT status FROM responses WHERE tenant = ? AND id = ?", (tenant, response_id)).fetchone()
        return None if row is None else row[0] in ACTIVE

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Delete a response, and the items that only it has. Return False if there is none with this id."""
        deleted = await self._delete(tenant, response_id)
        if deleted and self.live is not None:
            with suppress(EventsUnavailable):  # the process that runs it, if there is one, will notice
                await self.live.cancel(response_id)
                await self.live.delete(response_id)
        return deleted

    @transaction
    def _delete(self, sql: Sql, tenant: str, response_id: str) -> bool:
        statement = "DELETE FROM responses WHERE tenant = ? AND id = ? RETURNING input_end, output_end, repeated_end"
        row = sql.execute(statement, (tenant, response_id)).fetchone()
        if row is not None:
            _forget(sql, response_id, row)
            for tree in sql.execute(_TOKENS_LEFT, (response_id, tenant, f"response:{response_id}")).fetchall():
                sql.execute("DELETE FROM model_calls WHERE tree = ?", tree)
                sql.execute("DELETE FROM token_trees WHERE key = ?", tree)
        return row is not None


# ---- inside an open transaction ----------------------------------------------------------------------------------------


def insert(sql: Sql, record: ResponseRecord, expires_at: float, running: Running | None) -> _Ends:
    """Write a response, which `running` runs. Return its places."""
    input_begin, input_end, output_end = ends = _ends(sql, record)
    row = {
        "id": record.id,
        "tenant": record.tenant,
        "created_at": record.created_at,
        "expires_at": expires_at,
        "status": record.status,
        "head": record.head,
        "tail": repeated_texts.shortened(record.tail, record.repeated),
        "input_begin": input_begin,
        "input_end": input_end,
        "output_end": output_end,
        "repeated_end": histories.append_texts(sql, record.tenant, record.repeated),
        "conversation": record.conversation,
        "background": int(record.background),
        "session": record.session,
        "log_until": record.created_at + _LOG_KEPT if record.detached and not record.background else None,
    }
    if running is not None:
        row |= {"worker": running.worker, "alive_until": running.until}
    add_row(sql, "responses", row)
    return ends


def save(sql: Sql, record: ResponseRecord, retention: float) -> bool:
    """Write the end of a response. Return False if it had already ended, was deleted, or is run by another process by now."""
    expires_at = record.created_at + retention
    # What is detached was written when it began.
    ends = _update(sql, record) if record.detached else insert(sql, record, expires_at, None)
    if ends is None:
        return False
    if record.conversation is not None:
        _continue_conversation(sql, record, record.conversation, ends, expires_at)
    return True


def _update(sql: Sql, record: ResponseRecord) -> _Ends | None:
    statement = "SELECT input_end FROM responses WHERE id = ? AND status IN (?, ?) AND worker = coalesce(?, worker)"
    old = sql.execute(statement, (record.id, *ACTIVE, record.worker)).fetchone()
    if old is None:
        return None
    sql.execute("DELETE FROM journals WHERE response = ?", (record.id,))
    ends = _ends(sql, record)
    tail = repeated_texts.shortened(record.tail, record.repeated)
    sql.execute(
        "UPDATE responses SET status = ?, head = ?, tail = ?, input_begin = ?, input_end = ?, output_end = ?, "
        "worker = NULL, alive_until = NULL WHERE id = ?",
        (record.status, record.head, tail, *ends, record.id),
    )
    if old[0] != ends[1]:
        histories.prune(sql, old[0])
    return ends


def is_active(sql: Sql, response_id: str) -> bool:
    """Tell whether a response still runs, or waits."""
    statement = "SELECT 1 FROM responses WHERE id = ? AND status IN (?, ?)"
    return sql.execute(statement, (response_id, *ACTIVE)).fetchone() is not None


def wait_no_longer(sql: Sql, response_id: str) -> bool:
    """Have a response that waits be begun or ended by the caller. Return False if it does not wait."""
    return sql.execute("DELETE FROM waiting WHERE response = ?", (response_id,)).rowcount > 0


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


def delete_logs(sql: Sql, now: float, limit: int) -> int:
    """Delete the event logs of at most `limit` streams that can no longer be resumed. Return how many."""
    statement = "SELECT id FROM responses WHERE log_until < ? AND alive_until IS NULL LIMIT ?"
    rows = sql.execute(statement, (now, limit)).fetchall()
    for row in rows:
        sql.execute("DELETE FROM events WHERE response = ?", row)
        sql.execute("UPDATE responses SET log_until = NULL WHERE id = ?", row)
    return len(rows)


def ages(sql: Sql, now: float) -> Ages:
    """Return the age of the oldest response that has ended, and for how long one has been expired."""
    statement = f"SELECT created_at, expires_at FROM responses WHERE {_HAS_ENDED} ORDER BY expires_at LIMIT 1"
    row = sql.execute(statement).fetchone()
    return Ages(max(0.0, now - row[0]), max(0.0, now - row[1])) if row is not None else Ages(0.0, 0.0)


def _forget(sql: Sql, response_id: str, ends: Sequence[Place]) -> None:
    for table in _OF_ACTIVE:
        sql.execute(f"DELETE FROM {table} WHERE response = ?", (response_id,))
    for end in reversed(ends):
        histories.prune(sql, end)


def _ends(sql: Sql, record: ResponseRecord) -> _Ends:
    context = record.context
    if not histories.exists(sql, context):
        context = histories.append(sql, record.tenant, 0, record.history)
    place, items = _not_repeated(sql, record, context)
    places = [place, *histories.append_each(sql, record.tenant, place, [*items, *record.output], record.results)]
    return context, places[len(items)], places[-1]


def _not_repeated(sql: Sql, record: ResponseRecord, context: Place) -> tuple[Place, Sequence[NewItem]]:
    """Return the items that the last request of the thread did not have, and the place before them: all, if its response was
    deleted, or never written because the transaction failed."""
    items = record.input
    memory = record.memory
    if memory is None or context or record.results:  # which are kept with the items
        return context, items
    response_id, repeated = memory.last
    memory.last = (record.id, items)
    if len(repeated) > len(items) or not all(map(is_, repeated, items)):
        return 0, items
    row = sql.execute("SELECT input_end FROM responses WHERE tenant = ? AND id = ?", (record.tenant, response_id)).fetchone()
    return (0, items) if row is None else (row[0], items[len(repeated) :])


def _continue_conversation(sql: Sql, record: ResponseRecord, conversation_id: str, ends: _Ends, expires_at: float) -> None:
    conversation = conversations.get(sql, record.tenant, conversation_id)
    if conversation is None:
        return  # deleted while the response ran
    goes_on = record.status in _CONTINUED or record.tools_ran
    _, input_end, output_end = ends
    end = output_end if goes_on else input_end
    # It was continued meanwhile, unless the input is there because the same request failed before: add the items after that.
    if conversation.end not in (record.context, input_end):
        end = histories.append(sql, record.tenant, conversation.end, [*record.input, *(record.output if goes_on else ())])
    conversations.move(sql, conversation_id, end, expires_at)
