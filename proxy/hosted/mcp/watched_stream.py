"""The messages of an MCP server on their way to the library's session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import anyio
from mcp.shared.message import SessionMessage


class WatchedStream:
    """The stream of a transport's messages; `mend` is called with each, and `ended` when there are no more."""

    def __init__(self, stream: Any, ended: Callable[[], None], mend: Callable[[SessionMessage], None]) -> None:
        self._stream = stream
        self._ended = ended
        self._mend = mend

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
            self._mend(item)
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
