"""What can go wrong with an MCP server, in words for the model, and as the error of an `mcp_call`.

Nothing of the operator's network is repeated, only what a server itself says in its answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, PARSE_ERROR, REQUEST_TIMEOUT
from pydantic import ValidationError

from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.hosted.mcp.http import PrivateAddress
from responses_gateway.hosted.mcp.stdio import ProgramObstacle
from responses_gateway.hosted.mcp.watched_stream import answer_of
from responses_gateway.hosted.result_text import untrusted_text

_LONGEST_MESSAGE = 2000
# Clients read the code of an error as an integer of 32 bits.
_ENDLESS_CODE = 2**31
_LONGEST_PLACE = 200
_REFUSED = {401: "refuses the credentials", 403: "does not allow this", 429: "is busy: too many requests"}

# Their messages tell nothing of what was sent or received.
_PLAIN = (OSError, httpx2.ConnectError, httpx2.StreamError)


class ConnectionLost(Exception):
    """The connection ended before the answer came. `sent`: the server may have seen the request. `failure`: what to say if
    another connection does not help."""

    def __init__(self, sent: bool, failure: ToolFailure | None = None) -> None:
        super().__init__("the connection was lost")
        self.sent = sent
        self.failure = failure


def protocol_failure(message: str, code: int = CONNECTION_CLOSED) -> ToolFailure:
    """Return the failure of a server that cannot be reached, or does not keep to the protocol."""
    return ToolFailure(message, {"error": {"type": "mcp_protocol_error", "code": code, "message": message}})


def http_failure(label: str, status: int) -> ToolFailure:
    """Return the failure of a server that answered with an HTTP status."""
    message = f"The MCP server '{label}' {_REFUSED.get(status, 'answered with an error')} (HTTP {status})."
    return ToolFailure(message, {"error": {"type": "http_error", "code": status, "message": message}})


def timed_out(label: str, seconds: float) -> ToolFailure:
    """Return the failure of a server that did not answer in time."""
    return protocol_failure(f"The MCP server '{label}' did not answer within {seconds:g} seconds.", REQUEST_TIMEOUT)


def lost(label: str) -> ToolFailure:
    """Return the failure of a request whose connection ended."""
    return protocol_failure(f"The connection to the MCP server '{label}' was lost before it answered.")


def no_message(label: str) -> ToolFailure:
    """Return the failure of a request whose answer cannot be read."""
    return protocol_failure(f"The answer of the MCP server '{label}' does not keep to the protocol.", PARSE_ERROR)


def refused_answer(label: str, problem: str) -> ToolFailure:
    """Return the failure of a request whose answer was refused because it is `problem`."""
    return protocol_failure(f"The answer of the MCP server '{label}' was refused: it is {problem}.", INTERNAL_ERROR)


def server_failure(label: str, error: MCPError) -> ToolFailure:
    """Return the failure of a request that the server answered with an error."""
    answer = answer_of(error)
    if answer is not None and answer.http is not None and not answer.http.explained:
        return http_failure(label, answer.http.status)
    text = untrusted_text(error.message[:_LONGEST_MESSAGE]) or "no message"
    code = error.code if abs(error.code) < _ENDLESS_CODE else INTERNAL_ERROR
    details: dict[str, Any] = {"type": "mcp_protocol_error", "code": code, "message": text}
    return ToolFailure(f"The MCP server '{label}' answered with an error: {text}", {"error": details})


def connect_failure(label: str, error: BaseException, status: int | None, problem: str | None) -> ToolFailure:
    """Return the failure of connecting."""
    causes = list(_causes(error))
    if problem is not None:
        return refused_answer(label, problem)
    if status is not None:
        return http_failure(label, status)
    if any(isinstance(cause, PrivateAddress) for cause in causes):
        return protocol_failure(f"The MCP server '{label}' is not connected to: its host has no public address.")
    if any(isinstance(cause, ProgramObstacle) for cause in causes):
        return protocol_failure(f"The MCP server '{label}' cannot be started.")
    for cause in causes:
        if isinstance(cause, MCPError) and cause.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT):
            return server_failure(label, cause)
    if any(isinstance(cause, ValidationError) for cause in causes):
        return protocol_failure(f"The MCP server '{label}' does not keep to the protocol.", INTERNAL_ERROR)
    return protocol_failure(f"The MCP server '{label}' cannot be reached.")


def describe(error: BaseException) -> str:
    """Describe an error for the log of the operator. What may repeat a URL with a key, or an answer, is named by its type."""
    return "; ".join(map(_described, _causes(error)))


def obstacle_of(failure: BaseException) -> str | None:
    """Return why the program of a server cannot be started, for the operator; None if that is not what failed."""
    causes = () if failure.__cause__ is None else _causes(failure.__cause__)
    return next((str(cause) for cause in causes if isinstance(cause, ProgramObstacle)), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors in a group, at any depth."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _causes(part)
    else:
        yield error


def _described(cause: BaseException) -> str:
    if isinstance(cause, ProgramObstacle):
        return str(cause)
    name = type(cause).__name__
    if isinstance(cause, ValidationError):  # it may repeat the answer: only the place of the first error is named
        place = ".".join(map(str, cause.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]))
        return f"{name} at {place[:_LONGEST_PLACE]!r}"
    return f"{name}: {cause}" if isinstance(cause, _PLAIN) else name
