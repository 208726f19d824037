"""Client connections: what is no HTTP request, or has too large a head, is refused in JSON too, and not quoted."""

from __future__ import annotations

from aiohttp import http_exceptions, web
from aiohttp.web_protocol import RequestHandler

from proxy.server.http.errors import REQUEST_ID, error_response, name_answer, new_request_id
from proxy.wire.errors import ApiError, server_error

#: Longest first line, and longest header, in bytes: what Codex tells of its turn is one header, and grows with the workspace.
_LINE_LIMIT = 32 * 1024
_ENCODING = "The request body is compressed in a way that is not read here: send it as it is, or with gzip or deflate."


class Runner(web.AppRunner):
    """Runs the gateway's application: a handler is cancelled when its client leaves, which frees the backend at once."""

    def __init__(self, app: web.Application, *, keepalive_timeout: float = 75, shutdown_timeout: float = 1) -> None:
        """Times in seconds. An idle connection lives longer than a reverse proxy keeps it: the proxy is to close it."""
        super().__init__(
            app,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=keepalive_timeout,
            shutdown_timeout=shutdown_timeout,
            max_line_size=_LINE_LIMIT,
            max_field_size=_LINE_LIMIT,
        )

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
        """Called for what could not be parsed. (What a handler raises never comes here: `errors_as_json` answers it.)"""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun")
        response = error_response(_refusal(status, exc, message or ""))
        name_answer(response, request.get(REQUEST_ID) or new_request_id())
        response.force_close()
        return response


def _refusal(status: int, exc: BaseException | None, message: str) -> ApiError:
    if status >= 500:
        return server_error("The gateway failed. Please try again.", status)
    if isinstance(exc, http_exceptions.ContentEncodingError):
        return ApiError(415, _ENCODING, code="unsupported_content_encoding")
    if isinstance(exc, http_exceptions.LineTooLong):
        limit = f"The first line or a header of the request is longer than {_LINE_LIMIT} bytes."
        return ApiError(431, limit, code="request_too_large")
    reason = message.split("\n", maxsplit=1)[0].rstrip(":. ")  # the rest quotes the request
    if isinstance(exc, http_exceptions.InvalidURLError) or "'" in reason:
        reason = "its head cannot be read"
    return ApiError(status, f"This is not a valid HTTP request: {reason}.", code="invalid_http")
