"""The live list of requests: each worker is asked once in an interval, for all visitors together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from responses_gateway.ended_tasks import end_tasks
from responses_gateway.server.generation.request_log.recent_requests import LastEnded
from responses_gateway.server.window.workers import Workers

# Seconds between two questions to a worker.
POLL_INTERVAL = 0.5
_BUSY = "busy"


class LiveRequests:
    """Polls the workers while there are visitors, and keeps nothing while there are none."""

    def __init__(self, workers: Workers) -> None:
        self.visitors = 0
        self._workers = workers
        self._poller: _Poller | None = None

    async def updates(self) -> AsyncGenerator[bytes, None]:
        """Yield updates as events of a stream, until it is closed.

        The first update has all requests that the workers know, each later one the running requests and those that ended since
        the previous update; a visitor that reads slowly skips updates and misses no end."""
        if self._poller is None:
            self._poller = _Poller(self._workers)
        poller = self._poller
        self.visitors += 1
        try:
            number = 0
            while True:
                number, event = await poller.after(number)
                yield event
        finally:
            self.visitors -= 1
            if self.visitors == 0:
                self._poller = None
                await poller.close()


class _Poller:
    """Polls the workers until it is closed. Updates are numbered from 1."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._number = 0  # of the last update
        self._views: list[dict[str, Any]] = []
        self._busy = 0  # workers that have not answered in time
        self._recording: dict[str, Any] = {}
        # By worker: requests that have ended, each with the number of the update that brought it.
        self._ended: dict[str, LastEnded[dict[str, Any]]] = {}
        self._events: dict[int, bytes] = {}  # of the last update, by the number of the update that a visitor had before
        self._updated = asyncio.Event()
        self._task = asyncio.create_task(self._poll())
        self._task.add_done_callback(lambda _: self._updated.set())

    async def after(self, number: int) -> tuple[int, bytes]:
        """Wait for an update behind `number`. Return its number, and an event with all that is new since `number`."""
        while self._number <= number:
            if self._task.done():
                self._task.result()  # raises the error that ended it
            await self._updated.wait()
        if number not in self._events:
            self._events[number] = self._event(number)
        return self._number, self._events[number]

    async def close(self) -> None:
        """Stop polling."""
        await end_tasks(self._task)

    async def _poll(self) -> None:
        last: dict[str, int] = {}  # by worker: the number of the last request that ended there
        while True:
            answers = await self._workers.ask_all("requests", last, busy=_BUSY)
            views = [answer for answer in answers if answer is not _BUSY]
            recording = await self._workers.ask_here("recording")
            last = {view["process"]: view["last"] for view in views}
            self._busy = len(answers) - len(views)
            self._update(views, recording)
            await asyncio.sleep(POLL_INTERVAL)

    def _update(self, views: list[dict[str, Any]], recording: dict[str, Any]) -> None:
        self._number += 1
        self._views = views
        self._recording = recording
        # A worker that does not answer is forgotten: if it answers again, all its requests are sent again.
        self._ended = {view["process"]: self._ended.get(view["process"]) or LastEnded() for view in views}
        for view in views:
            for request in view["ended"]:
                self._ended[view["process"]].add(self._number, request, request.get("kept_as", "response"))
        self._events.clear()
        self._updated.set()
        self._updated = asyncio.Event()

    def _event(self, number: int) -> bytes:
        """Return the last update with the requests that ended behind update `number`."""
        views = [{**view, "ended": self._ended[view["process"]].since(number)} for view in self._views]
        update = {"views": views, "busy": self._busy, "recording": self._recording}
        return b"data: " + msgspec.json.encode(update) + b"\n\n"
