"""One turn of the model: one of its answers within the response."""

from __future__ import annotations

from proxy.wire.deltas import FinishReason, Usage
from proxy.wire.item_ids import turn_mark


class Turn:
    """What is known of a turn. It begins as the `number`th of its response, behind the first `first_item` items."""

    __slots__ = (
        "call_cut", "client_calls", "counted", "finish_reason", "first_item", "hosted_calls", "mark", "reasoning_unknown",
        "usage", "visible",
    )  # fmt: skip

    def __init__(self, number: int = 1, first_item: int = 0) -> None:
        self.mark = turn_mark(number)  # in the ids of its items
        self.first_item = first_item  # how many items of the response come before it
        self.finish_reason: FinishReason | None = None
        self.visible = False  # something that a user sees (text, refusal, call) was opened
        self.call_cut = False  # a call was closed as incomplete, or left out
        self.client_calls = 0  # calls that the client has to answer
        self.hosted_calls = 0  # calls that the gateway has run
        self.usage: Usage | None = None  # as the backend reports it
        self.counted: Usage | None = None  # as its token ids tell it, where no backend reports it
        self.reasoning_unknown = False  # no backend reports the reasoning of all of it

    @property
    def used(self) -> Usage | None:
        """What the backend reports, or what its token ids tell; None where neither is known."""
        return self.counted if self.usage is None else self.usage

    def begin_again(self) -> None:
        """Forget how the answer ended: another backend continues it, or answers in its place."""
        self.finish_reason = None
        self.usage = None


def usage_of(turns: list[Turn]) -> Usage | None:
    """Return the usage of all turns together, a new object. Turns of which nothing is known are left out."""
    total: Usage | None = None
    for turn in turns:
        total = _sum(total, turn.used)
    if total is not None and any(turn.reasoning_unknown for turn in turns):
        total.reasoning = None
    return total


def _sum(earlier: Usage | None, later: Usage | None) -> Usage | None:
    fields = Usage.__struct_fields__
    if later is None:
        return earlier
    if earlier is None:
        return Usage(*(getattr(later, name) for name in fields))
    return Usage(*(_sum_of(getattr(earlier, name), getattr(later, name)) for name in fields))


def _sum_of(earlier: int | None, later: int | None) -> int | None:
    return later if earlier is None else earlier if later is None else earlier + later
