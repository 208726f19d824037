"""A last delta that repeats all that was thought, and said."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stream.stream_player import arguments, call, chunk, finish, play, text, think

THOUGHT = "Let me think about it first."
TEXT = "Hello there, my friend."
THOUGHTS = [think(THOUGHT[:9]), think(THOUGHT[9:])]
TEXTS = [text(TEXT[:5]), text(TEXT[5:])]


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", "thinking", "reasoning_text"])
@pytest.mark.parametrize("before", [TEXTS, []])
@pytest.mark.parametrize("content", [TEXT, "", None])
def test_neither_thought_nor_text_comes_twice(field: str, before: list[bytes], content: str | None) -> None:
    last = chunk({"content": content, field: THOUGHT}, finish="stop")
    played = play(*THOUGHTS, *before, last)
    # An answer of nothing but a thought is shown as a text, too.
    assert played.said == [("reasoning", THOUGHT), ("text", TEXT if before or content else THOUGHT)]
    assert played.translator.repairs["message_repeated"] == 1 + bool(before and content)


def test_nor_do_they_behind_the_reason() -> None:
    played = play(*THOUGHTS, *TEXTS, finish(), chunk({"reasoning": THOUGHT, "content": TEXT}))
    assert played.said == [("reasoning", THOUGHT), ("text", TEXT)]


def test_so_it_is_behind_a_call() -> None:
    called = [call(0, "a", "weather"), arguments(0, '{"a": 1}')]
    last = chunk({"reasoning": THOUGHT, "tool_calls": []}, finish="tool_calls")
    assert play(*THOUGHTS, *called, last).said == [("reasoning", THOUGHT), ("call", "weather", '{"a": 1}')]


@pytest.mark.parametrize(
    ("pieces", "last"),
    [
        ([think("hm, "), think("well")], {"reasoning": "hm, well"}),  # short enough to be said twice
        (THOUGHTS, {"reasoning": THOUGHT + " And more."}),
        ([*TEXTS, *THOUGHTS], {"content": TEXT}),
        (TEXTS, {"reasoning": THOUGHT, "content": TEXT}),
    ],
)
def test_what_is_no_repetition_is_said(pieces: list[bytes], last: dict[str, Any]) -> None:
    whole, other = play(*pieces, chunk(last), finish()), play(*pieces, chunk(last, finish="stop"))
    assert other.said == whole.said
    assert "message_repeated" not in other.translator.repairs
