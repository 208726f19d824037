"""The messages of an MCP server on their way to the library's session.

The library has one exception for three kinds of errors: those that a server sent, those that stand for an HTTP answer without a
message of the protocol, and those that stand for no answer at all. So those of the first two kinds are marked on their way. The
minor version of the library is pinned, because nothing promises that it keeps the marks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import anyio
from mcp import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError

from responses_gateway.hosted.mcp.http import HttpErrorAnswer


class WatchedStream:
    """The stream of a transport's messages; `mark` is called with each, and `ended` when there are no more."""

    def __init__(self, stream: Any, ended: Callable[[], None], mark: Callable[[SessionMessage], None]) -> None:
        self._stream = stream
        self._ended = ended
        self._mark = mark

    @property
    def last_context(self) -> Any:
        """The context of the last message, which the library uses where it is given."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            item = cast("SessionMessage | Exception", await self._stream.receive())
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._ended()
            raise
        if isinstance(item, SessionMessage):
            self._mark(item)
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> WatchedStream:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> WatchedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> bool | None:
        return cast("bool | None", await self._stream.__aexit__(*raised))


class Answered(NamedTuple):
    """Marks an error that came as an answer. `http`: the HTTP answer, if it has the status of an error. `refused`: what the
    answer was, if it was refused."""

    http: HttpErrorAnswer | None
    refused: str | None


def mark_answered(message: JSONRPCError, http: HttpErrorAnswer | None, refused: str | None) -> None:
    """Mark an error that is passed to the library's session. Its `data`, which nothing reads, is dropped."""
    error = message.error
    message.error = ErrorData(code=error.code, message=error.message, data=Answered(http, refused))


def answer_of(error: MCPError) -> Answered | None:
    """Return the mark of an error; None if the library made it because no answer came."""
    return error.data if isinstance(error.data, Answered) else None
