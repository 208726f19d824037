"""Responses that wait for their completion window, in the store: shown and cancelled like any other, but run by nobody until
one process begins them. Every method is one transaction, and raises `StoreUnavailable`."""

from __future__ import annotations

import time
from collections.abc import Callable

from responses_gateway.state import journals, responses, waiting_rows
from responses_gateway.state.interfaces import Sql
from responses_gateway.state.records import EventRow, ResponseRecord, Running
from responses_gateway.state.store import Store
from responses_gateway.state.waiting_rows import Due, Held, NewWaiting, Waiting

# The worker of a response that nobody runs yet.
_NOBODY = Running("", None)


class WaitingTable:
    """The waiting responses of a store."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns the Unix time in seconds."""
        self._store = store
        self._database = store.database
        self._clock = clock

    async def held(self, tenant: str) -> Held:
        """Return what a tenant has waiting."""
        return await self._database.run(lambda sql: waiting_rows.held(sql, tenant))

    async def add(self, record: ResponseRecord, row: EventRow, new: NewWaiting, most: Held) -> Held | None:
        """Write a response that waits, with its first events. Return what its tenant has waiting if that is `most` already, or
        would be more bytes: then nothing was written."""
        expires_at = self._store.expiry(new.deadline)

        def work(sql: Sql) -> Held | None:
            held = waiting_rows.held(sql, new.tenant)
            if held.number >= most.number or held.size + len(new.request) > most.size:
                return held
            responses.save(sql, record, expires_at, _NOBODY)
            responses.append_events(sql, record.id, row, record.repeated, _NOBODY.worker)
            waiting_rows.add(sql, record.id, new)
            return None

        return await self._database.run(work)

    async def due(self) -> list[Due]:
        """Return all that waits, counted, the first deadlines first."""
        return await self._database.run(waiting_rows.due)

    async def candidates(self, model: str, each: int) -> list[Waiting]:
        """Return those of a model that may begin next: the first `each` of every tenant, and those with the first deadlines."""
        now = self._clock()
        return await self._database.run(lambda sql: waiting_rows.candidates(sql, model, now, each))

    async def lease(self, response_id: str, seconds: float) -> bytes | None:
        """Have others leave a response alone for so long. Return what its start needs; None if somebody else has it, or it
        waits no longer."""
        now = self._clock()
        return await self._database.run(lambda sql: waiting_rows.lease(sql, response_id, now, now + seconds))

    async def try_later(self, response_id: str, seconds: float) -> None:
        """Have a response that could not begin wait for at least so long."""
        until = self._clock() + seconds
        await self._database.run(lambda sql: waiting_rows.lease_again(sql, response_id, until))

    async def begin(self, record: ResponseRecord, running: Running, row: EventRow) -> bool:
        """Have a worker run a response; `row` has its first events, perhaps written again. Return False if it waits no
        longer."""
        expires_at = self._store.expiry(self._clock())

        def work(sql: Sql) -> bool:
            repeated = responses.begin_waited(sql, record.id, expires_at, running)
            if repeated is None:
                return False
            if running.journal is not None:
                journals.begin(sql, record.id, running.journal)
            return responses.append_events(sql, record.id, row, repeated, running.worker)

        return await self._store.begin_logged(record.id, row, work)

    async def fail(self, response_id: str, end: responses.EndAbandoned) -> bool:
        """End a response that cannot begin as `end` says. Return False if it waits no longer."""
        now = self._clock()
        return await self._database.run(lambda sql: responses.end_waiting(sql, response_id, now, end))

    async def cancel(self, tenant: str, response_id: str, end: responses.EndAbandoned) -> bool:
        """End a response because its client asked for that. Return False if it waits no longer, or is another tenant's."""
        now = self._clock()

        def work(sql: Sql) -> bool:
            return responses.cancel(sql, tenant, response_id) and responses.end_waiting(sql, response_id, now, end)

        return await self._database.run(work)
