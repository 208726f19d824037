"""Calls in the history of a request that repeat earlier ones: the same call, with the same output.

Only the end of the history is looked at, from the last output backwards, and no further than calls repeat: a request has
thousands of items, and nearly all of them are followed by something else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from responses_gateway.request.fields import Object

_LONGEST_CIRCLE = 4  # a model that repeats itself goes round in a circle of at most so many calls
_MOST = 256  # items that are looked at, at most
# Of the same call with the same output: other agents tell, or stop, a model at three to eight of them.
_MANY = 5
NOTICE = (
    "(Notice: this is the fifth time that you have made this same call, and its output was the same each time. Making it again "
    "will change nothing: try something else, or say what keeps you from going on.)"
)
# Words in the names of tools that wait for something: asking again is what they are for.
_POLLERS = frozenset({"stdin", "wait", "poll", "status", "sleep", "watch", "output"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Where items of calls have what was asked for.
_ASKED = ("arguments", "input", "action", "operation")


class RanCall(NamedTuple):
    """A call and its output, as items have them. `place`: of the output among the items, counted from their end."""

    call_id: str
    name: str
    asked: Any
    output: Any
    place: int

    def repeats(self, other: RanCall) -> bool:
        """Tell whether both are the same call with the same output."""
        return self.name == other.name and self.asked == other.asked and self.output == other.output

    @property
    def polls(self) -> bool:
        """Whether its tool waits for something."""
        return not _POLLERS.isdisjoint(word.lower() for word in _WORD.findall(self.name))


def last_calls(items_backwards: Iterable[Any]) -> list[RanCall]:
    """Return the last calls with outputs, the last one first, as far as they repeat one another: those of a circle that the
    model goes round in, or one that repeats nothing. `items_backwards` are items from the last one on."""
    calls: list[RanCall] = []
    outputs: dict[str, tuple[Any, int]] = {}
    for place, item in enumerate(items_backwards):
        if not isinstance(item, Mapping) or place == _MOST:
            break
        kind = item.get("type")
        call_id = item.get("call_id")
        if kind == "reasoning":
            continue
        if not isinstance(kind, str) or not isinstance(call_id, str):
            break  # a message: what came before it belongs to something else
        if kind.endswith("_output"):
            outputs[call_id] = (item.get("output"), place)
        elif call_id in outputs:
            call = _ran_call(item, *outputs.pop(call_id))
            if len(calls) >= _LONGEST_CIRCLE and not any(map(call.repeats, calls[-_LONGEST_CIRCLE:])):
                break
            calls.append(call)
    return calls


class Repeats(NamedTuple):
    """How many calls, of those whose outputs are new in a request, repeat one of the calls before them; `polled`: of tools that
    wait for something."""

    repeated: int = 0
    polled: int = 0


def new_calls(calls: Sequence[RanCall]) -> Sequence[RanCall]:
    """Return those of the last calls whose outputs are new in a request: the model has not spoken since."""
    count = next((number for number, call in enumerate(calls) if call.place != number), len(calls))
    return calls[:count]


def repeats_in(calls: Sequence[RanCall]) -> Repeats:
    """Count the repeats among the last calls, as `last_calls` returns them."""
    repeated = 0
    polled = 0
    for number, call in enumerate(new_calls(calls)):
        if any(map(call.repeats, calls[number + 1 : number + 1 + _LONGEST_CIRCLE])):
            repeated += not call.polls
            polled += call.polls
    return Repeats(repeated, polled)


def calls_to_tell(calls: Sequence[RanCall]) -> list[RanCall]:
    """Return those of the last calls behind whose output the model is to be told that it repeats itself: the fifth of each, so
    that later requests say the same in the same place."""
    counts: list[tuple[RanCall, int]] = []
    repeated: list[RanCall] = []
    for call in reversed(calls):
        place = next((at for at, (other, _) in enumerate(counts) if call.repeats(other)), None)
        if place is None:
            counts = [(call, 1), *counts[: _LONGEST_CIRCLE - 1]]
            continue
        count = counts[place][1] + 1
        counts[place] = (call, count)
        if count == _MANY and not call.polls:
            repeated.append(call)
    return repeated


def with_notices(messages: Sequence[Object], calls: Iterable[RanCall]) -> list[Object]:
    """Return chat messages with a notice behind the outputs of these calls."""
    waiting = {call.call_id for call in calls}
    noticed: list[Object] = []
    for message in reversed(messages):
        if waiting and message.get("role") == "tool" and message.get("tool_call_id") in waiting:
            waiting.discard(message["tool_call_id"])
            body = message["content"]
            longer = [*body, {"type": "text", "text": NOTICE}] if isinstance(body, list) else f"{body}\n\n{NOTICE}"
            message = {**message, "content": longer}  # noqa: PLW2901
        noticed.append(message)
    return noticed[::-1]


def _ran_call(item: Mapping[str, Any], output: Any, place: int) -> RanCall:
    arguments = next((item[field] for field in _ASKED if field in item), None)
    return RanCall(item["call_id"], str(item.get("name") or item.get("type")), arguments, output, place)
