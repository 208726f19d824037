"""What a log of running responses is, where it lives beside the database: quicker to write and to follow.

It holds the events of responses that run, and no others: with the end of a response the database gets its whole log,
together with the response. So the log may lose everything at any moment; who runs the response writes it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from proxy.state.database import StoreUnavailable
from proxy.state.records import EventRow


class EventsUnavailable(StoreUnavailable):
    """The log of running responses cannot be reached. The message is for operators."""


class LiveLog(Protocol):
    """The log. Every method but `close` and `written` raises `EventsUnavailable`."""

    async def open(self) -> None:
        """Connect."""

    async def close(self) -> None:
        """Disconnect."""

    async def append(self, response_id: str, row: EventRow) -> None:
        """Write the next piece of a stream that this process runs. When it raises, the piece is not part of the log."""

    def written(self, response_id: str) -> Sequence[EventRow]:
        """All pieces that this process has appended to a stream, from memory."""

    async def end(self, response_id: str, last: EventRow | None) -> None:
        """The stream has ended with `last`, and all of it is in the database; None if it is to be forgotten at once. Nothing
        can be appended behind it."""

    async def read(self, response_id: str, after: int, within: float) -> list[EventRow]:
        """The next pieces that hold events with numbers above `after`, none missing in between. If there are none, wait so
        many seconds for some."""

    async def cancel(self, response_id: str) -> None:
        """Tell whoever runs the response to end it."""

    async def watch(self, cancelled: Callable[[str], None]) -> None:
        """Call `cancelled` with the id of each response that is to be ended, whoever runs it, until the task is cancelled."""
