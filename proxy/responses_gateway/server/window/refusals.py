"""Requests that are refused before a response begins (no key, a limit, a wrong path): rows of the window like all others."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
from aiohttp import web

from responses_gateway.server.access.middleware import UNVERSIONED
from responses_gateway.server.generation.request_log.facts import NO_GAPS, Account, RequestFacts, StreamTimes
from responses_gateway.server.generation.request_log.recent_requests import RecentRequests
from responses_gateway.server.generation.request_log.request_log import client_name
from responses_gateway.server.http.exchange import EXCHANGE
from responses_gateway.telemetry import logs

# Answers that are no refusals: to a client that left, and to one that then continues without a WebSocket.
_NO_REFUSALS = frozenset({426, 499})
_BAD_REQUEST = 400  # the message of this status may quote the request
_LONGEST_PATH = 80  # characters of a path, which clients may invent


class _Error(msgspec.Struct):
    code: str | None = None
    message: str = ""


class _Body(msgspec.Struct):
    error: _Error


def note_refusals(recent: RecentRequests | None) -> Callable[[web.Request, web.StreamResponse, float], None]:
    """Return what adds a summary for each answer that is an error and took so many seconds, unless its request has a log of its
    own. None: there is no window."""

    def note(request: web.Request, response: web.StreamResponse, seconds: float) -> None:
        is_refusal = response.status not in _NO_REFUSALS and not request[EXCHANGE].has_log
        if recent is not None and is_refusal and _is_for_the_api(request.path):
            recent.add([_refused(recent.new_id(), request, response, seconds)])

    return note


def _is_for_the_api(path: str) -> bool:
    """Tell whether a client of the API may have sent this, perhaps with a wrong base URL."""
    return path.startswith("/v1/") or path.strip("/").partition("/")[0] in UNVERSIONED


def _refused(facts_id: str, request: web.Request, response: web.StreamResponse, seconds: float) -> RequestFacts:
    now = time.time()
    error = _error_in(response)
    exchange = request[EXCHANGE]
    fields = {
        "request_id": exchange.request_id,
        "key": exchange.client,
        "path": f"{request.method[:20]} {request.path[:_LONGEST_PATH]}",
        "outcome": "rejected" if response.status < 500 else "failed",
        "status": response.status,
        "seconds": round(seconds, 3),
        "code": error.code,
        "error": error.message[:200] if response.status != _BAD_REQUEST else None,
    }
    return RequestFacts(
        request_id=exchange.request_id,
        id=facts_id,
        client=client_name(request.headers),
        account=Account(),
        quotes_backends=False,
        began=0.0,
        started=now - seconds,
        times=StreamTimes(0.0, [*NO_GAPS]),
        ended=now,
        rejected=logs.present(fields),
    )


def _error_in(response: web.StreamResponse) -> _Error:
    """Return the error that is the answer; an empty one for an answer that is relayed."""
    if isinstance(response, web.Response) and isinstance(response.body, bytes):
        try:
            return msgspec.json.decode(response.body, type=_Body).error
        except msgspec.DecodeError:
            pass
    return _Error()
