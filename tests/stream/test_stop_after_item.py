"""A response that is asked to end behind the item that is open: `Translator.stop_after_item`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.stream.items.hosted import CallOutcome, HostedOptions
from responses_gateway.stream.options import CODEX
from responses_gateway.stream.tape import Call, Tape
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import server_error
from responses_gateway.wire.tools import ToolTarget
from tests.stream.stream_player import (
    DONE,
    NOW,
    TOOLS,
    Play,
    call,
    calls_to_run,
    event,
    finish,
    judged,
    new_translator,
    options,
    text,
    think,
    usage,
    wants_turn,
)
from tests.stream.test_hosted_calls import TOOLS as HOSTED
from tests.thoroughness import examples

HOSTED_TOOLS = {**HOSTED, "slow": ToolTarget("function", "slow", asynchronous=True)}

# Of the kinds of pieces that a model may send, what it has said behind each.
PIECES = {
    "think": think("Hm, "),
    "text": text("Well, "),
    "blank": text("\n"),
    "call": call(0, "a", "clock", "{}"),
    "ask": call(1, "b", "docs__ask", '{"q":1}'),
    "later": call(2, "c", "slow", "{}"),
}


def play(pieces: list[bytes], place: int, *, tape: list[Call] | None = None, hosted: bool = True) -> Play:
    """Feed the pieces; ask behind so many of them. Calls of hosted tools are run, and the model answers `Done.`"""
    more = {"tools": HOSTED_TOOLS, "hosted": HostedOptions()} if hosted else {"tools": TOOLS}
    keeping = Tape(lambda: NOW)
    playing = Translator(options(**more), keeping.clock)
    if tape is not None:
        keeping.attach(playing, lambda made, _: tape.append(made))
    steps = [playing.start]
    steps += [lambda piece=piece: playing.feed(piece) for piece in (*pieces, DONE)]  # type: ignore[misc]
    out = []
    for number, step in enumerate(steps):
        out.append(step())
        if number == place:
            out.append(playing.stop_after_item("steered"))
    asked = place < len(steps)
    while not playing.ended:
        if calls_to_run(playing):
            out.append(playing.finish_call(CallOutcome({"output": "yes"})))
        elif wants_turn(playing):
            if place == -1 or not asked:
                out.append(playing.stop_after_item("steered"))
            playing.next_turn(None)
        else:
            out.append(playing.feed(text("Done.") + finish() + DONE) + playing.finish())
    return judged(b"".join(out), playing)


def reason_of(played: Play) -> str | None:
    details = played.response["incomplete_details"]
    return None if details is None else details["reason"]


def test_the_open_item_is_finished_and_no_other_begins() -> None:
    played = play([think("One. "), think("Two."), text("\n\nAnswer"), finish()], 1)
    assert (played.said, reason_of(played)) == ([("reasoning", "One. Two.")], "steered")
    assert played.translator.incomplete_reason == played.translator.stop_reason


def test_a_call_does_not_begin_behind_a_message() -> None:
    played = play([text("Let me see. "), call(0, "a", "clock", "{}"), finish("tool_calls")], 1)
    assert (played.said, reason_of(played)) == ([("text", "Let me see.")], "steered")


def test_nothing_is_waited_for_where_nothing_is_open() -> None:
    played = play([text("Never read.")], 0)
    assert (played.said, reason_of(played)) == ([], "steered")


def test_a_model_that_ends_by_itself_ends_the_response() -> None:
    played = play([text("Hi"), text(" there"), finish(), usage(prompt_tokens=3, completion_tokens=2)], 1)
    assert (played.said, reason_of(played)) == ([("text", "Hi there")], None)
    assert played.response["usage"]["total_tokens"] == 5


def test_the_calls_of_one_turn_belong_together() -> None:
    both = [call(0, "a", "weather", '{"city":"x"}'), call(1, "b", "clock", "{}"), finish("tool_calls")]
    played = play(both, 1, hosted=False)
    assert ([kind for kind, *_ in played.said], played.response["status"]) == (["call", "call"], "completed")


def test_hosted_tools_finish_and_the_model_is_not_asked_again() -> None:
    asking = [call(0, "a", "docs__ask", '{"q":1}'), call(1, "b", "docs__ask", '{"q":2}'), finish("tool_calls")]
    for place in (1, 2, 3, 4):
        played = play(asking, place)
        assert [(item["output"], item["status"]) for item in played.response["output"]] == [("yes", "completed")] * 2
        assert reason_of(played) == "steered"


def test_a_turn_that_is_not_asked_for_yet_is_not() -> None:
    played = play([PIECES["ask"], finish("tool_calls")], 99)
    assert (len(played.response["output"]), reason_of(played)) == (1, "steered")


@settings(deadline=None, max_examples=examples(120))
@given(st.lists(st.sampled_from(sorted(PIECES)), max_size=7), st.data())
def test_whenever_it_is_asked_for_the_whole_response_begins_like_it(kinds: list[str], data: st.DataObject) -> None:
    """Whatever the model says: the laws hold, all items are whole, and they are those that would have come anyway. Its calls
    made again give the same bytes."""
    pieces = [*(PIECES[kind] for kind in kinds), finish("tool_calls" if {"call", "ask", "later"} & set(kinds) else "stop")]
    place = data.draw(st.integers(-1, len(pieces)))
    made: list[Call] = []
    stopped = play(pieces, place, tape=made)
    whole = play(pieces, 98 if place == -1 else -2)
    assert stopped.said == whole.said[: len(stopped.said)] or reason_of(stopped) is None
    assert all(item.get("status", "completed") == "completed" for item in stopped.response["output"])
    assert reason_of(stopped) in (None, "steered")
    client_calls = any(item["type"] == "function_call" and "async" not in item for item in stopped.response["output"])
    assert not (client_calls and reason_of(stopped)), "who called a tool of its client waits for it"
    again = new_translator(tools=HOSTED_TOOLS, hosted=HostedOptions())
    repeated = b"".join(Tape(lambda: NOW, NOW).play(again, made, lambda _: None))  # type: ignore[arg-type, return-value]
    assert repeated == stopped.data.removesuffix(again.terminal())
    assert json.loads(again.response.json()) == stopped.response


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        (call(0, "a", "clock", '{"a"') + call(1, "b", "clock", "{}"), b""),
        (text("</think>") + call(0, "a", "b", ""), call(0, "b", "shell", '{"a": 1}') + event({"error": {"message": "No."}})),
    ],
)
def test_what_waits_behind_an_open_call_is_left_out_of_a_stream_that_breaks(before: bytes, behind: bytes) -> None:
    playing = Translator(options(tools=TOOLS, client=CODEX), lambda: NOW)
    out = playing.start() + playing.feed(before) + playing.stop_after_item("steered")
    out += playing.feed(behind) + playing.fail(server_error("It broke."))
    assert judged(out, playing, CODEX).response["status"] == "failed"
    assert playing.defect is None
