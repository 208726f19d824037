"""The responses that wait: accepted into the store, looked at once a second, and begun by one of the processes that share it.

A process that is about to begin a response leases it, prepares it, and claims it with its first write: what was cancelled,
deleted or begun elsewhere meanwhile is dropped. A process that dies before that leaves it waiting; afterwards it is a
background response like any other."""

from __future__ import annotations

import asyncio
import time
import zlib
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Literal

from responses_gateway.backend.idle import load_of
from responses_gateway.backend.pool_options import Share
from responses_gateway.ended_tasks import end_tasks, keep_going, wait_at_most
from responses_gateway.request import Loss
from responses_gateway.request.parameters.background_options import LONG_WINDOWS, long_window
from responses_gateway.server.features.completion_windows.schedule import ModelSchedule
from responses_gateway.server.generation.background.response import end_lost
from responses_gateway.server.generation.background.runner import Background, detached_record, new_response
from responses_gateway.server.generation.generation import shutting_down
from responses_gateway.server.generation.in_flight import State
from responses_gateway.server.generation.preparation.context import started_record
from responses_gateway.server.generation.preparation.kept_response import KeptResponse, UnreadableResponse, read_kept
from responses_gateway.server.generation.preparation.prepare import PreparedRequest
from responses_gateway.server.generation.request_log.request_log import RequestLog
from responses_gateway.server.generation.responses import Responses
from responses_gateway.settings import Settings
from responses_gateway.state import EventRow, StoreUnavailable
from responses_gateway.state.waiting import Due, Held, NewWaiting, Waiting
from responses_gateway.stream.translator import Translator
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import Counter, Gauge
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.requests import parse_request

_NO_KEY = "begins at once: without seal_key, a client's key for the backend is not kept"
_KEY_NOT_KEPT = Loss("parameter", "background_options", "adapted", _NO_KEY)
# Responses of a key that may wait, because one key must not fill the table that all share.
MOST_WAITING = 10_000
# Bytes that the requests of a key may have which wait, and which part of a limited store, because they are
# not deleted to make room.
MOST_BYTES = 1024**3
_PART_OF_STORE = 10
# Seconds between two looks at what waits, and where nothing does.
INTERVAL = 1.0
QUIET_INTERVAL = 5.0
# For how long a response that is about to begin is left alone by others, and until it is tried again where that failed.
_LEASE = 120.0
_RETRY = 15.0

Reason = Literal["idle", "deadline"]
WAITING = Gauge(
    "waiting_responses",
    "Background responses that wait for their completion window, in the store that all gateways share.",
    ("window",),
    together="livemax",
)
OLDEST = Gauge(
    "waiting_oldest_seconds", "How long the oldest waiting background response has waited.", ("window",), together="livemax"
)
BEGUN = Counter(
    "waiting_begun_total",
    "Waiting responses that began, because backends were idle or because of their deadline.",
    ("window", "reason"),
)
MISSED = Counter("missed_windows_total", "Background responses that ended after their completion window.", ("window",))
WINDOW_METRICS = (WAITING, OLDEST, BEGUN, MISSED)


class CompletionWindows:
    """Lets responses wait, and begins them; one for each process. Create it inside the running event loop."""

    def __init__(self, responses: Responses, background: Background, share: Share) -> None:
        """`share`: of this process among the workers."""
        self.table = background.store.waiting
        self._responses = responses
        self._background = background
        self._metrics = responses.metrics
        self._share = share
        self._schedules: dict[str, ModelSchedule] = {}  # by model
        self._beginning: dict[str, asyncio.Task[None]] = {}  # by response
        self._came = asyncio.Event()
        self._task = asyncio.create_task(keep_going(self._keep_up, responses.metrics.report))

    async def close(self) -> None:
        """Stop; what waits is begun by another process, or the next one."""
        await end_tasks(self._task, *self._beginning.values())
        for name in self._beginning:  # leased, and not begun with
            await self._try_later(name, 0.0)

    # ---- accepting ---------------------------------------------------------------------------------------------------

    async def postpone(
        self, prepared: PreparedRequest, translator: Translator, log: RequestLog, settings: Settings
    ) -> str | Loss | None:
        """See `Postpone`: let a response wait whose request names a window."""
        window = long_window(prepared.context.request)
        if window is None or "background_options" in settings.forward:
            return None
        if prepared.caller.sealed_key is None:
            log.losses([_KEY_NOT_KEPT])
            return _KEY_NOT_KEPT
        snapshot = await self._accept(prepared, translator, settings, window)
        log.facts.handed_over = True
        logs.logger().info("response waits", extra=logs.fields(response_id=translator.response_id, window=window))
        self._came.set()
        return snapshot

    async def _accept(self, prepared: PreparedRequest, translator: Translator, settings: Settings, window: str) -> str:
        """Store a response that waits; return it as it stands. Raise `ApiError` if it may not wait, `StoreUnavailable`."""
        caller = prepared.caller
        record = detached_record(prepared)
        request = prepared.context.request
        self._responses.pool.models.serving(request.model)
        most = _most(settings)
        held = await self.table.held(caller.tenant)
        if held.number >= most.number:
            raise _full(held, most)
        row = EventRow(0, 0, translator.queue())
        row = row._replace(next=translator.writer.next_number)
        snapshot = translator.response.json()
        now = time.time()
        try:
            kept = prepared.kept(translator.created).encoded()
        except ValueError:
            raise invalid_request("'input' has half a surrogate pair.", "input", "invalid_value") from None
        data = await asyncio.to_thread(zlib.compress, kept, 1)  # because it may wait for a day, with ten thousand others
        continuation = (request.background_options or {}).get("continuation_id")
        new = NewWaiting(caller.tenant, request.model, window, continuation, now, now + LONG_WINDOWS[window], data)
        await self._background.announce(record.id)
        record = replace(started_record(record, translator), worker="")
        refused = await asyncio.shield(self.table.add(record, row, new, most))
        if refused is not None:
            raise _full(refused, most)
        return snapshot

    # ---- beginning ---------------------------------------------------------------------------------------------------

    async def _keep_up(self) -> None:
        while True:
            interval = INTERVAL
            self._came.clear()
            with suppress(StoreUnavailable):  # `Background` logs outages
                interval = INTERVAL if await self.look() else QUIET_INTERVAL
            if interval == INTERVAL:
                await asyncio.sleep(interval)
            else:
                await wait_at_most(self._came, interval)

    async def look(self) -> bool:
        """Begin what may begin now. Return whether anything waits. Raise `StoreUnavailable`."""
        due = await self.table.due()
        now = time.time()
        self._show(due, now)
        if due and self._responses.in_flight.state is State.SERVING:
            await self._responses.pool.watch.identified()
            for model, of_model in groupby(sorted(due, key=attrgetter("model")), key=attrgetter("model")):
                await self._look_at(model, sorted(of_model, key=attrgetter("deadline")), now)
        self._schedules = {
            model: schedule
            for model, schedule in self._schedules.items()
            if schedule.running or any(each.model == model for each in due)
        }
        return bool(due)

    async def _look_at(self, model: str, due: list[Due], now: float) -> None:
        settings = self._responses.live.current.settings
        load = await load_of(self._responses.pool, model, self._share.part(settings.idle_requests))
        schedule = self._schedules.setdefault(model, ModelSchedule())
        places = schedule.places(load, due, now)
        if not places.any:
            return
        reason: Reason = "deadline" if places.pressed >= places.any else "idle"
        for waiting in schedule.choose(await self.table.candidates(model, places.any), places):
            if waiting.response_id in self._beginning:
                continue
            data = await self._leased(waiting.response_id)
            if data is not None:
                schedule.begun(waiting.tenant)
                self._beginning[waiting.response_id] = asyncio.create_task(self._begin(schedule, waiting, data, reason))

    async def _leased(self, name: str) -> bytes | None:
        leasing = asyncio.ensure_future(self.table.lease(name, _LEASE))
        try:
            return await asyncio.shield(leasing)
        except asyncio.CancelledError:  # this process stops: another one is not to wait until the lease ends
            if await leasing is not None:
                await self._try_later(name, 0.0)
            raise

    async def _begin(self, schedule: ModelSchedule, waiting: Waiting, data: bytes, reason: Reason) -> None:
        running: asyncio.Task[None] | None = None
        name = waiting.response_id
        try:
            running = await self._started(read_kept(await _unpacked(data)))
        except UnreadableResponse as problem:
            await self._fail(name, f"The request that waited cannot be read: {problem}.")
        except ApiError as error:
            if (error.status >= 500 or error.status == 429) and time.time() < waiting.deadline:
                await self._try_later(name)
            else:
                await self._fail(name, error.message)
        except StoreUnavailable:
            await self._try_later(name)
        except asyncio.CancelledError:  # this process stops
            await self._try_later(name, 0.0)
            raise
        except Exception as defect:  # the response has to end whatever went wrong
            self._metrics.report(defect, response_id=name)
            await self._fail(name, "The gateway failed. This is a defect: please report it.")
        finally:
            del self._beginning[name]
            if running is None:
                schedule.ended(waiting.tenant, None)
        if running is not None:
            self._metrics.count(BEGUN, waiting.window, reason)
            waited = round(time.time() - waiting.accepted_at)
            fields = logs.fields(response_id=name, window=waiting.window, reason=reason, seconds=waited)
            logs.logger().info("response has waited", extra=fields)
            running.add_done_callback(partial(self._ended, schedule, waiting, time.monotonic()))

    async def _started(self, kept: KeptResponse) -> asyncio.Task[None] | None:
        """Begin a response. Return what runs it to its end; None if it waits no more. Raise `ApiError`, `StoreUnavailable`."""
        responses = self._responses
        request = parse_request(kept.request)
        creation = responses.reopen(kept)
        starting: asyncio.Future[asyncio.Task[None] | None] | None = None
        task = None
        try:
            await creation.prepare(request, kept=kept)
            background = self._background
            response = new_response(background, creation)
            generation = creation.start(response)
            if responses.in_flight.state is not State.SERVING:
                raise shutting_down()
            starting = asyncio.ensure_future(background.start_waited(response, creation, generation))
            task = await asyncio.shield(starting)
        finally:
            if starting is not None and not starting.done():  # this process stops: what is being written is not to be lost
                task = await starting
            if task is None:
                creation.log.facts.handed_over = True
                creation.end()
        return task

    def _ended(self, schedule: ModelSchedule, waiting: Waiting, began: float, _task: asyncio.Task[None]) -> None:
        now = time.time()
        schedule.ended(waiting.tenant, time.monotonic() - began)  # the clock may have been set back meanwhile
        if now > waiting.deadline:
            self._metrics.count(MISSED, waiting.window)
            fields = logs.fields(response_id=waiting.response_id, window=waiting.window, seconds=round(now - waiting.deadline))
            logs.logger().warning("window missed", extra=fields)

    async def _try_later(self, name: str, seconds: float = _RETRY) -> None:
        with suppress(StoreUnavailable):  # the lease ends by itself
            await self.table.try_later(name, seconds)

    async def _fail(self, name: str, message: str) -> None:
        with suppress(StoreUnavailable):  # it is tried again when the lease has ended
            if await self.table.fail(name, partial(end_lost, message=message)):
                logs.logger().warning("response could not begin", extra=logs.fields(response_id=name, reason=message))

    def _show(self, due: list[Due], now: float) -> None:
        for window in LONG_WINDOWS:
            of_window = [each for each in due if each.window == window]
            oldest = min((each.accepted_at for each in of_window), default=now)
            self._metrics.set(WAITING, sum(each.number for each in of_window), window)
            self._metrics.set(OLDEST, max(0.0, now - oldest), window)
            self._metrics.count(MISSED, window, amount=0)  # because an alert does not see the first one of a new series


async def _unpacked(data: bytes) -> bytes:
    try:
        return await asyncio.to_thread(zlib.decompress, data)
    except zlib.error as error:
        raise UnreadableResponse(str(error)) from None


def _most(settings: Settings) -> Held:
    """Return what a key may have waiting."""
    limit = settings.store_max_bytes
    size = MOST_BYTES if limit is None else min(MOST_BYTES, limit // _PART_OF_STORE)
    return Held(MOST_WAITING, size)


def _full(held: Held, most: Held) -> ApiError:
    """Return the error for a key of which enough responses wait."""
    message = (
        f"{held.number} responses of this key wait for their completion window; {most.number} may, of {most.size} bytes. "
        "Send this one later, cancel one that waits, or set 'background_options.completion_window' to 'soonest'."
    )
    return ApiError(429, message, type="rate_limit_error", code="rate_limit_exceeded", retry_after=60.0)
