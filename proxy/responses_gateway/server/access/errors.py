"""Errors as answers: a JSON body in OpenAI's format with a request id. Stack traces are only logged."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web
from pydantic import ValidationError

from responses_gateway.server.http.exchange import EXCHANGE, name_answer, unreadable
from responses_gateway.server.protocols.interface import ClientProtocol
from responses_gateway.server.protocols.responses import RESPONSES
from responses_gateway.server.protocols.standard import PROTOCOLS
from responses_gateway.settings import suggestion
from responses_gateway.state import EventsUnavailable, StoreUnavailable
from responses_gateway.telemetry import logs
from responses_gateway.wire.errors import ApiError, invalid_request, server_error
from responses_gateway.wire.validation import problem

# The code of the error that an answer tells, for the log.
ERROR_CODE: web.ResponseKey[str] = web.ResponseKey("error_code", str)
_NO_EVENTS = (
    "The log of running responses cannot be reached: they run, but cannot be followed, and none can begin in the background. "
    "GET /v1/responses/{id} without 'stream' tells how one stands. Please try again."
)
# Those of which a client says something, where it speaks one.
_OTHERS = [protocol for protocol in PROTOCOLS.values() if protocol is not RESPONSES]
# The first part of the paths that clients ask for if their base URL lacks `/v1`.
UNVERSIONED = frozenset({"responses", "conversations", "models", "chat", "completions", "embeddings"})


def invalid_field(error: ValidationError, known: Iterable[str]) -> ApiError:
    """Return 400 with what is wrong, and with which field; `known` are the fields that there are. Values are not repeated,
    since one may be a key."""
    detail = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(map(str, detail["loc"]))
    message = problem(detail["type"], detail.get("ctx", {}), detail["msg"])
    if detail["type"] == "extra_forbidden":
        message = f"there is no such field{suggestion(field, known)}"
    return invalid_request(f"'{field}': {message}.", field, "invalid_value")


def answer_for(request: web.Request, error: Exception, count_defect: Callable[[], None]) -> web.Response:
    """Return the answer for an exception of a handler; `count_defect` is called for one that should not be."""
    match error:
        case ApiError():
            response = error_response(error, request)
            if request.content.exception() is not None:  # the rest of the body may still come: the connection is not reused
                response.force_close()
            return response
        case StoreUnavailable():
            logs.logger().error("the store fails", extra=logs.fields(request_id=request[EXCHANGE].request_id, error=str(error)))
            message = _NO_EVENTS if isinstance(error, EventsUnavailable) else error.for_clients
            return error_response(server_error(message, 503), request)
        case web.HTTPNotFound():
            message = f"There is no {request.path} here.{_base_url_hint(request.path)}"
            return error_response(ApiError(404, message, code="not_found"), request)
        case web.HTTPMethodNotAllowed():
            message = f"{request.method} is not possible on {request.path}."
            response = error_response(ApiError(405, message, code="method_not_allowed"), request)
            response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
            return response
        case web.HTTPException():
            return error_response(ApiError(error.status, error.reason), request)
        case ConnectionError():
            return error_response(ApiError(499, "The client closed the connection."), request)  # the client does not read this
        case web.RequestPayloadError() | UnicodeDecodeError():
            return error_response(unreadable(), request)
    count_defect()
    logs.logger().error("defect", exc_info=error, extra=logs.fields(request_id=request[EXCHANGE].request_id, path=request.path))
    return error_response(server_error("The gateway failed. This is a defect: please report it.", 500), request)


def _base_url_hint(path: str) -> str:
    """Return a hint for clients whose base URL lacks `/v1`, or has it twice, and for operators; else an empty text."""
    if re.match(r"/admin(/|$)", path):
        return (
            " The paths of operators exist if the gateway has an `admin_key`, and are listed in the API reference of the docs."
        )
    if re.match(r"/v1/v1/messages(/|$)", path):
        return " The base URL of this API ends without /v1."
    if re.match(r"/v1/v1(/|$)", path):
        return " The base URL has /v1 twice: it should end in /v1 once."
    if path.strip("/").partition("/")[0] in UNVERSIONED:
        return " The base URL should end in /v1."
    return ""


def protocol_of(request: web.Request) -> ClientProtocol:
    """Return the protocol that a client speaks: by its path, or by the header that names a version of it."""
    path = request.path
    for protocol in _OTHERS:
        if path.startswith(protocol.path) or protocol.version_header in request.headers:
            return protocol
    return RESPONSES


def error_response(error: ApiError, request: web.Request) -> web.Response:
    """Return the error as an HTTP answer, in the words of the protocol that the client speaks."""
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    if error.final:
        headers["X-Should-Retry"] = "false"
    status, body = protocol_of(request).error(error, request[EXCHANGE].request_id)
    response = web.Response(status=status, text=json.dumps(body), content_type="application/json", headers=headers)
    response[ERROR_CODE] = error.code or error.type
    return response


def complete_head(ending: asyncio.Event) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Return the signal handler that completes the head of every answer. A process that is about to end closes each
    connection after its answer, so that the client opens the next one to another process."""

    async def complete(request: web.Request, response: web.StreamResponse) -> None:
        request_id = request[EXCHANGE].request_id
        headers = response.headers
        name_answer(headers, request_id)
        id_header = protocol_of(request).id_header
        if id_header is not None:
            headers[id_header] = request_id
        if ending.is_set() and response.status != 101:
            response.force_close()
            headers["Connection"] = "close"

    return complete
