"""A response on its way into the store."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from proxy.server.generation.context import Context
from proxy.state import Record, Store, StoreUnavailable
from proxy.stream.translator import Translator
from proxy.telemetry import logs
from proxy.wire.requests import ResponsesRequest


def new_record(translator: Translator, request: ResponsesRequest, context: Context, tenant: str) -> Record:
    """Return what is known before the response begins; `started_record` and `final_record` add the rest."""
    items = context.input
    if context.history and not context.place:  # the history is not in the store: it came over this connection
        items = [*context.history, *items]
    return Record(
        id=translator.response_id,
        tenant=tenant,
        created_at=time.time(),
        status=translator.status,
        head="",
        tail="",
        context=context.place,
        history=context.history,
        input=items,
        conversation=context.conversation,
        background=bool(request.background),
        detached=bool(request.background),
    )


def started_record(record: Record, translator: Translator) -> Record:
    """Return the record of a response that has only begun, from its first snapshot."""
    head, tail = translator.first_around()
    return replace(record, status=translator.status, head=head, tail=tail)


def final_record(record: Record, translator: Translator, *, cancelled: bool = False) -> Record:
    """Return the record of the response as it was streamed: the very text of its items, and what stands around them. No event
    has the status `cancelled`, so a cancelled response is stored with a status that differs from its stream's."""
    status = "cancelled" if cancelled else translator.status
    head, tail = translator.around(status=status)
    return replace(record, status=status, head=head, tail=tail, output=translator.output)


async def save(store: Store, record: Record, translator: Translator) -> bool:
    """Store the response that was streamed, before the client is told that it is stored. Return False if that failed: the log
    says why, and the client gets its terminal event all the same."""
    try:
        await asyncio.shield(store.save(final_record(record, translator)))
    except Exception as error:  # nothing may keep the terminal event from the client
        defect = None if isinstance(error, StoreUnavailable) else error
        logs.logger().error("not stored", exc_info=defect, extra=logs.fields(response_id=record.id, error=str(error)))
        return False
    return True
