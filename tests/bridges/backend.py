"""The chat server behind the bridges: sends the stream that the request names, and nothing else."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.bridges.scenarios import Offered, Scenario, scenarios

# The words by which a request names its stream; every bridge passes the user's text on.
MARK = "scenario:"
MODEL = "m"
# A stream that never ends, to see whether a bridge stops it when its client leaves.
ENDLESS = "endless"
_NAMED = re.compile(re.escape(MARK) + r"([\w.-]+)")


class Backend:
    """What the server was asked: the endless streams that run, and the last request of each scenario."""

    def __init__(self, others: Sequence[Scenario] = ()) -> None:
        self.endless = 0
        self._left = asyncio.Event()
        self.requests: dict[str, dict[str, Any]] = {}
        self._scenarios = {scenario.name: scenario for scenario in (*scenarios(), *others)}

    def app(self) -> web.Application:
        """Return the server."""
        app = web.Application(client_max_size=16 << 20)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_post("/v1/chat/completions", self._complete)
        return app

    async def _models(self, request: web.Request) -> web.Response:
        model = {"id": MODEL, "object": "model", "created": 1795185900, "owned_by": "vllm", "max_model_len": 32768}
        return web.json_response({"object": "list", "data": [model]})

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        named = _NAMED.search(json.dumps(asked["messages"]))
        if named is None:
            return web.json_response({"error": {"message": "no scenario is named", "code": 400}}, status=400)
        self.requests[named[1]] = asked
        if named[1] == ENDLESS:
            return await self._endless(request)
        return await _send(request, self._scenarios[named[1]], _offered(asked))

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        self.endless += 1
        self._left.clear()
        try:
            await response.prepare(request)
            while True:
                chunk = {"choices": [{"index": 0, "delta": {"content": "on and "}, "finish_reason": None}]}
                head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1795185900, "model": MODEL}
                await response.write(b"data: " + json.dumps(head | chunk).encode() + b"\n\n")
                await asyncio.sleep(0.02)
        finally:
            self.endless -= 1
            if not self.endless:
                self._left.set()

    async def left_within(self, seconds: float) -> bool:
        """Wait until no endless stream runs any more; tell whether that was in time."""
        try:
            await asyncio.wait_for(self._left.wait(), seconds)
        except TimeoutError:
            return False
        return True


async def _send(request: web.Request, scenario: Scenario, offered: Offered) -> web.StreamResponse:
    body = scenario.body(offered)
    if scenario.status != 200:
        return web.Response(body=body, status=scenario.status, content_type="application/json")
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    await asyncio.sleep(scenario.delay)
    step = scenario.pieces or len(body)
    for start in range(0, len(body), step):
        await response.write(body[start : start + step])
        if scenario.pieces:
            await asyncio.sleep(0)
    if scenario.broken:
        await asyncio.sleep(0.2)  # what was written is read before the reset, which would discard it
        assert request.transport is not None
        request.transport.abort()
    return response


def _offered(asked: dict[str, Any]) -> Offered:
    functions = [tool["function"] for tool in asked.get("tools") or [] if isinstance(tool.get("function"), dict)]
    return {function["name"]: function.get("parameters") or {} for function in functions}


@asynccontextmanager
async def serving(backend: Backend) -> AsyncIterator[str]:
    """Serve while the block lasts, and yield the URL (without `/v1`). A client that leaves cancels its handler."""
    runner = web.AppRunner(backend.app(), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
