"""A response on its way into the store, from its translation."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from proxy.server.generation.context import Footing, own_items
from proxy.state import Record, Store, StoreUnavailable
from proxy.stream.translator import Translator
from proxy.telemetry import logs
from proxy.wire.requests import ResponsesRequest

_OUTPUT = '"output":['
_STORED = ',"store":true,"background":'
_NOT_STORED = ',"store":false,"background":'


def new_record(translator: Translator, request: ResponsesRequest, footing: Footing, tenant: str) -> Record:
    """What is known when the response begins; `ended` adds the rest."""
    return Record(
        id=translator.response_id,
        tenant=tenant,
        created_at=time.time(),
        status=translator.status,
        head="",
        tail="",
        context=footing.place,
        history=footing.history,
        input=own_items(request, footing),
        conversation=footing.conversation,
        background=bool(request.background),
        detached=bool(request.background),
    )


def begun(record: Record, translator: Translator) -> Record:
    """The record of a response that has only begun, from its first snapshot."""
    head, tail = _around(translator.first_json, [])
    return replace(record, status=translator.status, head=head, tail=tail)


def ended(record: Record, translator: Translator) -> Record:
    """The record of the response that was streamed: the very text of its items, and what stands around them."""
    output = translator.output
    head, tail = _around(translator.response_json, output)
    return replace(record, status=translator.status, head=head, tail=tail, output=output)


async def kept(store: Store | None, record: Record | None, translator: Translator) -> bool:
    """Store the response that was streamed, before the client is told that it is stored. False if that failed: the log says
    why, and the client gets its terminal event all the same. Without a record there is nothing to be stored."""
    if store is None or record is None:
        return True
    try:
        await asyncio.shield(store.save(ended(record, translator)))
    except Exception as error:  # nothing may stand between the client and its terminal event
        defect = None if isinstance(error, StoreUnavailable) else error
        logs.logger().error("not stored", exc_info=defect, extra=logs.fields(response_id=record.id, error=str(error)))
        return False
    return True


def as_cancelled(record: Record) -> Record:
    """The same with status `cancelled`, which no event has."""
    head = record.head.replace('"status":"failed"', '"status":"cancelled"', 1)
    before, _, after = head.partition(',"error":')
    rest = after[after.index(',"incomplete_details":') :]
    return replace(record, status="cancelled", head=f'{before},"error":null{rest}')


def not_stored(text: str) -> str:
    """The response, or an event with it, when it could not be stored after all: nobody is told what is not true."""
    before, mark, after = text.rpartition(_STORED)
    return before + _NOT_STORED + after if mark else text


def _around(response: str, output: list[str]) -> tuple[str, str]:
    """The text before and behind the items. In a string the quotes would be escaped, so the first mark is the member."""
    head, mark, rest = response.partition(_OUTPUT)
    items = ",".join(output)
    if not rest.startswith(items):
        raise ValueError("the final response is not made of the items that were streamed")
    return head + mark, rest[len(items) :]
