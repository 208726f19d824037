"""Arguments that come as a text with the object in it, as Granite 4 and some servers send them."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stream.stream_player import Play, arguments, call, chunk, event, finish, play, tool

OBJECT = '{"city": "Rome\\n \\"é\\" \\\\", "days": [1, {"x": {}}]}'
TEXT = json.dumps(OBJECT)


def said_of(played: Play) -> list[tuple[str, str]]:
    return [(item["status"], item.get("arguments", item.get("input"))) for item in played.response["output"]]


@given(cuts=st.sets(st.integers(1, len(TEXT) - 1)), before=st.sampled_from(["", " ", "{}", "null"]))
def test_the_object_is_the_arguments_wherever_the_text_is_cut(cuts: set[int], before: str) -> None:
    places = [0, *sorted(cuts), len(TEXT)]
    pieces = [TEXT[begin:end] for begin, end in pairwise(places)]
    pieces[0] = before + pieces[0] if not before.strip() else pieces[0]
    played = play(call(0, "a", "weather"), *(arguments(0, piece) for piece in pieces), finish("tool_calls"))
    assert [(status, json.loads(written)) for status, written in said_of(played)] == [("completed", json.loads(OBJECT))]
    assert played.translator.repairs == {"stringified_arguments": 1}


def test_it_is_given_out_as_it_comes() -> None:
    pieces = ['"{\\"', 'city\\": \\"Ro', 'me\\"}', '"']
    played = play(call(0, "a", "weather"), *(arguments(0, piece) for piece in pieces), finish("tool_calls"))
    assert played.deltas("function_call_arguments") == ['{"', 'city": "Ro', 'me"}']


def test_so_it_is_in_an_answer_that_is_not_streamed_and_in_parallel_calls() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [tool(0, "a", "weather", TEXT), tool(1, "b", "clock", TEXT)]}
    whole = event({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
    deltas = chunk({"tool_calls": message["tool_calls"]})
    for played in (play(whole), play(deltas, finish("tool_calls"))):
        assert said_of(played) == [("completed", OBJECT)] * 2


@pytest.mark.parametrize("written", ['"hello"', '"[1]"', "5", '["{}"]', '"', '" {}"'])
def test_any_other_text_is_as_the_model_wrote_it(written: str) -> None:
    assert said_of(play(call(0, "a", "weather", written), finish("tool_calls")))[0][1] in (written, "{}")


def test_the_input_of_a_custom_tool_may_be_a_text_that_looks_like_an_object() -> None:
    played = play(call(0, "a", "patch", '"{\\"path\\": \\"x\\"}"'), finish("tool_calls"))
    assert said_of(played) == [("completed", '{"path": "x"}')]


@pytest.mark.parametrize("end", [[], [finish("length")]])
def test_a_text_that_was_cut_gives_no_call(end: list[bytes]) -> None:
    played = play(call(0, "a", "weather", TEXT[:-9]), *end)
    assert [status for status, _ in said_of(played)] == ["incomplete"]


def test_an_empty_object_in_a_text_may_stand_in_the_place_of_arguments() -> None:
    assert said_of(play(call(0, "a", "weather", '"{}"'), finish("tool_calls"))) == [("completed", "{}")]
    played = play(call(0, "a", "weather", '"{}"'), arguments(0, '{"a": 1}'), finish("tool_calls"))
    assert said_of(played) == [("completed", '{"a": 1}')]
