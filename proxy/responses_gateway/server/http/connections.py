"""Client connections: limits for heads, bodies and idle times, and JSON errors for what is not valid HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from aiohttp import StreamReader, http_exceptions, web

from responses_gateway.ended_tasks import end_tasks, keep_going
from responses_gateway.server.http import aiohttp_internals
from responses_gateway.server.http.exchange import name_answer, new_request_id
from responses_gateway.wire.errors import ApiError, server_error

# Longest first line, and longest header, in bytes: Codex describes its turn in one header, which grows with the workspace.
_LINE_LIMIT = 32 * 1024
# Seconds between two checks of the bodies under way, and the least number of checks within their time limit.
_INTERVAL = 1.0
_CHECKS = 4


class Runner(aiohttp_internals.ErrorHandlingRunner):
    """Runs the gateway's application. A handler is cancelled when its client leaves, which frees the backend at once."""

    def __init__(self, app: web.Application, *, keepalive_timeout: float = 75, shutdown_timeout: float = 1) -> None:
        """Times are in seconds. Idle connections are kept longer than reverse proxies keep them: the proxy is to close them."""
        super().__init__(
            app,
            _refuse_malformed,
            handler_cancellation=True,
            auto_decompress=False,  # `bodies.py` does that, in steps and not in the event loop
            access_log=None,
            keepalive_timeout=keepalive_timeout,
            shutdown_timeout=shutdown_timeout,
            max_line_size=_LINE_LIMIT,
            max_field_size=_LINE_LIMIT,
        )

    @property
    def requests(self) -> list[web.BaseRequest]:
        """The requests that are being handled now."""
        return [] if self.server is None else aiohttp_internals.requests_under_way(self.server)


def _refuse_malformed(_request: web.BaseRequest, status: int, error: BaseException | None, message: str) -> web.StreamResponse:
    answer = _malformed(status, error, message)
    response = web.json_response(answer.body(), status=answer.status)  # which protocol the client speaks is not known
    name_answer(response.headers, new_request_id())
    response.force_close()
    return response


def _malformed(status: int, error: BaseException | None, message: str) -> ApiError:
    """Return the error for a malformed request, which it does not quote."""
    if status >= 500:
        return server_error("The gateway failed. Please try again.", status)
    if isinstance(error, http_exceptions.LineTooLong):
        limit = f"The first line or a header of the request is longer than {_LINE_LIMIT} bytes."
        return ApiError(431, limit, code="request_too_large")
    reason = message.split("\n", maxsplit=1)[0].rstrip(":. ")  # the following lines quote the request
    if isinstance(error, http_exceptions.InvalidURLError) or "'" in reason:
        reason = "its head cannot be read"
    return ApiError(status, f"This is not a valid HTTP request: {reason}.", code="invalid_http")


class BodyTooSlow(ApiError, TimeoutError):
    """408 for the handler that reads the body. A `TimeoutError`, after which aiohttp closes the connection."""

    def __init__(self, limit: float) -> None:
        message = f"The request body did not arrive within {limit:g} seconds."
        super().__init__(408, message, code="request_timeout")


@asynccontextmanager
async def body_limit(runner: Runner, limit: float, on_defect: Callable[[Exception], object]) -> AsyncIterator[None]:
    """Bound the time of each body, from its head to its end, to `limit` seconds while this is open; 0 is no limit.

    Sending one slowly, or never to its end, is a cheap way to hold many connections open. Checking all connections about
    once a second costs nothing per request, unlike a timer around each read. (For heads there is aiohttp's own limit: it
    closes a connection without a request after the keep-alive time.)
    """
    if not limit:
        yield
        return
    watching = asyncio.create_task(keep_going(partial(_watch, runner, limit), on_defect))
    try:
        yield
    finally:
        await end_tasks(watching)


async def _watch(runner: Runner, limit: float) -> None:
    loop = asyncio.get_running_loop()
    first_seen: dict[StreamReader, float] = {}
    while True:
        await asyncio.sleep(min(_INTERVAL, limit / _CHECKS))
        now = loop.time()
        first_seen = {body: first_seen.get(body, now) for body in _unfinished_bodies(runner)}
        for body, first in first_seen.items():
            if now - first >= limit:
                body.set_exception(BodyTooSlow(limit))


def _unfinished_bodies(runner: Runner) -> list[StreamReader]:
    """Return the bodies that are not complete though the gateway is reading them."""
    bodies = []
    for request in runner.requests:
        transport = request.transport
        if transport is not None and transport.is_reading() and not request.content.is_eof():
            bodies.append(request.content)
    return bodies
