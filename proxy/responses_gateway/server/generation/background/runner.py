"""The responses that this process runs without a client, and those that it takes over from processes that died; and those of
connections that the store is to know while they are made.

A process renews its claim on all of these every second. Once a claim has expired, any other process (or the same one, after a
restart) takes the response over, once, if it has a journal, and ends it as failed if it has none. A process that is asked to
stop gives up its claim on what does not end in time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from responses_gateway.ended_tasks import KeptTasks, becomes_true, end_tasks, keep_going
from responses_gateway.probing.autoconfiguration import Autoconfiguration
from responses_gateway.server.generation.background.event_log import EventLog
from responses_gateway.server.generation.background.response import BackgroundResponse, end_lost
from responses_gateway.server.generation.background.takeover import resume
from responses_gateway.server.generation.generation import Generation
from responses_gateway.server.generation.in_flight import State
from responses_gateway.server.generation.preparation.context import save, started_record
from responses_gateway.server.generation.preparation.prepare import PreparedRequest
from responses_gateway.server.generation.request_log.metrics import CONTINUATIONS
from responses_gateway.server.generation.responses import Creation, Responses
from responses_gateway.server.generation.upstream.continuation import CannotContinue
from responses_gateway.state import Orphan, ResponseRecord, Running, Store, StoreUnavailable
from responses_gateway.telemetry import logs
from responses_gateway.wire.errors import invalid_request, server_error

# Seconds between two renewals of the claims, until a claim expires, and for what a store that may hang is to take at the end.
BEAT = 1.0
SILENCE = 15.0
_LAST_WRITES = 3.0

_TAKEN_AT_ONCE = 16  # responses that are prepared at the same time to be taken over


class Background:
    """Runs responses in the background; one for each process."""

    def __init__(self, store: Store, responses: Responses, autoconfiguration: Autoconfiguration) -> None:
        self.running: dict[str, BackgroundResponse] = {}  # by id
        self.taken_over: dict[str, asyncio.Task[None]] = {}  # prepares a response that was taken over, by id
        self.store = store
        self.events = EventLog(store.events, responses.metrics.report)
        self._responses = responses
        self._autoconfiguration = autoconfiguration
        self._kept: dict[str, Creation] = {}  # those of connections that the store knows, by id
        self._worker = f"worker_{secrets.token_hex(8)}"
        self._tasks: KeptTasks[Any] = KeptTasks()
        report = responses.metrics.report
        self._upkeep = asyncio.create_task(keep_going(self._keep_up, report))  # else others would take over all that runs here
        self._watching = asyncio.create_task(keep_going(partial(store.running.watch, self.cancel), report))

    async def start(self, response: BackgroundResponse, creation: Creation, generation: Generation) -> str:
        """Start a response, which ends the creation by itself; return it as it stands. Raise `StoreUnavailable`."""
        creation.detach()
        try:
            if response.record.background:  # else a client reads it as it is made
                await self.announce(response.record.id)
            snapshot = await response.begin(self._claim())
        except StoreUnavailable:
            creation.end(server_error("The store failed.", 503))
            raise
        self._start(response, generation)
        return snapshot

    async def announce(self, response_id: str) -> None:
        """Tell the features of a response that is to be stored. Raise `StoreUnavailable`."""
        for announce in self._responses.additions.announcements:
            await announce(response_id)

    async def start_waited(
        self, response: BackgroundResponse, creation: Creation, generation: Generation
    ) -> asyncio.Task[None] | None:
        """Start a response that has waited, which ends the creation by itself. Return what takes it to its end; None if it
        waits no longer. Raise `StoreUnavailable`."""
        creation.detach()
        if not await response.begin_waited(self._claim()):
            return None
        return self._start(response, generation)

    def _start(self, response: BackgroundResponse, generation: Generation) -> asyncio.Task[None]:
        self.running[response.record.id] = response
        response.task = self._tasks.begin(self._run(response, generation))
        return response.task

    @asynccontextmanager
    async def keep(self, creation: Creation) -> AsyncIterator[None]:
        """Store a response that is to begin on a connection, if it is to be stored, so that its input outlives this process:
        others end it as failed. A block that is left before the end of the response cancels it. Raise `StoreUnavailable`."""
        record = creation.prepared.record
        if record is None:
            yield
            return
        record = replace(record, detached=True, worker=self._worker)
        started = replace(started_record(record, creation.translator), status="in_progress")
        await self.store.running.begin(started, self._claim())
        creation.prepared = msgspec.structs.replace(creation.prepared, record=record)
        self._kept[record.id] = creation
        try:
            yield
        except BaseException:
            creation.cancel()
            saving = save(self.store.responses, record, creation.translator, creation.results, asyncio.timeout(None))
            self._tasks.begin(saving)
            raise
        finally:
            del self._kept[record.id]

    def cancel(self, response_id: str) -> None:
        """End a response, if this process runs it."""
        response = self.running.get(response_id)
        taken = self.taken_over.get(response_id)
        kept = self._kept.get(response_id)
        if response is not None:
            response.cancel()
        elif kept is not None:
            kept.cancel()
        elif taken is not None and not taken.cancelling():  # else it is being given up
            taken.cancel()

    async def close(self) -> None:
        """Stop. Draining has ended what still ran, so this only waits until it is written; if it is not, others will end it."""
        await self.end_upkeep()
        for response in list(self.running.values()):
            response.stop_waiting()
            response.cancel()
        await end_tasks(self._watching, *self.taken_over.values())
        await becomes_true(lambda: not self._tasks, _LAST_WRITES)
        await end_tasks(*self._tasks)
        await self.events.close()

    async def end_upkeep(self) -> None:
        """Renew no claim any more, and take nothing over."""
        await end_tasks(self._upkeep)

    async def _run(self, response: BackgroundResponse, generation: Generation) -> None:
        try:
            await response.run(generation)
        finally:
            self.running.pop(response.record.id, None)
        if response.handed_over:
            await self._release(response.record.id)

    async def _release(self, response_id: str) -> None:
        with suppress(StoreUnavailable):  # the claim expires
            await self.store.running.release(response_id, self._worker)

    async def fail_lost(self) -> None:
        """End the responses as failed whose process died, and that none can take over. Raise `StoreUnavailable`."""
        lost = await self.store.running.end_abandoned(end_lost, self._mine)
        if jump := self.store.running.database.take_jump():
            logs.logger().warning("clock was set", extra=logs.fields(seconds=round(jump)))
        for response_id in lost:
            logs.logger().warning("response lost", extra=logs.fields(response_id=response_id))

    @property
    def _mine(self) -> set[str]:
        return {*self.running, *self.taken_over, *self._kept}

    async def _keep_up(self) -> None:
        unavailable = False
        while True:
            try:
                await self.renew_claims()
                await self.take_over()
                await self.fail_lost()
                if unavailable:
                    unavailable = False
                    logs.logger().warning("store is back")
            except StoreUnavailable as error:
                if not unavailable:
                    unavailable = True
                    logs.logger().error("the store fails", extra=logs.fields(error=str(error)))
            await asyncio.sleep(BEAT)

    async def renew_claims(self) -> None:
        """Send the heartbeat of what runs here, and stop what was cancelled or runs elsewhere. Raise `StoreUnavailable`."""
        mine = self._mine
        if not mine:
            return
        claims = await self.store.running.still_alive(mine, self._claim())
        for response_id in mine - claims.alive:
            response = self.running.get(response_id)
            if response is not None and response_id in claims.elsewhere:
                response.give_up()
            else:
                self.cancel(response_id)

    def _claim(self) -> Running:
        return Running(self._worker, self.store.running.clock() + SILENCE)

    async def take_over(self) -> None:
        """Take over responses whose process died, unless this one is about to stop, too. Raise `StoreUnavailable`."""
        room = _TAKEN_AT_ONCE - len(self.taken_over)
        if room and self._responses.in_flight.state is State.SERVING:
            for orphan in await self.store.running.take_over(self._claim(), room, self._mine):
                task = asyncio.create_task(self._resume(orphan))
                self.taken_over[orphan.id] = task
                task.add_done_callback(partial(self.taken_over.pop, orphan.id))

    async def _resume(self, orphan: Orphan) -> None:
        try:
            creation = await resume(self._responses, self._autoconfiguration, self.store.running, orphan)
        except CannotContinue as reason:
            await self._give_up(orphan, str(reason))
        except asyncio.CancelledError:  # cancelled, or deleted; or this process stops
            await self._give_up(orphan, "stopped")
        except Exception as defect:  # the response has to end whatever went wrong
            self._responses.metrics.report(defect, response_id=orphan.id)
            await self._give_up(orphan, "defect")
        else:
            assert creation.prepared.record is not None
            creation.detach()
            record = replace(creation.prepared.record, detached=True, worker=self._worker)
            stored = creation.translator.writer.next_number - creation.translator.ended
            response = BackgroundResponse(self.store.running, self.events, creation, record, stored)
            generation = creation.start(response)
            generation.take_over()
            logs.logger().warning("taken over", extra=logs.fields(response_id=orphan.id, events=stored))
            self._start(response, generation)

    async def _give_up(self, orphan: Orphan, reason: str) -> None:
        """Have a response end that cannot be resumed."""
        metrics = self._responses.metrics
        metrics.count(CONTINUATIONS, "failed", reason)
        logs.logger().warning("not taken over", extra=logs.fields(response_id=orphan.id, reason=reason))
        self.store.running.forget(orphan.id)
        await self._release(orphan.id)


def detached_record(prepared: PreparedRequest) -> ResponseRecord:
    """Return the record of a response that is to run in the background. Raise `ApiError` 400 if it is not to be stored."""
    if prepared.record is None:
        message = "'background' requires stored responses: omit 'store' or set it to true."
        raise invalid_request(message, "background", "unsupported_parameter")
    return replace(prepared.record, detached=True)


def new_response(background: Background | None, creation: Creation) -> BackgroundResponse:
    """Return the response of a creation, to be started in the background. Raise `ApiError` 400 if it is not to be stored."""
    record = detached_record(creation.prepared)
    assert background is not None  # there is a store
    return BackgroundResponse(background.store.running, background.events, creation, record)
