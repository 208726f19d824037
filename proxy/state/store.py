"""The store: one small interface over the tables, asynchronous; every call is one transaction.

`tenant` says whose something is: what belongs to another is not there. Every method raises `StoreUnavailable` where the
database cannot be read or written.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from proxy.state import chains, conversations, responses
from proxy.state.database import Database, Sql, StoreUnavailable
from proxy.state.records import Conversation, EventRow, NewItem, Page, PageOrder, Place, Record, Running, Stored

#: Rows that one round of the clean-up takes, so that others get their turn in between.
_BATCH = 100


#: How long the log of a stream is kept that was not asked for in the background, in seconds.
_LOG_KEPT = 3600.0


class Store:
    """Responses, conversations and event logs. Times are Unix times in seconds."""

    def __init__(self, database: Database, retention: float, clock: Callable[[], float]) -> None:
        """`retention`: how long a response is kept, in seconds."""
        self._database = database
        self._retention = retention
        self._clock = clock

    async def open(self) -> None:
        """Connect, and bring the schema up to date. Raises `StoreUnavailable`."""
        try:
            await self._database.open()
        except StoreUnavailable:
            await self._database.close()
            raise

    async def close(self) -> None:
        """Disconnect."""
        await self._database.close()

    # ---- responses --------------------------------------------------------------------------------------------------

    async def save(self, record: Record, running: Running | None = None, last: EventRow | None = None) -> bool:
        """Write a response: once, or in the background twice, when it begins (`running`) and when it has ended, together
        with its last events. False if it had ended otherwise, or was deleted: then nothing was written."""
        expires_at = record.created_at + self._retention

        def work(sql: Sql) -> bool:
            if last is not None and running is None:
                responses.append_events(sql, record.id, last)
            saved = responses.save(sql, record, expires_at, running)
            if last is not None and running is not None:
                responses.append_events(sql, record.id, last)
            return saved

        return await self._database.run(work)

    async def response(self, tenant: str, response_id: str) -> Stored | None:
        """A response."""
        return await self._database.run(lambda sql: responses.get(sql, tenant, response_id))

    async def delete_response(self, tenant: str, response_id: str) -> bool:
        """Take a response away. False if there is none of this id."""
        return await self._database.run(lambda sql: responses.delete(sql, tenant, response_id))

    # ---- histories --------------------------------------------------------------------------------------------------

    async def history(self, end: Place) -> list[dict[str, Any]]:
        """The items up to a place."""
        return await self._database.run(lambda sql: chains.values(sql, end))

    async def page(self, end: Place, order: PageOrder, limit: int, after: str | None) -> Page | None:
        """A page of the items up to a place; None if `after` names none of them."""
        return await self._database.run(lambda sql: chains.page(sql, end, order, limit, after))

    async def item(self, end: Place, item_id: str) -> dict[str, Any] | None:
        """One of the items up to a place."""
        return await self._database.run(lambda sql: chains.item(sql, end, item_id))

    async def items(self, tenant: str, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Items by id, wherever they stand."""
        return await self._database.run(lambda sql: chains.find(sql, tenant, ids))

    # ---- running responses ------------------------------------------------------------------------------------------

    async def append_events(self, response_id: str, row: EventRow) -> None:
        """Write the next piece of a stream."""
        await self._database.run(lambda sql: responses.append_events(sql, response_id, row))

    async def events(self, response_id: str, after: int) -> list[EventRow]:
        """The pieces of a stream that hold events with numbers above `after`."""
        return await self._database.run(lambda sql: responses.events(sql, response_id, after))

    async def cancel(self, tenant: str, response_id: str) -> None:
        """Ask whoever runs the response to end it."""
        await self._database.run(lambda sql: responses.cancel(sql, tenant, response_id))

    async def is_active(self, tenant: str, response_id: str) -> bool | None:
        """Whether a response still runs; None if there is none of this id."""
        return await self._database.run(lambda sql: responses.is_active(sql, tenant, response_id))

    async def still_alive(self, ids: Iterable[str], until: float) -> set[str]:
        """A sign of life of a worker for what it runs. Returns the responses that it is to go on with."""
        return await self._database.run(lambda sql: responses.still_alive(sql, ids, until))

    async def fail_abandoned(self, code: str, message: str) -> list[str]:
        """End as failed what was run by workers that are dead. Returns the ids."""
        return await self._database.run(lambda sql: responses.fail_abandoned(sql, self._clock(), code, message))

    # ---- conversations ----------------------------------------------------------------------------------------------

    async def create_conversation(self, tenant: str, metadata: dict[str, Any], items: Sequence[NewItem]) -> Conversation:
        """Begin a conversation."""
        now = self._clock()
        conversation = Conversation(f"conv_{secrets.token_hex(16)}", now, metadata, 0)
        await self._database.run(lambda sql: conversations.create(sql, tenant, conversation, items, now + self._retention))
        return conversation

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """A conversation."""
        return await self._database.run(lambda sql: conversations.get(sql, tenant, conversation_id))

    async def update_conversation(self, tenant: str, conversation_id: str, metadata: dict[str, Any]) -> Conversation | None:
        """Replace its metadata. None if there is none of this id."""
        return await self._database.run(lambda sql: conversations.update(sql, tenant, conversation_id, metadata))

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Take a conversation away. False if there is none of this id."""
        return await self._database.run(lambda sql: conversations.delete(sql, tenant, conversation_id))

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[NewItem]) -> Place | None:
        """Add items to a conversation. Returns the place of the last one; None if there is no such conversation."""
        expires_at = self._clock() + self._retention
        return await self._database.run(lambda sql: conversations.add(sql, tenant, conversation_id, items, expires_at))

    async def remove_item(self, tenant: str, conversation_id: str, item_id: str) -> Conversation | None:
        """Take an item out of a conversation. None if there is no such conversation or item."""
        expires_at = self._clock() + self._retention
        return await self._database.run(lambda sql: conversations.remove(sql, tenant, conversation_id, item_id, expires_at))

    # ---- upkeep -----------------------------------------------------------------------------------------------------

    async def clean_up(self) -> int:
        """Take away what is older than the retention, and the logs of streams that nobody will take up any more. Returns how
        many responses and conversations went."""
        now, total = self._clock(), 0
        await self._database.run(lambda sql: responses.delete_logs(sql, now - _LOG_KEPT))
        while removed := await self._database.run(lambda sql: responses.delete_expired(sql, now, _BATCH)):
            total += removed
        while removed := await self._database.run(lambda sql: conversations.delete_expired(sql, now, _BATCH)):
            total += removed
        return total

    async def secret(self, name: str) -> bytes:
        """A key of 32 random bytes, made when first asked for and the same ever after."""

        def work(sql: Sql) -> bytes:
            fresh = secrets.token_bytes(32)
            sql.execute("INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, fresh))
            return bytes(sql.execute("SELECT value FROM secrets WHERE name = ?", (name,)).fetchone()[0])

        return await self._database.run(work)
