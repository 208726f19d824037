"""The end of a response whose process died, and that no other one can take over."""

from __future__ import annotations

from responses_gateway.server.generation.generation import LOST
from responses_gateway.state import Abandoned, AbandonedEnd, EventRow
from responses_gateway.stream.stored.abandoned import fail_stream, with_status

_CODE = "server_error"
# The error in the terminal event of a cancelled response: there is no event `response.cancelled`.
_CANCELLED = "The response was cancelled."


def end_lost(lost: Abandoned, message: str = LOST) -> AbandonedEnd:
    """Return the end of a response: failed, or cancelled if its client has cancelled it."""
    error = {"code": _CODE, "message": _CANCELLED if lost.cancelled else message}
    number = lost.rows[-1].next if lost.rows else 0
    failed = fail_stream(b"".join(row.data for row in lost.rows), number, lost.head, lost.tail, error)
    last = EventRow(number, failed.next_number, failed.events) if lost.rows else None
    if lost.cancelled:
        return AbandonedEnd("cancelled", with_status(lost.head, lost.tail, "cancelled", None), failed.output, last)
    return AbandonedEnd("failed", failed.head, failed.output, last)
