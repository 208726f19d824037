"""The private parts of aiohttp's server that the gateway uses, in one file: its minor version is pinned for that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

from aiohttp import StreamReader, hdrs, web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler

# Answers a request that could not be parsed, given the status, the exception and a message.
ErrorHandler = Callable[[web.BaseRequest, int, BaseException | None, str], web.StreamResponse]

# When the connection of a request that is being handled ended, in the event loop's time.
LEFT_AT: web.RequestKey[float] = web.RequestKey("left_at", float)


class ErrorHandlingRunner(web.AppRunner):
    """Runs an application; `on_malformed` answers what could not be parsed."""

    def __init__(self, app: web.Application, on_malformed: ErrorHandler, **options: Any) -> None:
        super().__init__(app, **options)
        self._on_malformed = on_malformed

    async def _make_server(self) -> web.Server:
        return _Server(await super()._make_server(), _answering(self.app), self._on_malformed)


def _answering(app: web.Application) -> Handler:
    """Return what answers requests as the application would, which has none within it: what aiohttp does for those takes
    fifteen calls for each request."""
    innermost_first = list(reversed(app.middlewares))

    async def answer(request: web.Request) -> web.StreamResponse:
        match = await app.router.resolve(request)
        match.add_app(app)
        match.freeze()
        request._match_info = match
        handler = match.handler
        if request.headers.get(hdrs.EXPECT):
            handler = _continuing
        for middleware in innermost_first:
            handler = partial(middleware, handler=handler)
        return await handler(request)

    return answer


async def _continuing(request: web.Request) -> web.StreamResponse:
    """Ask for the body where it is waited for, within the middlewares, because they answer an expectation that is unknown."""
    if request.headers[hdrs.EXPECT].lower() != "100-continue":  # aiohttp would repeat it, and fail where it is no UTF-8
        raise web.HTTPExpectationFailed
    await request.match_info.expect_handler(request)
    await request.writer.drain()
    return await request.match_info.handler(request)


class _Server(web.Server):
    def __init__(self, made: web.Server, handler: Any, on_malformed: ErrorHandler) -> None:
        super().__init__(
            handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            loop=made._loop,
            **made._kwargs,
        )
        self.on_malformed = on_malformed

    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(RequestHandler):
    __slots__ = ()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Note when a client left whose request is being handled."""
        request = self._current_request
        if request is not None:
            request[LEFT_AT] = self._loop.time()
        super().connection_lost(exc)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer what could not be parsed. (What a handler raises never comes here: the middleware answers it.)"""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun")
        return cast("_Server", self._manager).on_malformed(request, status, exc, message or "")


def arrived_body(content: StreamReader) -> bytes | None:
    """Take a body of which all is there in one piece, as that of a short request is, without the steps of a reader that has to
    wait. None: it has to be read."""
    if type(content) is not StreamReader or not content._eof or content._exception is not None or len(content._buffer) != 1:
        return None
    content._size = 0
    return content._buffer.popleft()


class HeldHeadResponse(web.StreamResponse):
    """A response whose head is sent with the first bytes of its body, in one write."""

    _send_headers_immediately = False


def requests_under_way(server: web.Server) -> list[web.BaseRequest]:
    """Return the requests that are being handled now."""
    current = [connection._current_request for connection in server.connections]
    return [request for request in current if request is not None]


def awaits_request(connections: Iterable[RequestHandler]) -> bool:
    """Tell whether there is a connection on which no request has come yet, or one that has not reached its handler."""
    idle = [connection for connection in connections if connection._current_request is None]
    return any(not each._request_count or each._waiter is None or each._waiter.done() for each in idle)


async def drain(request: web.Request) -> None:
    """Wait until the client has caught up. Raises `ConnectionError` if it has disconnected."""
    await request.protocol._drain_helper()
