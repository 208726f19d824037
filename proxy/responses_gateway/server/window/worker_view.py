"""What one worker shows in the window: its requests, backends, plots and recordings, as plain data for JSON."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from responses_gateway.child_process import run_program
from responses_gateway.probing.autoconfiguration import Autoconfiguration
from responses_gateway.server.generation.replay import UnusableRecord
from responses_gateway.server.generation.request_log.recent_requests import RecentRequests, details, shown
from responses_gateway.server.generation.responses import Creation, Responses
from responses_gateway.server.recording.recorder import Recorder
from responses_gateway.server.window import timeline
from responses_gateway.server.window.backends import backends, examine
from responses_gateway.stream.tape import Call, Tape
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import ApiError

WATCH_TIMEOUT = 15.0  # seconds after the last question about a request until its steps are noted no longer
_STEPS = 300  # steps of a recording that are sent in one answer
_KEPT = 500  # the number of steps that are kept, the most recent ones
# Seconds for which recordings are searched, and in which the process that does so has to end.
_SEARCHED = 2.0
_SEARCH_TIMEOUT = 10.0
SEARCH_PROCESS = Path(__file__).with_name("search_process.py")
_EVENT = re.compile(rb"^event: (\S+)", re.MULTILINE)
_CHUNK = re.compile(rb"^data: ?(?!\[DONE\])", re.MULTILINE)


class WorkerView:
    """Answers for this worker, whose name begins the ids of its requests."""

    def __init__(self, responses: Responses, recent: RecentRequests, configuration: Autoconfiguration) -> None:
        self.name = recent.process
        self._responses = responses
        self._recent = recent
        self._found = configuration
        self._live_steps: dict[str, tuple[LiveSteps, asyncio.TimerHandle]] = {}
        self._searching = asyncio.Lock()

    def close(self) -> None:
        """Stop noting steps."""
        for request_id in list(self._live_steps):
            self._unwatch(request_id)

    # ---- all requests ------------------------------------------------------------------------------------------------

    def requests(self, seen: dict[str, int]) -> dict[str, Any]:
        """Return the running requests, and those that ended after number `seen[self.name]` (0 by default)."""
        self._responses.metrics.flush()  # adds those that have just ended
        running = [creation.snapshot() for creation in self._running()] + self._responses.reports.relayed()
        ended = [shown(facts) for facts in self._recent.since(seen.get(self.name, 0))]
        return {"process": self.name, "last": self._recent.last, "running": [*map(shown, running)], "ended": ended}

    async def search(self, text: str) -> dict[str, Any]:
        """Return which requests have a recording with the text, and how many recordings there are and were searched: as many of
        the latest ones as there is time for. Raise `ApiError` 503."""
        self._responses.metrics.flush()
        names = {facts.record: facts.id for facts in reversed(self._recent.since(0)) if facts.record is not None}
        folder = await asyncio.to_thread(self._recorder.folder)
        if folder is None or not names:
            return {"found": [], "searched": 0, "recorded": 0}
        question = {"paths": [str(folder / name) for name in names], "text": text, "seconds": _SEARCHED}
        try:
            # In a process, because a long recording would hold the interpreter, and with it all streams.
            async with asyncio.timeout(_SEARCH_TIMEOUT), self._searching:
                answers = await run_program(SEARCH_PROCESS, json.dumps(question).encode())
        except (OSError, ValueError):  # also `TimeoutError`
            raise ApiError(503, "The recordings could not be searched. Please try again.", code="search_failed") from None
        matches = [request_id for request_id, contains in zip(names.values(), answers, strict=False) if contains]
        return {"found": matches, "searched": len(answers), "recorded": len(names)}

    def intervals(self) -> list[dict[str, Any]]:
        """Return the intervals of the last hour, the oldest first."""
        self._responses.metrics.flush()
        intervals: list[dict[str, Any]] = msgspec.to_builtins(list(self._recent.intervals))
        return intervals

    # ---- one request -------------------------------------------------------------------------------------------------

    def request(self, request_id: str) -> dict[str, Any]:
        """Return the details of a request, without content. Raise `ApiError` 404."""
        creation = self._find_running(request_id)
        if creation is not None:
            return details(creation.snapshot())
        self._responses.metrics.flush()
        relayed = (facts for facts in self._responses.reports.relayed() if facts.id == request_id)
        facts = next(relayed, None) or self._recent.find(request_id)
        if facts is None:
            raise ApiError(404, "This request is no longer known.", code="not_found")
        return details(facts)

    def live_steps(self, request_id: str, after: int) -> dict[str, Any]:
        """Return the steps of a running request behind number `after`, without content, and the number of all steps.

        Steps are noted from the first call on. Raise `ApiError` 404."""
        self.request(request_id)
        creation = self._find_running(request_id)
        if creation is not None and creation.answered:
            self._watch(request_id, creation)
        if request_id not in self._live_steps:
            return {"total": 0, "steps": []}
        live_steps, _ = self._live_steps[request_id]
        return {"total": live_steps.total, "steps": [step for step in live_steps.steps if step["number"] > after]}

    async def record(self, request_id: str) -> dict[str, str]:
        """Return the name and the text of a recording. Raise `ApiError` 404."""
        creation = self._find_running(request_id)
        recorder = self._recorder
        text: str | None = None
        name = self.request(request_id)["record"]
        if creation is not None and creation.recording is not None:
            text = await asyncio.to_thread(recorder.so_far, creation.recording)
        elif creation is None and name is not None:
            text = await asyncio.to_thread(recorder.read, name)
        if text is None:
            message = "This exchange was not recorded, or its record was deleted."
            raise ApiError(404, message, code="not_found")
        return {"name": name or "exchange.jsonl", "text": text}

    async def contents(self, request_id: str) -> dict[str, Any]:
        """Return a recorded request as received and as sent to the backend. Raise `ApiError` 404, 409."""
        return await self._of_record(request_id, lambda text, _: timeline.contents(text))

    async def answer(self, request_id: str) -> dict[str, Any]:
        """Return the items of a recorded request, as far as they have been sent. Raise `ApiError` 404, 409."""
        return await self._of_record(request_id, lambda text, _: timeline.answer(text))

    async def steps(self, request_id: str, after: int) -> dict[str, Any]:
        """Return the steps of a recording behind number `after`, with content. Raise `ApiError` 404, 409."""
        return await self._of_record(request_id, lambda text, _: timeline.timeline(text, after, _STEPS))

    async def replay(self, request_id: str) -> dict[str, Any]:
        """Repeat the translation with this version and return the differences. Raise `ApiError` 404, 409."""
        return await self._of_record(request_id, timeline.replayed)

    async def _of_record(self, request_id: str, read: Any) -> dict[str, Any]:
        record = await self.record(request_id)
        try:
            contents: dict[str, Any] = await asyncio.to_thread(read, record["text"], record["name"])
        except UnusableRecord as error:
            raise ApiError(409, f"The record cannot be used: {error}.", code="unusable_record") from None
        return contents

    def _running(self) -> list[Creation]:
        return [activity for activity in self._responses.in_flight.activities if isinstance(activity, Creation)]

    def _find_running(self, request_id: str) -> Creation | None:
        return next((creation for creation in self._running() if creation.log.facts.id == request_id), None)

    def _watch(self, request_id: str, creation: Creation) -> None:
        """Note the steps of a request for the next `WATCH_TIMEOUT` seconds."""
        loop = asyncio.get_running_loop()
        if request_id in self._live_steps:
            live_steps, timer = self._live_steps[request_id]
            timer.cancel()
        else:
            live_steps = LiveSteps(creation.prepared.tape or Tape(time.time), creation.translator)
        self._live_steps[request_id] = (live_steps, loop.call_later(WATCH_TIMEOUT, self._unwatch, request_id))

    def _unwatch(self, request_id: str) -> None:
        live_steps, timer = self._live_steps.pop(request_id)
        timer.cancel()
        live_steps.detach()

    # ---- backends and recording --------------------------------------------------------------------------------------

    def backends(self) -> list[dict[str, Any]]:
        """Return each backend as this worker sees it."""
        return backends(self._responses.pool, self._found)

    async def examine(self, name: str) -> dict[str, Any]:
        """Examine a backend as `doctor` does. Raise `ApiError`."""
        return await examine(self._responses.pool.members.find(name))

    @property
    def _recorder(self) -> Recorder:
        """What records: it is there where the window is."""
        recorder = self._responses.recorder
        assert recorder is not None
        return recorder

    def recording(self) -> dict[str, Any]:
        """Return whether requests are recorded now (`on`): all (`always`), or `until` which Unix time; None with `always`."""
        recorder = self._recorder
        always = recorder.until == math.inf
        return {"always": always, "until": None if always else recorder.until, "on": time.time() < recorder.until}

    def record_for(self, seconds: float) -> dict[str, Any]:
        """Record the requests that begin within the next `seconds`. Raise `ApiError` 409, 503 where that is not possible."""
        recorder = self._recorder
        if recorder.always:
            raise ApiError(409, "All requests are recorded already: the gateway runs with `record`.", code="already_recording")
        try:
            recorder.record_for(seconds)
        except OSError as error:
            raise ApiError(503, f"Nothing can be recorded: {error.strerror}.", code="cannot_record") from None
        return self.recording()


class LiveSteps:
    """Notes the calls of one translator until `detach`."""

    def __init__(self, tape: Tape, translator: Translator) -> None:
        self.steps: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self.total = 0  # of all steps, including those that are not kept any more
        self._tape = tape
        self._translator = translator
        tape.attach(translator, self._note)

    def detach(self) -> None:
        """Stop noting."""
        self._tape.detach(self._translator, self._note)

    def _note(self, call: Call, sent: bytes) -> None:
        received = call.argument or b""
        self.total += 1
        self.steps.append(
            {
                "number": self.total,
                "call": call.method,
                "time": call.at,
                "bytes": len(received),
                "chunks": len(_CHUNK.findall(received)),
                "events": [{"type": kind.decode("utf-8", "replace")} for kind in _EVENT.findall(sent)],
                "held": self._translator.held,
            }
        )
