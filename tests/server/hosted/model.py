"""A backend whose model says what a test wants, turn by turn, and a gateway with hosted tools in front of it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import web

from tests.hosted.mcp_peers import SMALL_SERVER
from tests.server.running_gateway import Served, gateway
from tests.server.scripted_backend import chunk

# One turn of the model: pieces of a stream, what makes them of the request (or raises), or the status of a refusal.
Turn = list[bytes] | Callable[[dict[str, Any]], list[bytes]] | int

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

DOCS: dict[str, Any] = {"docs": {"command": sys.executable, "args": [str(SMALL_SERVER)], "require_approval": "never"}}
MCP: dict[str, Any] = {"type": "mcp", "server_label": "docs", "require_approval": "never"}


class Model:
    """Answers chat requests with the next turn; `requests` are their bodies, `request_ids` what they are
    called. The last turn is given again and again."""

    def __init__(self, turns: tuple[Turn, ...]) -> None:
        self._turns = turns
        self.url = ""
        self.requests: list[dict[str, Any]] = []
        self.request_ids: list[str] = []
        self.hold: asyncio.Event | None = None  # an answer is not ended before this is set

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer `POST /v1/chat/completions`."""
        body = await request.json()
        turn = self._turns[min(len(self.requests), len(self._turns) - 1)]
        self.requests.append(body)
        self.request_ids.append(request.headers["X-Request-Id"])
        if isinstance(turn, int):
            return web.json_response({"error": {"message": "this went wrong"}}, status=turn)
        pieces = turn(body) if callable(turn) else turn
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        with suppress(ConnectionError):  # the gateway has left
            await stream.prepare(request)
            for piece in pieces:
                await stream.write(piece)
        return stream


@asynccontextmanager
async def model(
    *turns: Turn, paths: Mapping[str, Handler] | None = None, routes: Sequence[web.RouteDef] = (), **settings: Any
) -> AsyncIterator[tuple[Served, Model]]:
    """Serve a gateway with these settings in front of a model with these turns; `paths` are more of its server, for
    `POST`, and `routes` any others."""
    talking = Model(turns)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", talking.answer)
    app.add_routes([web.post(path, handler) for path, handler in (paths or {}).items()])
    app.add_routes(routes)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    talking.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        async with gateway(talking.url, adapt=False, **settings) as served:
            yield served, talking
    finally:
        await runner.cleanup()


def says(text: str, thought: str = "") -> list[bytes]:
    """Return a turn that is a text."""
    thinking = [chunk({"reasoning": thought})] if thought else []
    return [*thinking, *(chunk({"content": word}) for word in _pieces(text)), *_end("stop")]


def calls(*made: tuple[str, dict[str, Any] | str], thought: str = "") -> list[bytes]:
    """Return a turn that calls tools, each by name and arguments; those in a string are written as they stand."""
    out = [chunk({"reasoning": thought})] if thought else []
    for index, (name, arguments) in enumerate(made):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        call = {"index": index, "id": f"call-{index}", "type": "function", "function": {"name": name, "arguments": ""}}
        out.append(chunk({"tool_calls": [call]}))
        for piece in _pieces(text):
            out.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
    return [*out, *_end("tool_calls")]


def _pieces(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]


def _end(reason: str) -> list[bytes]:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return [chunk({}, reason), chunk(None, usage=usage), b"data: [DONE]\n\n"]
