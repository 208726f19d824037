"""A response whose gateway is gone goes on in this one: the same response, the next sequence number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.probing.autoconfiguration import Autoconfiguration
from proxy.server.generation.continuation_request import CannotContinue
from proxy.server.generation.journal import Resumption, UnreadableJournal
from proxy.server.generation.preparation.context import Caller
from proxy.server.generation.responses import Creation, Responses
from proxy.state import EventsUnavailable, Orphan, Store, StoreUnavailable
from proxy.wire.errors import ApiError
from proxy.wire.requests import parse_request

# Seconds to wait for what was started together with the gateway: a backend that can go on with an answer, and what is to be
# known of it; and for a log of running responses that cannot be reached.
_PATIENCE = 60.0
_LOOK = 0.1
# Seconds until the store is tried again when it failed.
_RETRY = 0.5


async def begin_again(responses: Responses, autoconfiguration: Autoconfiguration, store: Store, orphan: Orphan) -> Creation:
    """Repeat what happened in another gateway, however long the store may be gone; return the creation, whose translator has
    come as far as that of the other. Raise `CannotContinue`."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + _PATIENCE
    while True:
        try:
            return await _repeat(responses, autoconfiguration, await store.adopt(orphan))
        except EventsUnavailable:
            if clock() >= deadline:
                raise CannotContinue("events_lost") from None
        except StoreUnavailable:
            pass  # as long as it is gone, the response could not be ended either
        await asyncio.sleep(_RETRY)


async def _repeat(responses: Responses, autoconfiguration: Autoconfiguration, orphan: Orphan) -> Creation:
    """Do as `begin_again` with an orphan that has all of its events. Raise `StoreUnavailable`, too."""
    if not orphan.rows:
        raise CannotContinue("events_lost")
    try:
        resumption = Resumption(orphan.id, orphan.beginning, (row.journal for row in orphan.rows))
        beginning = resumption.beginning
        request = parse_request(beginning.request)
    except (UnreadableJournal, ApiError):
        raise CannotContinue("unreadable") from None
    await _ready(lambda: autoconfiguration.settled)
    if not await _ready(lambda: responses.pool.continuations(request.model, alone=True) > 0):
        raise CannotContinue("no_backend")
    creation = responses.open(Caller(orphan.tenant, beginning.request_id, beginning.headers), lambda: None)
    try:
        try:
            await creation.prepare(request, resumption=resumption)
        except ApiError:
            raise CannotContinue("request_differs") from None
        if not creation.prepared.begins_like(beginning):
            raise CannotContinue("request_differs")
        events = resumption.repeat(creation.translator)
        if events != b"".join(row.data for row in orphan.rows):
            raise CannotContinue("events_differ")
        creation.log.sent(events)
    except BaseException as error:
        creation.end(error)
        raise
    return creation


async def _ready(condition: Callable[[], bool]) -> bool:
    """Wait a while for a condition; tell whether it holds."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + _PATIENCE
    while True:
        if condition():
            return True
        if clock() >= deadline:
            return False
        await asyncio.sleep(_LOOK)
