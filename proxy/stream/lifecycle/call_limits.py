"""Which calls a request permits: by name (`tool_choice`), by number (`max_tool_calls`), one at a time
(`parallel_tool_calls`)."""

from __future__ import annotations

from proxy.stream.options import StreamOptions
from proxy.wire.deltas import ToolCall


class CallLimits:
    """Counts the calls of a response. `suppressed` are the model's numbers of calls that were not permitted in this turn."""

    __slots__ = ("_allowed", "_call_ids", "_count", "_count_before", "_options", "suppressed")

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._allowed = options.allowed
        self._call_ids = set(options.call_ids)
        self._count = 0
        self._count_before = 0  # in earlier turns
        self.suppressed: set[int] = set()

    def begin_turn(self, *, may_call: bool) -> None:
        """Count the calls of another turn; none is permitted unless it `may_call`."""
        self._count_before = self._count
        self._allowed = self._options.allowed_later if may_call else frozenset()
        self.suppressed = set()

    def permits(self, call: ToolCall, held: int) -> bool:
        """Tell whether a call is permitted, while so many are `held` that are not counted yet."""
        options = self._options
        if self._allowed is not None and call.name not in self._allowed:
            return False
        calls = self._count + held
        if options.parallel_calls is False and calls > self._count_before:
            return False
        return options.max_calls is None or calls < options.max_calls

    def count(self) -> None:
        """Count a call of this turn."""
        self._count += 1

    def count_approved(self) -> None:
        """Count a call that the client has approved, as one of an earlier turn."""
        self._count += 1
        self._count_before += 1

    def new_call_id(self, given: str, token: str) -> str:
        """Return the id of the next call: the one `given` by the backend where it can be one and is new, else one made of the
        response's `token`."""
        call_id = given
        if not 0 < len(given) <= 64 or given in self._call_ids or not given.isprintable():
            call_id = f"call_{token}{self._count:04x}"
        self._call_ids.add(call_id)
        return call_id

    def as_turn_began(self, options: StreamOptions) -> CallLimits:
        """Return the limits as they were when this turn began."""
        limits = CallLimits(options)
        limits._allowed = self._allowed
        limits._count = self._count_before
        limits._count_before = self._count_before
        return limits
