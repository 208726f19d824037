"""The ids of the markers by which the tokens of a thought are counted."""

from __future__ import annotations

from responses_gateway.parsers.thought_tokens import (
    ThoughtTokens,
    call_openings,
    item_markers,
    thought_markers,
    thought_tokens,
)


def test_markers_that_are_single_tokens_tell_where_a_thought_begins_and_ends() -> None:
    assert {"<think>", "</think>", "<tool_call>"} <= set(thought_markers())
    found = thought_tokens({"<think>": 1, "</think>": 2, "<tool_call>": 3, "other": 4})
    assert found == ThoughtTokens(frozenset({1}), frozenset({2}), frozenset({3}))


def test_without_both_ids_do_not_tell() -> None:
    assert thought_tokens({"<think>": 1, "<tool_call>": 3}) is None
    assert thought_tokens({}) is None


def test_calls_begin_with_markers() -> None:
    assert "<tool_call>" in call_openings()


def test_a_marker_tells_what_begins_behind_it() -> None:
    item_markers.cache_clear()  # because a test that does not count for the coverage may have asked
    markers = item_markers()
    assert (markers["<think>"], markers["</think>"]) == ("reasoning", "message")
    assert (markers["<tool_call>"], markers["</tool_call>"]) == ("call", "message")
