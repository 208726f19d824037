"""What a stream needs next from whoever feeds it, and how a turn of the model has ended.

A call may wait for a `Verdict`: does its input match the grammar of the tool? Such a call is added to the stream at once, but
its input is held until the answer is complete, and with it all that comes behind the call. Who judges, and how, is not known
here. If the stream fails meanwhile, the input goes out as the model wrote it.

An input that the model did not close (`unclosed`) waits for a verdict in any case, though it was streamed: it is handed over
only if the grammar accepts it, and never corrected. Else, and without a verdict, the call is incomplete."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from responses_gateway.parsers import marked_call
from responses_gateway.stream.items.calls import CustomCallItem, as_shown, can_run
from responses_gateway.stream.lifecycle.machine import Lifecycle, Stop
from responses_gateway.stream.options import StreamOptions
from responses_gateway.stream.outcomes import TurnEnd
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.tools import Grammar, ToolTable, ToolTarget, target_of

# Why an answer broke off, as the stream shows it: its body ended, the engine behind the server died, the server aborted it.
BrokenOff: TypeAlias = Literal["eof", "engine", "abort"]
# Repairs of markup that began like a call, and of which no call came.
_UNREAD = frozenset({"cut_markup", "malformed_markup", "nameless_call_as_text", "arguments_of_no_call"})
_TEXTS = frozenset({"reasoning", "message"})


class CallToRun(NamedTuple):
    """A call of a hosted tool that the model has made: the chat name, the tool, the JSON of its arguments, and the JSON of what
    the server wants back with it, if it has any."""

    name: str
    target: ToolTarget
    arguments: str
    extra: str


class Verdict(NamedTuple):
    """Whether the input of a custom tool may be handed over (`judge`, `refuse`): the chat name of its call, the input, and
    whether the model left it `unclosed`, so that it passes only if its grammar accepts it."""

    name: str
    text: str
    unclosed: bool


class RunCalls(NamedTuple):
    """The outcomes of calls of hosted tools, in order (`finish_call`): of the open one, and of those held behind it."""

    calls: Sequence[CallToRun]


class AnotherTurn(NamedTuple):
    """The model's next answer, for which it gets the results of its calls, as far as there are any yet (`next_turn`). `again`:
    the last one ended early, and the model is asked to go on; if that fails (`fail`), the response ends as it was."""

    again: bool = False


class Continue(NamedTuple):
    """Another backend that continues the answer (`resume`, `restart`), or the end (`fail`). `error`: what the backend sent."""

    cause: BrokenOff
    error: ApiError | None


class NotAnswered(NamedTuple):
    """The answer to another request, since the backend sent this in the place of one (`ask_again`), or the end (`fail`)."""

    error: ApiError


class Ended(NamedTuple):
    """Nothing: all but the terminal event is written."""


# None: more of the backend's body (`feed`), or its end (`finish`).
Needs: TypeAlias = Verdict | RunCalls | AnotherTurn | Continue | NotAnswered | Ended | None


def waiting_call(lifecycle: Lifecycle, grammars: Mapping[str, Grammar]) -> Verdict | None:
    """Return the verdict that the open call waits for. None is needed in an answer that was cut."""
    call = lifecycle.call
    if call is None or lifecycle.turn.finish_reason != "stop" or not isinstance(call.item, CustomCallItem):
        return None
    unclosed = call.item.expected and not (call.whole or call.cut)
    if (call.deferred and call.whole) or (unclosed and call.made.name in grammars):
        return Verdict(call.made.name, call.item.input_of(call.arguments.text), unclosed)
    return None


def close_judged(lifecycle: Lifecycle, replacement: str | None) -> None:
    """Close the call that waits, with this input in place of its own if it is not None."""
    assert lifecycle.call is not None
    assert isinstance(lifecycle.call.item, CustomCallItem)
    lifecycle.call.accepted = True
    lifecycle.call.item.replacement = replacement
    lifecycle.step(Stop())


def calls_to_run(lifecycle: Lifecycle, tools: ToolTable) -> RunCalls:
    """Return the calls of hosted tools for which an outcome is needed: the open one, and those that are held behind it."""
    assert lifecycle.call is not None
    made = lifecycle.call.made
    calls = [(made.name, lifecycle.call.arguments.text, made.extra)]
    if lifecycle.pending is not None:
        calls += lifecycle.pending.whole_calls()
    hosted: list[CallToRun] = []
    for name, arguments, extra in calls:
        target = target_of(tools, name)
        if target is not None and target.hosted and not (target.needs_approval and can_run(arguments)):
            hosted.append(CallToRun(name, target, as_shown(arguments), extra))
    return RunCalls(hosted)


def turn_end(lifecycle: Lifecycle, repairs: Mapping[str, int], options: StreamOptions) -> TurnEnd:
    """Return how the present turn has ended. `repairs` are those of its last answer."""
    turn = lifecycle.turn
    calls = turn.calls - turn.broken_calls
    text = ""
    thought = ""
    if not calls:  # else it does not matter
        items = [json.loads(item) for item in lifecycle.writer.done[turn.first_item :]]
        thought = _text_of(item for item in items if item["type"] == "reasoning")
        text = "" if turn.thought_repeated else _text_of(item for item in items if item["type"] == "message")
    return TurnEnd(
        turn.finish_reason,
        turn.says_call,
        calls,
        turn.broken_calls,
        not _UNREAD.isdisjoint(repairs),
        text,
        thought,
        options.tools.keys(),
        tool_ran(lifecycle, options),
        turn.stop_string is not None,
    )


def _text_of(items: Iterable[Mapping[str, Any]]) -> str:
    """Return the texts of items, each on lines of its own."""
    parts = [part for item in items for part in item.get("content") or ()]
    return "\n\n".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def tool_ran(lifecycle: Lifecycle, options: StreamOptions) -> bool:
    """Tell whether the model is in the middle of its work, because it has got the output of a tool."""
    judged = options.early_ends
    return (judged is not None and judged.tool_ran) or any(turn.hosted_calls for turn in lifecycle.turns)


def may_call_again(lifecycle: Lifecycle, options: StreamOptions) -> bool:
    """Tell whether the model could make a call if it went on, and none of this turn was written: its client has that."""
    turn = lifecycle.turn
    if options.allowed == frozenset() or lifecycle.out_of_calls or not turn.may_call:
        return False
    return all(json.loads(item)["type"] in _TEXTS for item in lifecycle.writer.done[turn.first_item :])


def is_no_answer(lifecycle: Lifecycle, options: StreamOptions) -> bool:
    """Tell whether the open thought, which is all that the model has said, cannot be an answer, because the model is in the
    middle of its work: then it goes on from there."""
    if not options.goes_on or lifecycle.item is None:
        return False
    return tool_ran(lifecycle, options) or marked_call(lifecycle.item.text, options.tools.keys()) == "whole"
