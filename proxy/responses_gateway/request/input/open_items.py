"""What of a history still waits for its client, so that a summary may not take its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from responses_gateway.request.input.approvals import open_approvals
from responses_gateway.request.input.pending_calls import open_calls


def open_items(items: Sequence[Any]) -> set[int]:
    """Return the positions of approvals that are open, and of asynchronous calls without output. `items` may be anything."""
    return open_approvals(items) | open_calls(items)
