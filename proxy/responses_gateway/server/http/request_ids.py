"""The id of a request: on its answer, which users quote, and in the log, where operators look for it; and what else a log line
needs to know."""

from __future__ import annotations

import os
import re

from aiohttp import web

from responses_gateway.telemetry.logs import Exchange

_GIVEN = re.compile(r"[\x21-\x7e]{1,128}")
# Backends get a UUID that follows from it.
REQUEST_ID: web.RequestKey[str] = web.RequestKey("request_id", str)
EXCHANGE: web.RequestKey[Exchange] = web.RequestKey("exchange", Exchange)


def request_id_of(request: web.Request) -> str:
    """Return the id that the client gave to a request, or a new one."""
    given = request.headers.get("X-Request-Id", "")
    return given if _GIVEN.fullmatch(given) else new_request_id()


def new_request_id() -> str:
    """Return an id for a request whose client gave none."""
    return f"req_{os.urandom(16).hex()}"


def name_answer(response: web.StreamResponse, request_id: str | None) -> None:
    """Put the request id on an answer, and the name of this server."""
    if request_id is not None:
        response.headers["X-Request-Id"] = request_id
    response.headers["Server"] = "responses-gateway"
