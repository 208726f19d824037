"""Servers whose pieces of arguments repeat all that came before them."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stream.stream_player import Play, call, chunk, finish, play, tool

WHOLE = '{"city": "Rome: {\\"a\\"}", "days": [1, {"city": "Ro"}], "city2": {"x": ""}}'


def cumulative(pieces: list[str], *, named: bool, index: int | None = 0) -> list[bytes]:
    """Return the chunks of a call whose name comes with each piece, or with the first one."""
    return [call(index, "a", "weather" if named or number == 0 else None, piece) for number, piece in enumerate(pieces)]


def said_of(played: Play) -> list[tuple[str, str]]:
    return [(item["status"], item["arguments"]) for item in played.response["output"]]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("size", [1, 2, 5, 11])
def test_the_pieces_are_read_once(named: bool, size: int) -> None:
    pieces = [WHOLE[:end] for end in range(size, len(WHOLE) + size, size)]
    for again in ([], [WHOLE], [WHOLE, WHOLE]):
        played = play(*cumulative(pieces + again, named=named), finish("tool_calls"))
        assert said_of(played) == [("completed", WHOLE)]
        assert "".join(played.deltas("function_call_arguments")) == WHOLE


@given(cuts=st.sets(st.integers(1, len(WHOLE) - 1)), named=st.booleans(), end=st.booleans())
def test_however_they_are_cut_no_false_call_comes_of_them(cuts: set[int], named: bool, end: bool) -> None:
    pieces = [WHOLE[:cut] for cut in sorted(cuts)] + ([WHOLE] if end else [])
    played = play(*cumulative(pieces, named=named), finish("tool_calls"))
    for status, arguments in said_of(played):
        assert status == "incomplete" or arguments == WHOLE or not _is_json(arguments)


@given(cuts=st.sets(st.integers(1, len(WHOLE) - 1)))
def test_arguments_in_pieces_are_as_they_were(cuts: set[int]) -> None:
    places = [0, *sorted(cuts), len(WHOLE)]
    pieces = [WHOLE[begin:end] for begin, end in pairwise(places)]
    assert said_of(play(*cumulative(pieces, named=False), finish("tool_calls"))) == [("completed", WHOLE)]


@pytest.mark.parametrize("named", [True, False])
def test_an_object_in_an_object_of_the_same_name_is_one(named: bool) -> None:
    pieces = ['{"a":', '{"a": 1}', "}"]
    assert said_of(play(*cumulative(pieces, named=named), finish("tool_calls"))) == [("completed", '{"a":{"a": 1}}')]
    # Where the rest is missing, it may have been all arguments once more.
    played = play(*cumulative(pieces[:2], named=named), finish("tool_calls"))
    assert said_of(played) == [("incomplete", '{"a":{"a": 1}')]


@pytest.mark.parametrize("named", [True, False])
def test_a_stream_that_ends_in_the_middle_gives_no_call(named: bool) -> None:
    pieces = cumulative(['{"a', '{"a": "x', '{"a": "xy", "b'], named=named)
    for end in ([], [finish("length")]):
        assert said_of(play(*pieces, *end)) == [("incomplete", '{"a": "xy", "b')]


def test_parallel_calls_may_repeat_too() -> None:
    first = [tool(0, "a", "weather", '{"a": "x'), tool(0, "a", "weather", '{"a": "xy"}')]
    second = [tool(1, "b", "clock", '{"b"'), tool(1, "b", "clock", '{"b": 2}')]
    chunks = [[first[0]], [first[1]], [first[1], second[0]], [first[1], second[1]]]
    played = play(*(chunk({"tool_calls": entries}) for entries in chunks), finish("tool_calls"))
    assert said_of(played) == [("completed", '{"a": "xy"}'), ("completed", '{"b": 2}')]


def test_what_is_no_repetition_in_the_end_gives_no_call() -> None:
    played = play(*cumulative(['{"a"', '{"a": "x', '{"b": "other", "c": 1}'], named=False), finish("tool_calls"))
    assert [status for status, _ in said_of(played)] == ["incomplete"]


def _is_json(arguments: str) -> bool:
    try:
        json.loads(arguments)
    except ValueError:
        return False
    return True
