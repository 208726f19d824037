"""Requests that cannot be read as HTTP. They never come to the application, and get the answer of all errors all the same.

aiohttp would answer with a text that names its version and repeats bytes of the request.
"""

from __future__ import annotations

from aiohttp import http_exceptions, web
from aiohttp.web_protocol import RequestHandler

from proxy.server.errors import REQUEST_ID, error_response, name_answer, new_request_id
from proxy.wire.errors import ApiError, server_error

_NO_HTTP = "The request is not valid HTTP."
_ENCODING = "The request body is compressed in a way that is not read here: send it as it is, or with gzip or deflate."
_TOO_LONG = "A line in the head of the request is longer than this gateway accepts."


class Runner(web.AppRunner):
    """Runs an application, and answers what never comes to it."""

    __slots__ = ()

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _Server(
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            loop=made._loop,
            **made._kwargs,
        )


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(RequestHandler):
    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The answer, which is the last one on this connection."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        response = error_response(_error(status, exc))
        name_answer(response, request.get(REQUEST_ID) or new_request_id())
        response.force_close()
        return response


def _error(status: int, problem: BaseException | None) -> ApiError:
    if isinstance(problem, http_exceptions.ContentEncodingError):
        return ApiError(415, _ENCODING, code="unsupported_content_encoding")
    if isinstance(problem, http_exceptions.LineTooLong):
        return ApiError(431, _TOO_LONG, code="request_too_large")
    if status < 500:
        return ApiError(status, _NO_HTTP, code="invalid_http")
    return server_error("The gateway failed. Please try again.", status)
