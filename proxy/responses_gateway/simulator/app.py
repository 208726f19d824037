"""The simulated server: an aiohttp application, and how to serve it."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from responses_gateway.simulator import state
from responses_gateway.simulator.answer import AnswerPlan, plan_answer
from responses_gateway.simulator.endpoints import add_model_routes
from responses_gateway.simulator.errors import ErrorAnswer, status_error, vllm_error
from responses_gateway.simulator.frames import build_frames, completion
from responses_gateway.simulator.playback import PLAYERS, stream_frames
from responses_gateway.simulator.prefix_cache import PrefixCache
from responses_gateway.simulator.text_completions import completions
from responses_gateway.simulator.validation import parsed_body

_MAX_BODY = 256 * 1024 * 1024


def create_app(options: state.SimulatorOptions | None = None) -> web.Application:
    """Create the application. Its only state are counters and the last requests received."""
    app = web.Application(middlewares=[_errors], client_max_size=_MAX_BODY)
    app[state.OPTIONS] = options or state.SimulatorOptions()
    app[state.COUNTERS] = state.Counters()
    app[state.RECEIVED] = deque(maxlen=32)
    app[state.FAULT_COUNTS] = state.FaultCounts()
    app[PLAYERS] = set()
    cache = app[state.OPTIONS].cache
    if cache is not None:
        app[state.CACHE] = PrefixCache(cache)
    app.on_shutdown.append(_abort_streams)
    app.router.add_post("/v1/chat/completions", chat_completions)
    app.router.add_post("/v1/completions", completions)
    add_model_routes(app)
    return app


async def _abort_streams(app: web.Application) -> None:
    """End all streams: the server is stopped."""
    for player in app[PLAYERS]:
        player.abort()


@asynccontextmanager
async def serving(app: web.Application, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve an application and yield its base URL. Port 0 takes a free one. Raises `OSError` if the port is taken."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=4096)
        await site.start()
        bound = runner.addresses[0]
        yield f"http://{f'[{bound[0]}]' if ':' in bound[0] else bound[0]}:{bound[1]}"
    finally:
        await runner.cleanup()


@web.middleware
async def _errors(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    try:
        _check_key(request)
        return await handler(request)
    except ErrorAnswer as error:
        headers = {} if error.retry_after is None else {"retry-after": error.retry_after}
        return web.json_response(error.body, status=error.status, headers=headers)
    except ConnectionError:  # the client has disconnected: nobody will read this
        return web.Response(status=499)
    except web.HTTPException as error:  # unknown routes answer in the format of vLLM's web framework
        return web.json_response({"detail": error.reason}, status=error.status)


def _check_key(request: web.Request) -> None:
    key = request.app[state.OPTIONS].api_key
    if key is None or not request.path.startswith("/v1"):
        return
    value = request.headers.get("authorization", "").removeprefix("Bearer ")
    if not hmac.compare_digest(value.encode(), key.encode()):
        raise status_error("vllm", 401)


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Handle `POST /v1/chat/completions`."""
    body = parsed_body(await request.read(), request.content_type)
    request.app[state.RECEIVED].append({"body": body, "headers": dict(request.headers)})
    answer = plan_answer(body, request.headers, request.app)
    counters = request.app[state.COUNTERS]
    counters.requests += 1
    counters.running += 1
    try:
        return await _answer(request, answer)
    finally:
        counters.running -= 1


async def _answer(request: web.Request, answer: AnswerPlan) -> web.StreamResponse:
    transport = request.transport
    if transport is None or answer.faults.reset:
        return _cut_connection(transport)
    if not await _wait(answer.faults.slow_headers, transport):
        return _disconnected(request)
    if answer.error is not None:
        raise answer.error
    request.app[state.COUNTERS].prompt_tokens += answer.stream.prompt_tokens
    if not answer.streams:
        return await _complete(request, answer, transport)
    frames = build_frames(answer.rendered, answer.stream, answer.faults)
    reason = answer.rendered.finish_reason
    return await stream_frames(request, frames, answer.first_token_seconds, answer.tokens_per_second, reason)


async def _complete(request: web.Request, answer: AnswerPlan, transport: asyncio.Transport) -> web.StreamResponse:
    pace = answer.tokens_per_second
    tokens = answer.rendered.chunks[-1].tokens
    generation = tokens / pace if pace > 0 else 0.0
    if not await _wait(answer.first_token_seconds + generation + answer.faults.silence, transport):
        return _disconnected(request)
    if answer.faults.drop is not None or answer.faults.eof is not None:
        return _cut_connection(transport)
    if answer.faults.error is not None:
        raise vllm_error("Internal server error", type="InternalServerError", status=500)
    counters = request.app[state.COUNTERS]
    counters.generation_tokens += tokens
    counters.finished[answer.rendered.finish_reason] += 1
    body: dict[str, Any] = completion(answer.rendered, answer.stream)
    if answer.faults.filter is not None:
        body["choices"][0]["finish_reason"] = "content_filter"
    data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    if answer.faults.malformed is not None:
        data = data[: len(data) // 2]
    return web.Response(body=data, content_type="application/json")


async def _wait(seconds: float, transport: asyncio.Transport) -> bool:
    """Wait, and return whether the client is still connected; stop waiting if it is not."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while (left := end - loop.time()) > 0:
        if transport.is_closing():
            return False
        await asyncio.sleep(min(left, 0.05))
    return not transport.is_closing()


def _cut_connection(transport: asyncio.Transport | None) -> web.Response:
    if transport is not None:
        transport.abort()
    return web.Response()


def _disconnected(request: web.Request) -> web.Response:
    request.app[state.COUNTERS].aborted += 1
    return web.Response(status=499)
