"""What one process has to show: its requests, its backends, its plots and its records. All of it is plain data for JSON."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import msgspec

from proxy.backend.pool import Pool
from proxy.probing.autoconfiguration import Autoconfiguration
from proxy.server.generation.history import History
from proxy.server.generation.replay import UnusableRecord
from proxy.server.generation.responses import Creation, Responses
from proxy.server.recording.timed import TimedRecorder
from proxy.server.window import timeline
from proxy.server.window.backends import backends, examine
from proxy.server.window.shapes import Shape
from proxy.wire.errors import ApiError

# Seconds after the last look at a request until its shape is noted no longer.
_ATTENTION = 15.0
# Steps of a time line that are sent at a time.
_STEPS = 300


class ProcessView:
    """Answers for this process, whose name begins the ids of its requests."""

    def __init__(self, responses: Responses, history: History, pool: Pool, found: Autoconfiguration) -> None:
        self.name = history.process
        self._responses = responses
        self._history = history
        self._pool = pool
        self._found = found
        self._shapes: dict[str, tuple[Shape, asyncio.TimerHandle]] = {}

    def close(self) -> None:
        """Note no shapes any more."""
        for request_id in list(self._shapes):
            self._look_away(request_id)

    # ---- all requests ------------------------------------------------------------------------------------------------

    def requests(self, seen: dict[str, int]) -> dict[str, Any]:
        """Return the requests that run, and those that ended after the last one that was seen of this process."""
        self._responses.metrics.flush()  # which adds those that have just ended
        running = [creation.snapshot().shown() for creation in self._running()]
        ended = [summary.shown() for summary in self._history.since(seen.get(self.name, 0))]
        return {"process": self.name, "last": self._history.last, "running": running, "ended": ended}

    def intervals(self) -> list[dict[str, Any]]:
        """Return the intervals of the last hour, the oldest first."""
        self._responses.metrics.flush()
        found: list[dict[str, Any]] = msgspec.to_builtins(list(self._history.intervals))
        return found

    # ---- one request -------------------------------------------------------------------------------------------------

    def request(self, request_id: str) -> dict[str, Any]:
        """Return all that is known of a request, without content. Raise `ApiError` 404."""
        creation = self._find_running(request_id)
        if creation is not None:
            return creation.snapshot().details()
        self._responses.metrics.flush()
        summary = self._history.find(request_id)
        if summary is None:
            raise ApiError(404, "This request is no longer known.", code="not_found")
        return summary.details()

    def shape(self, request_id: str, after: int) -> dict[str, Any]:
        """Return the steps behind number `after`, without content: those since somebody looked first. Raise `ApiError` 404."""
        self.request(request_id)
        creation = self._find_running(request_id)
        if creation is not None and creation.answered:
            self._look_at(request_id, creation)
        shape = self._shapes[request_id][0] if request_id in self._shapes else None
        steps = [step for step in shape.steps if step["number"] > after] if shape is not None else []
        return {"total": 0 if shape is None else shape.noted, "steps": steps}

    async def record(self, request_id: str) -> dict[str, str]:
        """Return the name and the text of a record. Raise `ApiError` 404."""
        creation = self._find_running(request_id)
        recorder = self._responses.recorder
        text: str | None = None
        name = self.request(request_id)["record"]
        if creation is not None:
            text = await asyncio.to_thread(recorder.so_far, creation.recording)
        elif name is not None:
            text = await asyncio.to_thread(recorder.read, name)
        if text is None:
            message = "This exchange was not recorded, or its record was deleted."
            raise ApiError(404, message, code="not_found")
        return {"name": name or "exchange.jsonl", "text": text}

    async def contents(self, request_id: str) -> dict[str, Any]:
        """Return the request of a record as it came and as it was sent. Raise `ApiError` 404, 409."""
        return await self._of_record(request_id, lambda text, _: timeline.contents(text))

    async def steps(self, request_id: str, after: int) -> dict[str, Any]:
        """Return the steps of a record behind number `after`, with content. Raise `ApiError` 404, 409."""
        return await self._of_record(request_id, lambda text, _: timeline.timeline(text, after, _STEPS))

    async def replay(self, request_id: str) -> dict[str, Any]:
        """Return what differs where this version runs the exchange again. Raise `ApiError` 404, 409."""
        return await self._of_record(request_id, timeline.replayed)

    async def _of_record(self, request_id: str, read: Any) -> dict[str, Any]:
        record = await self.record(request_id)
        try:
            found: dict[str, Any] = await asyncio.to_thread(read, record["text"], record["name"])
        except UnusableRecord as error:
            raise ApiError(409, f"The record cannot be used: {error}.", code="unusable_record") from None
        return found

    def _running(self) -> list[Creation]:
        return [activity for activity in self._responses.in_flight.activities if isinstance(activity, Creation)]

    def _find_running(self, request_id: str) -> Creation | None:
        return next((creation for creation in self._running() if creation.log.facts.id == request_id), None)

    def _look_at(self, request_id: str, creation: Creation) -> None:
        loop = asyncio.get_running_loop()
        known = self._shapes.get(request_id)
        if known is None:
            shape = Shape(creation.translator)
            shape.attach()
        else:
            shape = known[0]
            known[1].cancel()
        self._shapes[request_id] = (shape, loop.call_later(_ATTENTION, self._look_away, request_id))

    def _look_away(self, request_id: str) -> None:
        shape, timer = self._shapes.pop(request_id)
        timer.cancel()
        shape.detach()

    # ---- backends and recording --------------------------------------------------------------------------------------

    def backends(self) -> list[dict[str, Any]]:
        """Return each backend, as this process sees it."""
        return backends(self._pool, self._found)

    async def examine(self, name: str) -> dict[str, Any]:
        """Examine a backend as `doctor` does. Raise `ApiError`."""
        return await examine(self._pool.members.find(name))

    def recording(self) -> dict[str, Any]:
        """Return whether requests are recorded, and until when: None for ever."""
        recorder = self._responses.recorder
        always = recorder.until == math.inf
        return {"always": always, "until": None if always else recorder.until}

    def record_for(self, seconds: float) -> dict[str, Any]:
        """Record the requests that begin within so many seconds. Raise `ApiError` 409 where that is not possible."""
        recorder = self._responses.recorder
        if not isinstance(recorder, TimedRecorder):
            raise ApiError(409, "All requests are recorded already: the gateway runs with `record`.", code="already_recording")
        try:
            recorder.record_for(seconds)
        except OSError as error:
            raise ApiError(503, f"Nothing can be recorded: {error.strerror}.", code="cannot_record") from None
        return self.recording()
