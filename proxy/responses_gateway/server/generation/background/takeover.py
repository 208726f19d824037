"""A response whose process died is resumed in this one: the same response, the next sequence number."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from responses_gateway.ended_tasks import becomes_true
from responses_gateway.probing.autoconfiguration import Autoconfiguration
from responses_gateway.server.generation.preparation.kept_response import UnreadableResponse, read_journal, read_kept
from responses_gateway.server.generation.responses import Creation, Responses
from responses_gateway.server.generation.upstream.continuation import CannotContinue
from responses_gateway.state import EventsUnavailable, Orphan, StoreUnavailable
from responses_gateway.state.running import RunningTable
from responses_gateway.stream.tape import Call, Unplayable
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.requests import parse_request

# Seconds to wait for what was started together with the gateway: a backend that can continue an answer, and what is to be
# known of it; and for a log of running responses that cannot be reached.
TIMEOUT = 60.0
RETRY = 0.5  # seconds until the store is tried again when it failed
SLICE = 0.01  # seconds for which calls are repeated before other streams get their turn


async def resume(responses: Responses, autoconfiguration: Autoconfiguration, table: RunningTable, orphan: Orphan) -> Creation:
    """Repeat what happened in another process, however long the store may be unavailable; return the creation, whose translator
    has the state of the other one. Raise `CannotContinue`."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + TIMEOUT
    while True:
        try:
            return await _repeat(responses, autoconfiguration, await table.adopt(orphan))
        except EventsUnavailable:
            if clock() >= deadline:
                raise CannotContinue("events_lost") from None
        except StoreUnavailable:
            pass  # as long as it is unavailable, the response could not be ended either
        await asyncio.sleep(RETRY)


async def _repeat(responses: Responses, autoconfiguration: Autoconfiguration, orphan: Orphan) -> Creation:
    """Do as `resume` with an orphan that has all of its events. Raise `StoreUnavailable`, too."""
    if not orphan.rows:
        raise CannotContinue("events_lost")
    try:
        kept = read_kept(orphan.kept)
        calls = await asyncio.to_thread(read_journal, [row.journal for row in orphan.rows])
        request = parse_request(kept.request)
    except (UnreadableResponse, ApiError):
        raise CannotContinue("unreadable") from None
    if kept.beginning is None:
        raise CannotContinue("unreadable")
    await becomes_true(lambda: autoconfiguration.settled, TIMEOUT)
    if not await becomes_true(lambda: bool(responses.pool.partners(request.model, alone=True, begun=True).members), TIMEOUT):
        raise CannotContinue("no_backend")
    try:
        creation = responses.reopen(kept)
    except UnreadableResponse:
        raise CannotContinue("unreadable") from None
    try:
        try:
            await creation.prepare(request, kept=kept)
        except ApiError:
            raise CannotContinue("request_differs") from None
        if not creation.prepared.begins_like(kept.beginning):
            raise CannotContinue("request_differs")
        events = await _repeated(creation, calls)
        if events != b"".join(row.data for row in orphan.rows):
            raise CannotContinue("events_differ")
        creation.log.sent(events)
    except BaseException as error:
        creation.end(error)
        raise
    return creation


async def _repeated(creation: Creation, calls: Sequence[Call]) -> bytes:
    """Make the calls of the first gateway again; return their events. Other streams get their turn meanwhile."""
    clock = asyncio.get_running_loop().time
    events = bytearray()
    pause_at = clock() + SLICE
    try:
        for bytes_of_call in creation.play(calls):
            events += bytes_of_call
            if clock() >= pause_at:
                await asyncio.sleep(0)
                pause_at = clock() + SLICE
    except Unplayable:
        raise CannotContinue("events_differ") from None
    return bytes(events)
