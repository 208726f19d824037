"""The turns of the model within one response: what is known of each, and which calls it may make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from responses_gateway.stream.items.text_items import ReasoningDetails
from responses_gateway.stream.options import StreamOptions
from responses_gateway.stream.outcomes import TurnOutcome
from responses_gateway.stream.writer.interface import Phase
from responses_gateway.wire.deltas import FinishReason, ToolCall, Usage
from responses_gateway.wire.hosted import ImageUsage
from responses_gateway.wire.tools import target_of

# Of hosted tools: a model that repeats itself would otherwise use up the calls of the response in one turn.
CALLS_OF_A_TURN = 32


NO_IMAGES = ImageUsage()


class Turn:
    """What is known of a turn. It begins behind the first `first_item` items of its response; their ids end with its `mark`."""

    __slots__ = (
        "broken_calls", "call_cut", "call_ids", "calls", "checked", "client_calls", "continued", "counted", "details",
        "dropped_calls", "finish_reason", "first_item", "hosted_calls", "hosted_numbers", "images", "mark", "may_call",
        "outcome", "pending_calls", "reasoning_unknown", "same", "says_call", "stop_string", "thought_repeated", "usage",
        "usage_at_end", "visible",
    )  # fmt: skip

    def __init__(self, first_item: int = 0, mark: str = "") -> None:
        self.mark = mark
        self.first_item = first_item
        self.finish_reason: FinishReason | None = None
        self.stop_string: str | None = None  # which one of those that the request names ended it
        self.says_call = False  # the backend says that the model ended with calls
        self.outcome: TurnOutcome | None = None  # where answers are judged at their ends
        self.continued = False  # it ended early, and the model was asked to go on
        self.may_call = True
        self.same = False  # it says the same as the one that it follows on
        self.visible = False  # something that a user sees (text, refusal, call) was opened
        self.thought_repeated = False  # its message is its thought once more
        self.checked: defaultdict[str, int] = defaultdict(int)  # how valid its calls were, by `CheckedCall.label`
        self.call_cut = False  # a call was closed as incomplete, or left out
        self.call_ids: dict[int, str] = {}  # by the model's numbers, where reasoning is encrypted
        self.calls = 0  # all that were begun, and those that are not permitted
        self.broken_calls = 0  # calls that were cut, and those whose arguments are not closed
        self.client_calls = 0  # calls that the client has to answer
        self.hosted_calls = 0  # calls that the gateway has run
        self.pending_calls = 0  # calls whose results may come later, behind which the model has said nothing
        self.hosted_numbers: set[int] = set()  # the model's numbers of the calls of hosted tools that were permitted
        self.dropped_calls = 0  # calls of hosted tools that were too many
        self.usage: Usage | None = None  # as the backend reports it
        self.usage_at_end = False  # it came with the end of the answer, or behind it: nothing is missing
        self.details: ReasoningDetails | None = None  # what the server wants back of it, once anything came
        self.images = NO_IMAGES  # what the images that were made of it have cost
        self.counted: Usage | None = None  # as its token ids tell it, where no backend reports it
        self.reasoning_unknown = False  # no backend reports the reasoning of all of it

    def wanted_back(self) -> ReasoningDetails:
        """Return what keeps all that the server wants back."""
        if self.details is None:
            self.details = ReasoningDetails()
        return self.details

    @property
    def used(self) -> Usage | None:
        """What the backend reports, or what its token ids tell; None where neither is known."""
        return self.counted if self.usage is None else self.usage

    @property
    def asks_again(self) -> bool:
        """Whether the model answers again in the same response: it has made calls, and none that the client has to answer."""
        return bool(self.hosted_calls or self.pending_calls) and not self.client_calls

    @property
    def has_calls(self) -> bool:
        """Whether a call of it was closed, and the model has not gone on by itself since."""
        return self.client_calls + self.hosted_calls + self.pending_calls > 0

    def reopen(self) -> None:
        """Forget how the answer ended: another backend continues it, or answers in its place."""
        self.finish_reason = None
        self.stop_string = None
        self.says_call = False
        self.usage = None
        self.usage_at_end = False


class CallLimits:
    """Which calls are permitted: by name (`tool_choice`), by number (`max_tool_calls`), one at a time (`parallel_tool_calls`),
    and so many of hosted tools in a turn. `suppressed` are the model's numbers of calls that were not permitted in this
    turn; `phase` is that of messages: what is said while calls are pending is not the answer yet."""

    __slots__ = ("_allowed", "_call_ids", "_count", "_count_before", "_options", "_phase_before", "phase", "suppressed")

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._allowed = options.allowed
        self._call_ids = set(options.call_ids)
        self._count = 0
        self._count_before = 0  # in earlier turns
        self.suppressed: set[int] = set()
        self.phase: Phase = ""
        self._phase_before: Phase = ""  # when the turn began

    def begin_turn(self, *, may_call: bool) -> None:
        """Count the calls of another turn; none is permitted unless it `may_call`."""
        self._count_before = self._count
        self._phase_before = self.phase
        self._allowed = self._options.allowed_later if may_call else frozenset()
        self.suppressed = set()

    def permits(self, call: ToolCall, held: int, turn: Turn) -> bool:
        """Tell whether a call of this turn is permitted, while so many are `held` that are not counted yet."""
        return self._permits(call, held) and self._is_within_turn(call, turn)

    def _is_within_turn(self, call: ToolCall, turn: Turn) -> bool:
        """Tell whether a call, if it is of a hosted tool, is one of those that a turn may have."""
        hosted = self._options.hosted
        target = target_of(self._options.tools, call.name) if hosted is not None else None
        if hosted is None or target is None or not target.hosted or call.index in turn.hosted_numbers:
            return True
        if len(turn.hosted_numbers) >= CALLS_OF_A_TURN:
            turn.dropped_calls += 1
            return False
        turn.hosted_numbers.add(call.index)
        return True

    def _permits(self, call: ToolCall, held: int) -> bool:
        options = self._options
        if self._allowed is not None and call.name not in self._allowed:
            return False
        calls = self._count + held
        if options.parallel_calls is False and calls > self._count_before:
            return False
        return options.max_calls is None or calls < options.max_calls

    @property
    def exhausted(self) -> bool:
        """Whether the response has all the calls that it may have."""
        return self._options.max_calls is not None and self._count >= self._options.max_calls

    def count(self) -> None:
        """Count a call of this turn."""
        self._count += 1

    def count_approved(self, calls: int) -> None:
        """Count calls that the client has approved, as those of an earlier turn."""
        self._count += calls
        self._count_before += calls

    def new_call_id(self, original: str, token: str) -> str:
        """Return the id of the next call: the `original` of the backend where it can be one and is new, else one made of the
        response's `token`."""
        call_id = original
        if not 0 < len(original) <= 64 or original in self._call_ids or not original.isprintable():
            call_id = f"call_{token}{self._count:04x}"
        self._call_ids.add(call_id)
        return call_id

    def as_turn_began(self, options: StreamOptions) -> CallLimits:
        """Return the limits as they were when this turn began."""
        limits = CallLimits(options)
        limits._allowed = self._allowed
        limits._count = self._count_before
        limits._count_before = self._count_before
        limits.phase = self._phase_before
        limits._phase_before = self._phase_before
        return limits


def usage_of(turns: list[Turn]) -> Usage | None:
    """Return the usage of all turns together, a new object. Turns of which nothing is known are left out."""
    total: Usage | None = None
    reasoning_unknown = False
    for turn in turns:
        reasoning_unknown = reasoning_unknown or turn.reasoning_unknown
        used = turn.used
        if used is not None:
            total = msgspec.structs.replace(used) if total is None else _sum(total, used)
    if total is not None and reasoning_unknown:
        total.reasoning = None
    return total


def output_of(turns: Sequence[Turn], usage: Usage | None, chunks: int, kinds: Mapping[str, int]) -> int:
    """Return the output tokens of turns: an estimate by what came (`chunks`, `kinds` of tokens) if one was cut off early."""
    reported = None if usage is None else usage.output
    if reported is not None and (not turns[1:] or all(turn.used is not None for turn in turns)):
        return reported
    return max(reported or 0, chunks, sum(kinds.values()))


def usage_shown(turns: list[Turn], total: Usage | None, done: Sequence[str]) -> Usage | None:
    """Return what of the `total` usage of a response its client gets. Turns from which the model was asked to go on are left
    out, because clients take the usage for the size of their context. `done` are the items of the response as JSON."""
    left_out = {id(turn) for turn, later in pairwise(turns) if turn.continued and later.used is not None}
    kept = [turn for turn in turns if id(turn) not in left_out]
    usage = usage_of(kept)
    if total is None or not left_out or usage is None:
        return total
    thought = any(item.startswith('{"type":"reasoning"') for item in done[kept[-1].first_item :])
    if thought and not usage.reasoning and usage.output and total.output:
        usage.reasoning = round((total.reasoning or 0) * usage.output / total.output)
    return usage


def images_of(turns: list[Turn]) -> ImageUsage | None:
    """Return what the images of all turns have cost; None if no server told."""
    total: ImageUsage | None = None
    for turn in turns:
        if turn.images is not NO_IMAGES:
            total = turn.images if total is None else total + turn.images
    return total


def _sum(earlier: Usage, later: Usage) -> Usage:
    return Usage(*(_sum_of(getattr(earlier, name), getattr(later, name)) for name in Usage.__struct_fields__))


def _sum_of(earlier: int | None, later: int | None) -> int | None:
    return later if earlier is None else earlier if later is None else earlier + later
