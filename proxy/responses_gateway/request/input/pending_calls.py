"""Calls of tools with `async: true`, whose outputs may stand anywhere behind them in the input.

What the model has read does not change: a call that had no output when the model went on keeps the hint in the place of its
result. An output that came later is shown with its call once more, where it stands, since chat servers take results of calls
alone, and directly behind them. So one call may have several outputs, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from responses_gateway.request.input.approvals import open_approvals
from responses_gateway.request.input.calls import OUTPUT_TYPES, is_async_call
from responses_gateway.request.input.content import Output
from responses_gateway.request.tools.declarations import PENDING
from responses_gateway.wire.item_ids import TurnKey

# The output of a call that has none yet.
PENDING_OUTPUT = Output(PENDING, [])

_ASYNC_TYPES = frozenset({"function_call", "custom_tool_call"})


def is_other_turn(call: TurnKey | None, said: TurnKey | None, *, is_call: bool) -> bool:
    """Tell whether what the model `said` behind a call belongs to another turn. Where the ids of the items do not tell, further
    calls were made together with it, and anything else was said later."""
    if call is None or said is None:
        return not is_call
    return call != said


def open_calls(items: Sequence[Any]) -> set[int]:
    """Return the positions of the asynchronous calls in a history that have no output yet. `items` may be anything."""
    places: dict[str, set[int]] = {}
    for index, item in enumerate(items):
        kind = item.get("type") if isinstance(item, dict) else None
        call_id = item.get("call_id") if isinstance(kind, str) else None
        if not isinstance(call_id, str):
            continue
        if kind in OUTPUT_TYPES:
            places.pop(call_id, None)
        elif kind in _ASYNC_TYPES and is_async_call(item):
            places.setdefault(call_id, set()).add(index)
    return set().union(*places.values())


def open_items(items: Sequence[Any]) -> set[int]:
    """Return the positions of approvals that are open, and of asynchronous calls without output. `items` may be anything."""
    return open_approvals(items) | open_calls(items)
