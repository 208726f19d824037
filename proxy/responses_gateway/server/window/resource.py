"""The paths below `/ui/`: the page and the data that it requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from responses_gateway.server.access.api_keys import Needs, needs
from responses_gateway.server.generation.in_flight import InFlight
from responses_gateway.server.generation.request_log.metrics import GAP_BUCKETS
from responses_gateway.server.http.exchange import read_json_body
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

# Visitors with a live connection at the same time.
MOST_VISITORS = 20
# Seconds for which a report of usage is kept.
_USAGE_AGE = 2.0
# Longest time for which requests are recorded, in minutes.
_LONGEST_RECORDING = 24 * 60
# Characters of a text that is searched for.
_LONGEST_SEARCH = 500


class Window:
    """Handles the requests below `/ui/`."""

    def __init__(
        self, workers: Workers, access: WindowAccess, in_flight: InFlight, quotas: Callable[[], Coroutine[Any, Any, Any]]
    ) -> None:
        """`quotas` returns how much of each quota is used."""
        self._workers = workers
        self._access = access
        self._in_flight = in_flight
        self._live = LiveRequests(workers)
        self._intervals = SharedAnswer(partial(workers.ask_all, "intervals"), POLL_INTERVAL)
        self._backends = SharedAnswer(partial(workers.ask_all, "backends"), POLL_INTERVAL)
        self._usage = {days: SharedAnswer(partial(usage_report, workers, days), _USAGE_AGE) for days in PERIODS}
        self._quotas = SharedAnswer(quotas, _USAGE_AGE)

    def add_to(self, app: web.Application) -> None:
        """Add the paths, and answer the other workers while the application runs."""
        router = app.router
        if self._access.on_client_port:
            router.register_resource(FrontDoor())
        router.add_get("/ui", redirect)
        router.add_get("/ui/", page)
        router.add_get("/ui/{name}", page)
        router.add_get("/ui/api/state", self.state)
        router.add_get("/ui/api/live", self.live)
        router.add_get("/ui/api/backends", self.backends)
        router.add_post("/ui/api/backends/{name}/examine", self.examine)
        router.add_get("/ui/api/plots", self.plots)
        router.add_get("/ui/api/usage", self.usage)
        router.add_post("/ui/api/recording", self.record)
        router.add_post("/ui/api/search", self.search)
        router.add_get("/ui/api/requests/{id}", self.request)
        router.add_get("/ui/api/requests/{id}/live-steps", self.live_steps)
        router.add_get("/ui/api/requests/{id}/contents", self.contents)
        router.add_get("/ui/api/requests/{id}/answer", self.answer)
        router.add_get("/ui/api/requests/{id}/steps", self.steps)
        router.add_get("/ui/api/requests/{id}/record", self.download)
        router.add_post("/ui/api/requests/{id}/replay", self.replay)
        app.cleanup_ctx.append(self._answer_other_workers)

    async def _answer_other_workers(self, _app: web.Application) -> AsyncIterator[None]:
        async with self._workers.answering():
            yield
            shared: list[SharedAnswer[Any]] = [self._intervals, self._backends, *self._usage.values(), self._quotas]
            for answer in shared:
                await answer.close()

    # ---- all requests ------------------------------------------------------------------------------------------------

    @needs(Needs.NOTHING)
    async def state(self, request: web.Request) -> web.Response:
        """Answer with the visitor's permission, whether requests are recorded, and what a client needs."""
        permission = self._access.permission_of(request)
        recording = await self._workers.ask_here("recording")
        contents = permission is Permission.CONTENT
        admin = contents and self._access.has_admin_paths
        found = {"version": __version__, "contents": contents, "admin": admin, "recording": recording}
        return _json({**found, **self._access.for_clients()})

    @needs(Needs.NOTHING)
    async def live(self, request: web.Request) -> web.StreamResponse:
        """Answer with a stream of updates: the running requests, and those that have ended."""
        self._access.require(request, Permission.METADATA)
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

    @needs(Needs.NOTHING)
    async def plots(self, request: web.Request) -> web.Response:
        """Answer with the intervals of the last hour, of all workers together."""
        self._access.require(request, Permission.METADATA)
        intervals: dict[int, dict[str, Any]] = {}
        for interval in (interval for view in await self._intervals.get() for interval in view):
            _add(intervals.setdefault(interval["began"], {"began": interval["began"]}), interval)
        found = [intervals[began] for began in sorted(intervals)]
        return _json({"intervals": found, "first_token_buckets": LATENCY_BUCKETS, "gap_buckets": GAP_BUCKETS})

    @needs(Needs.NOTHING)
    async def usage(self, request: web.Request) -> web.Response:
        """Answer with the usage of the last `days` days, of all workers together, and how much of each quota is used."""
        self._access.require(request, Permission.METADATA)
        found = next((shared for days, shared in self._usage.items() if str(days) == request.query.get("days")), None)
        if found is None:
            raise invalid_request(f"'days' must be one of {', '.join(map(str, PERIODS))}.", "days", "invalid_value")
        return _json({**await found.get(), "quotas": await self._quotas.get()})

    @needs(Needs.NOTHING)
    async def search(self, request: web.Request) -> web.Response:
        """Answer with the ids of the recorded requests that contain a `text`, they or their answers."""
        self._access.require(request, Permission.CONTENT)
        text = read_object(await read_json_body(request)).get("text")
        if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST_SEARCH:
            message = f"'text' must be a text of at most {_LONGEST_SEARCH} characters."
            raise invalid_request(message, "text", "invalid_value")
        total: dict[str, Any] = {"found": [], "searched": 0, "recorded": 0}
        for view in await self._workers.ask_all("search", text):
            total = {name: value + view[name] for name, value in total.items()}
        return _json(total)

    # ---- one request -------------------------------------------------------------------------------------------------

    @needs(Needs.NOTHING)
    async def request(self, request: web.Request) -> web.Response:
        """Answer with the details of a request, without content."""
        self._access.require(request, Permission.METADATA)
        return _json(await self._ask_owner(request, "request"))

    @needs(Needs.NOTHING)
    async def live_steps(self, request: web.Request) -> web.Response:
        """Answer with the steps of a running request, without content."""
        self._access.require(request, Permission.METADATA)
        return _json(await self._ask_owner(request, "live_steps", _after(request)))

    @needs(Needs.NOTHING)
    async def contents(self, request: web.Request) -> web.Response:
        """Answer with a recorded request, as received and as sent to the backend."""
        self._access.require(request, Permission.CONTENT)
        return _json(await self._ask_owner(request, "contents"))

    @needs(Needs.NOTHING)
    async def answer(self, request: web.Request) -> web.Response:
        """Answer with the items that a recorded request was answered."""
        self._access.require(request, Permission.CONTENT)
        return _json(await self._ask_owner(request, "answer"))

    @needs(Needs.NOTHING)
    async def steps(self, request: web.Request) -> web.Response:
        """Answer with the timeline of a recorded request."""
        self._access.require(request, Permission.CONTENT)
        return _json(await self._ask_owner(request, "steps", _after(request)))

    @needs(Needs.NOTHING)
    async def download(self, request: web.Request) -> web.Response:
        """Answer with the file of a recording, for `responses-gateway replay`."""
        self._access.require(request, Permission.CONTENT)
        record = await self._ask_owner(request, "record")
        headers = {**SECURITY_HEADERS, "Cache-Control": "no-store"}
        headers["Content-Disposition"] = f'attachment; filename="{record["name"]}"'
        return web.Response(text=record["text"], content_type="application/jsonl", headers=headers)

    @needs(Needs.NOTHING)
    async def replay(self, request: web.Request) -> web.Response:
        """Repeat the translation of a recorded request with this version; answer with the differences."""
        self._access.require(request, Permission.CONTENT)
        return _json(await self._ask_owner(request, "replay"))

    async def _ask_owner(self, request: web.Request, method: str, *arguments: Any) -> Any:
        return await self._workers.ask_owner(request.match_info["id"], method, *arguments)

    # ---- backends and recording --------------------------------------------------------------------------------------

    @needs(Needs.NOTHING)
    async def backends(self, request: web.Request) -> web.Response:
        """Answer with the backends."""
        self._access.require(request, Permission.METADATA)
        return _json(merged_backends(await self._backends.get()))

    @needs(Needs.NOTHING)
    async def examine(self, request: web.Request) -> web.Response:
        """Examine a backend as `doctor` does; answer with the results and the advice."""
        self._access.require(request, Permission.CONTENT)
        return _json(await self._workers.ask_here("examine", request.match_info["name"]))

    @needs(Needs.NOTHING)
    async def record(self, request: web.Request) -> web.Response:
        """Record the requests of the next `minutes`; 0 ends the recording."""
        self._access.require(request, Permission.CONTENT)
        minutes = read_object(await read_json_body(request)).get("minutes")
        if not isinstance(minutes, int | float) or not 0 <= minutes <= _LONGEST_RECORDING:
            message = f"'minutes' must be a number from 0 to {_LONGEST_RECORDING}."
            raise invalid_request(message, "minutes", "invalid_value")
        recordings = await self._workers.ask_all("record_for", minutes * 60)
        return _json(recordings[0])


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


def _json(value: Any) -> web.Response:
    headers = {**SECURITY_HEADERS, "Cache-Control": "no-store"}
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", headers=headers)
