"""The paths below `/ui/`: the page and the data that it requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from responses_gateway.ended_tasks import end_tasks
from responses_gateway.server.generation.in_flight import InFlight
from responses_gateway.server.generation.request_log.metrics import GAP_BUCKETS
from responses_gateway.server.generation.request_log.usage import SumsOf
from responses_gateway.server.http.exchange import json_answer, read_json_body
from responses_gateway.server.window.backends import merged_backends
from responses_gateway.server.window.live_requests import POLL_INTERVAL, LiveRequests
from responses_gateway.server.window.pages import SECURITY_HEADERS, FrontDoor, page, redirect
from responses_gateway.server.window.permissions import Permission, WindowAccess
from responses_gateway.server.window.usage_report import PERIODS, usage_report
from responses_gateway.server.window.workers import SharedAnswer, Workers
from responses_gateway.telemetry.instruments import LATENCY_BUCKETS
from responses_gateway.version import __version__
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.requests import read_object

MOST_VISITORS = 20  # visitors with a live connection at the same time
_USAGE_AGE = 2.0  # seconds for which a report of usage is kept
_LONGEST_RECORDING = 24 * 60  # longest time for which requests are recorded, in minutes
_LONGEST_SEARCH = 500  # characters of a text that is searched for


class Window:
    """Handles the requests below `/ui/`."""

    def __init__(
        self,
        workers: Workers,
        access: WindowAccess,
        in_flight: InFlight,
        sums_of: SumsOf,
        quotas: Callable[[], Coroutine[Any, Any, Any]],
    ) -> None:
        """`sums_of` returns what was used, `quotas` how much of each quota."""
        self._workers = workers
        self._access = access
        self._in_flight = in_flight
        self._live = LiveRequests(workers)
        self._intervals = SharedAnswer(partial(workers.ask_all, "intervals"), POLL_INTERVAL)
        self._backends = SharedAnswer(partial(workers.ask_all, "backends"), POLL_INTERVAL)
        self._usage = {days: SharedAnswer(partial(usage_report, sums_of, days), _USAGE_AGE) for days in PERIODS}
        self._quotas = SharedAnswer(quotas, _USAGE_AGE)

    def add_to(self, app: web.Application) -> None:
        """Add the paths."""
        router = app.router
        if not self._access.on_operations_port:
            router.register_resource(FrontDoor())
        router.add_get("/ui", redirect)
        router.add_get("/ui/", page)
        router.add_get("/ui/{name}", page)
        metadata: list[tuple[str, str, Handler]] = [
            ("GET", "state", self.state),
            ("GET", "live", self.live),
            ("GET", "backends", self.backends),
            ("GET", "plots", self.plots),
            ("GET", "usage", self.usage),
            ("GET", "requests/{id}", self._of_request("request")),
            ("GET", "requests/{id}/live-steps", self.live_steps),
        ]
        content: list[tuple[str, str, Handler]] = [
            ("POST", "backends/{name}/examine", self.examine),
            ("POST", "recording", self.record),
            ("POST", "search", self.search),
            ("GET", "requests/{id}/contents", self._of_request("contents")),
            ("GET", "requests/{id}/answer", self._of_request("answer")),
            ("GET", "requests/{id}/steps", self.steps),
            ("GET", "requests/{id}/record", self.download),
            ("POST", "requests/{id}/replay", self._of_request("replay")),
        ]
        for permission, routes in ((Permission.METADATA, metadata), (Permission.CONTENT, content)):
            for method, path, handler in routes:
                router.add_route(method, f"/ui/api/{path}", self._access.allowing(permission, handler))
        app.cleanup_ctx.append(self._closing_answers)

    async def _closing_answers(self, _app: web.Application) -> AsyncIterator[None]:
        """End the questions under way when the application does, before the workers are asked no more."""
        joining = asyncio.create_task(self._record_as_others())
        yield
        await end_tasks(joining)
        shared: list[SharedAnswer[Any]] = [self._intervals, self._backends, *self._usage.values(), self._quotas]
        for answer in shared:
            await answer.close()

    async def _record_as_others(self) -> None:
        """Record as long as workers do that have been told to, before this one began."""
        _, *others = await self._workers.ask_all("recording")
        seconds = max((view["until"] or 0.0 for view in others), default=0.0) - time.time()
        if seconds > 0:
            await self._workers.ask_here("record_for", seconds)

    # ---- all requests ------------------------------------------------------------------------------------------------

    async def state(self, request: web.Request) -> web.Response:
        """Answer with the visitor's permission, whether requests are recorded, and what a client needs."""
        contents = self._access.permission_of(request) is Permission.CONTENT
        recording = await self._workers.ask_here("recording")
        admin = contents and self._access.has_admin_paths
        answer = {"version": __version__, "contents": contents, "admin": admin, "recording": recording}
        return json_answer({**answer, **self._access.for_clients()})

    async def live(self, request: web.Request) -> web.StreamResponse:
        """Answer with a stream of updates: the running requests, and those that have ended."""
        if self._live.visitors >= MOST_VISITORS:
            raise ApiError(503, "Too many visitors are looking at once. Please try again.", code="too_many_visitors")
        headers = {**SECURITY_HEADERS, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        response = web.StreamResponse(headers={**headers, "X-Accel-Buffering": "no"})
        await response.prepare(request)
        async with aclosing(self._live.updates()) as updates:
            async for update in updates:
                if self._in_flight.ending.is_set():
                    break
                await response.write(update)
        return response

    async def plots(self, _request: web.Request) -> web.Response:
        """Answer with the intervals of the last hour, of all workers together."""
        intervals: dict[int, dict[str, Any]] = {}
        for interval in (interval for view in await self._intervals.get() for interval in view):
            _add(intervals.setdefault(interval["began"], {"began": interval["began"]}), interval)
        counts = {"now": time.time(), "intervals": [intervals[began] for began in sorted(intervals)]}
        return json_answer({**counts, "first_token_buckets": LATENCY_BUCKETS, "gap_buckets": GAP_BUCKETS})

    async def usage(self, request: web.Request) -> web.Response:
        """Answer with the usage of the last `days` days, of all workers together, and how much of each quota is used."""
        totals = next((shared for days, shared in self._usage.items() if str(days) == request.query.get("days")), None)
        if totals is None:
            raise invalid_request(f"'days' must be one of {', '.join(map(str, PERIODS))}.", "days", "invalid_value")
        return json_answer({**await totals.get(), "quotas": await self._quotas.get()})

    async def search(self, request: web.Request) -> web.Response:
        """Answer with the ids of the recorded requests that contain a `text`, they or their answers."""
        text = read_object(await read_json_body(request)).get("text")
        if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST_SEARCH:
            message = f"'text' must be a text of at most {_LONGEST_SEARCH} characters."
            raise invalid_request(message, "text", "invalid_value")
        total: dict[str, Any] = {"found": [], "searched": 0, "recorded": 0, "busy": 0}  # the last are processes
        for view in await self._workers.ask_all("search", text, busy={"busy": 1}):
            total = {name: value + view[name] if name in view else value for name, value in total.items()}
        return json_answer(total)

    # ---- one request -------------------------------------------------------------------------------------------------

    async def live_steps(self, request: web.Request) -> web.Response:
        """Answer with the steps of a running request, without content."""
        return json_answer(await self._ask_owner(request, "live_steps", _after(request)))

    async def steps(self, request: web.Request) -> web.Response:
        """Answer with the timeline of a recorded request."""
        return json_answer(await self._ask_owner(request, "steps", _after(request)))

    async def download(self, request: web.Request) -> web.Response:
        """Answer with the file of a recording, for `responses-gateway replay`."""
        record = await self._ask_owner(request, "record")
        headers = {"Content-Disposition": f'attachment; filename="{record["name"]}"'}
        return web.Response(text=record["text"], content_type="application/jsonl", headers=headers)

    def _of_request(self, what: str) -> Handler:
        """Return what answers with the details of a request, with what was received and sent, with the items of the answer, or
        with the differences if its translation is repeated with this version."""

        async def answer(request: web.Request) -> web.Response:
            return json_answer(await self._ask_owner(request, what))

        return answer

    async def _ask_owner(self, request: web.Request, method: str, *arguments: Any) -> Any:
        return await self._workers.ask_owner(request.match_info["id"], method, *arguments)

    # ---- backends and recording --------------------------------------------------------------------------------------

    async def backends(self, _request: web.Request) -> web.Response:
        """Answer with the backends."""
        return json_answer(merged_backends(await self._backends.get()))

    async def examine(self, request: web.Request) -> web.Response:
        """Examine a backend as `doctor` does; answer with the results and the advice."""
        return json_answer(await self._workers.ask_here("examine", request.match_info["name"]))

    async def record(self, request: web.Request) -> web.Response:
        """Record the requests of the next `minutes`; 0 ends the recording."""
        minutes = read_object(await read_json_body(request)).get("minutes")
        if not isinstance(minutes, int | float) or not 0 <= minutes <= _LONGEST_RECORDING:
            message = f"'minutes' must be a number from 0 to {_LONGEST_RECORDING}."
            raise invalid_request(message, "minutes", "invalid_value")
        recordings = await self._workers.ask_all("record_for", minutes * 60)
        return json_answer(recordings[0])


def _after(request: web.Request) -> int:
    text = request.query.get("after", "0")
    if not text.isdecimal() or len(text) > 9:
        raise invalid_request("'after' must be the number of a step.", "after", "invalid_value")
    return int(text)


def _add(total: dict[str, Any], more: dict[str, Any]) -> None:
    """Add one worker's counts of an interval to the `total` of all workers."""
    for name, value in more.items():
        if name == "began":
            continue
        if isinstance(value, dict):
            counts = total.setdefault(name, {})
            for kind, number in value.items():
                counts[kind] = counts.get(kind, 0) + number
        elif isinstance(value, list):
            total[name] = [a + b for a, b in zip(total.get(name, [0] * len(value)), value, strict=True)]
        else:
            total[name] = total.get(name, 0) + value
