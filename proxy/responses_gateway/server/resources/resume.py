"""A stored stream, sent again from any event on, and followed while it still grows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from aiohttp import web

from responses_gateway.ended_tasks import wait_at_most
from responses_gateway.server.generation.background.response import BackgroundResponse
from responses_gateway.server.generation.preparation.prepare import reasoning_event
from responses_gateway.server.http.event_stream import EventStream
from responses_gateway.server.http.exchange import abort
from responses_gateway.settings import Settings
from responses_gateway.state import EventRow, Store, StoreUnavailable
from responses_gateway.stream.stored import replay
from responses_gateway.wire.sse import COMMENT, DONE

_POLL_INTERVAL = 0.25  # how often the log of a response that runs in another process is read, in seconds
_WAIT = 1.0  # how long one read lasts where the log notifies of more by itself

_COMMENT = COMMENT.encode()
_DONE = DONE.encode()
_TERMINALS = tuple(b"event: response.%b\n" % status for status in (b"completed", b"incomplete", b"failed"))


class Follower:
    """Sends the stored events of a response to one client, up to the terminal one.

    While the response runs in this process, its events are sent from memory as soon as they are stored. A client that is slower
    gets what it has missed from memory or, later, from the store. A response of another process is read from the store."""

    def __init__(
        self,
        request: web.Request,
        store: Store,
        tenant: str,
        response_id: str,
        after: int = -1,
        *,
        response: BackgroundResponse | None,
        active: bool,
        settings: Settings,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Begin after event number `after`. `response`: it runs in this process. `active`: it has not ended."""
        self._request = request
        self._store = store
        self._tenant = tenant
        self._id = response_id
        self._number = after + 1  # of the next event
        self._response = response
        self._active = active
        self._reasoning_event = reasoning_event(settings)
        self._keep_alive = settings.keepalive_comment
        self._deleted = False
        self._ended = False  # the last event was sent
        self._complete = False  # that was the terminal event
        self._clock = asyncio.get_running_loop().time
        self._sent_at = self._clock()
        self._awake = asyncio.Event()
        self._stream = EventStream(request, _on_slow, self._awake.set)  # not `wake`: the stream would refer to this
        self._stream.response.headers.update(headers or {})

    def stored(self, row: EventRow) -> None:
        """Send events that were stored just now, unless some before them are missing or the client is slow."""
        if row.first == self._number and not self._stream.slow:
            self._stream.write(row.data)
            self._number = row.next
            self._sent_at = self._clock()

    def wake(self) -> None:
        """Look for more events: no more come from memory."""
        self._awake.set()

    async def run(self) -> web.StreamResponse:
        """Send all events. Raise `StoreUnavailable` if not even the first could be read."""
        first = await self._read(0.0)
        response = self._response
        try:
            await self._stream.prepare()
            self._send(first)
            if not first and not self._ended:
                self._stream.write(_COMMENT)  # with it the head is sent
            await self._stream.flush()
            if response is not None:
                response.followers.add(self)
            while not self._ended:
                if response is not None and response.handed_over and response.finished:
                    abort(self._request)  # so that the client asks another gateway for the rest
                    return self._stream.response
                await self._step()
            await self._stream.finish(b"" if self._deleted else await self._end())  # what was deleted has no end
        finally:
            if response is not None:
                response.followers.discard(self)
            self._stream.close()
        return self._stream.response

    async def _step(self) -> None:
        """Send the next events that there are."""
        self._awake.clear()
        if self._stream.slow:
            await wait_at_most(self._awake, _WAIT)
            return
        within = max(0.0, self._sent_at + self._keep_alive - self._clock()) if self._keep_alive else _WAIT
        try:
            self._send(await self._read(within))
        except StoreUnavailable:  # the stream continues when the store is back
            await asyncio.sleep(_POLL_INTERVAL)
        if self._keep_alive and self._clock() - self._sent_at >= self._keep_alive:
            self._stream.write(_COMMENT)
            self._sent_at = self._clock()

    def _send(self, rows: Sequence[EventRow]) -> None:
        events = b"".join(_rest(row, self._number) for row in rows)
        if events:
            self._stream.write(events)
            self._number = rows[-1].next
            self._sent_at = self._clock()

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def _read(self, within: float) -> Sequence[EventRow]:
        """Return the next pieces; none at the end, or if none came within about so many seconds. Raise `StoreUnavailable`."""
        if self._response is not None:
            return await self._from_memory(self._response, within)
        return await self._from_store(within)

    async def _from_memory(self, response: BackgroundResponse, within: float) -> Sequence[EventRow]:
        rows = response.events_after(self._number - 1)
        if rows is None and not response.elsewhere:
            return await self._store.events.read(self._id, self._number - 1, _POLL_INTERVAL)
        if rows:
            return rows
        if response.complete:
            self._ended = True
            self._complete = True
        elif response.finished or response.elsewhere:
            self._response = None  # it was deleted, or another process sees to its end
        else:
            await wait_at_most(self._awake, within)
        return ()

    async def _from_store(self, within: float) -> Sequence[EventRow]:
        after = self._number - 1
        longest = _WAIT if self._store.events.signals else _POLL_INTERVAL
        rows = await self._store.events.read(self._id, after, min(within, longest) if self._active else 0.0)
        if self._active and (not rows or _is_terminal(rows[-1])):
            active = await self._store.responses.is_active(self._tenant, self._id)
            self._active = bool(active)
            self._deleted = active is None
            if active is False and not rows:  # now they are all there
                rows = await self._store.events.read(self._id, after)
        self._complete = self._complete or (bool(rows) and _is_terminal(rows[-1]))
        self._ended = not self._active and not rows
        return rows

    async def _end(self) -> bytes:
        """Return what follows the last event: the terminal event, too, if the events were lost."""
        while not self._complete:
            try:
                stored = await self._store.responses.get(self._tenant, self._id)
            except StoreUnavailable:
                await asyncio.sleep(_POLL_INTERVAL)
                continue
            if stored is None or stored.has_events:
                break
            return replay(stored.json, self._reasoning_event, self._number - 1)
        return _DONE


def _on_slow() -> None:
    """Do nothing: what a slow client misses is read again."""


def _is_terminal(row: EventRow) -> bool:
    """Tell whether the last event of a piece is the last of its stream."""
    return row.data.rstrip(b"\n").rpartition(b"\n\n")[2].startswith(_TERMINALS)


def _rest(row: EventRow, number: int) -> bytes:
    """Return the events of a piece from event `number` on."""
    skipped = max(0, number - row.first)
    return row.data if not skipped else row.data.split(b"\n\n", skipped)[-1]
