"""A last delta that repeats all that was thought, and said; a text that begins with the thought, in marks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stream.stream_player import arguments, call, chunk, event, finish, play, text, think
from tests.stream.test_thought_watch import watch

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


# ---- the thought in marks, before the text -----------------------------------------------------------------------------


def both(thought: str, content: str) -> bytes:
    """Return a chunk that has a piece of the thought in both places, as MiniMax-M3 sends it."""
    return chunk({"reasoning_content": thought, "content": content})


@pytest.mark.parametrize(
    "pieces",
    [
        [both(THOUGHT[:9], f"<think>{THOUGHT[:9]}"), both(THOUGHT[9:], THOUGHT[9:]), text(f"</think>\n\n{TEXT}")],
        [both(THOUGHT, f"<think>\n{THOUGHT}\n</think>\n\n{TEXT}")],
        [*THOUGHTS, text("<think>"), text(THOUGHT), text("</think>"), *TEXTS],
        [*THOUGHTS, *map(text, f"<think>{THOUGHT}</think>{TEXT}")],
        [*THOUGHTS, text(f"<think>{THOUGHT}</think>"), *TEXTS],
    ],
)
@pytest.mark.parametrize("detects", [True, False])
def test_a_text_begins_behind_the_thought_that_it_repeats(pieces: list[bytes], *, detects: bool) -> None:
    played = play(*pieces, finish(), markup=watch() if detects else None)
    assert played.said == [("reasoning", THOUGHT), ("text", TEXT)]
    assert played.translator.repairs["message_repeated"] == 1


def test_so_it_does_in_a_body_that_is_not_streamed() -> None:
    message = {"reasoning_content": THOUGHT, "content": f"<think>{THOUGHT}</think>{TEXT}"}
    body = event({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    assert play(body).said == [("reasoning", THOUGHT), ("text", TEXT)]


def test_an_answer_that_ends_in_its_thought_has_no_text() -> None:
    played = play(both(THOUGHT[:9], f"<think>{THOUGHT[:9]}"), both(THOUGHT[9:], THOUGHT[9:]), finish("length"))
    assert played.said == [("reasoning", THOUGHT, "incomplete")]


def test_a_call_may_follow_the_thought() -> None:
    pieces = [both(THOUGHT, f"<think>{THOUGHT}"), call(0, "a", "weather"), arguments(0, '{"a": 1}'), finish("tool_calls")]
    assert play(*pieces).said == [("reasoning", THOUGHT), ("call", "weather", '{"a": 1}')]


@pytest.mark.parametrize(
    "content",
    [
        "<think> is the marker of a thought.",
        f"<think>{THOUGHT} And more.</think>{TEXT}",
        f"<think>{THOUGHT[:9]}</think>{TEXT}",
        "<thi",
        f"{TEXT}<think>{THOUGHT}</think>",
        f"\n\n{TEXT}",
        f"<think>{'x' * 300_000}</think>",
    ],
)
def test_any_other_text_is_what_it_is(content: str) -> None:
    for pieces in ([text(content)], [text(content[:5]), text(content[5:])], [text(content[:9]), text(content[9:])]):
        assert play(*THOUGHTS, *pieces, finish()).said == [("reasoning", THOUGHT), ("text", content.lstrip())]


def test_the_text_keeps_its_own_log_probabilities() -> None:
    def spoken(token: str) -> bytes:
        return chunk({"content": token}, logprobs={"content": [{"token": token, "logprob": -0.5, "top_logprobs": []}]})

    repeated = play(*THOUGHTS, *map(spoken, ["<think>", THOUGHT, "</think>", "Hello", " you"]), finish(), logprobs=True)
    other = play(*THOUGHTS, *map(spoken, ["<think>", "Hello", " you"]), finish(), logprobs=True)
    for played, tokens in ((repeated, ["Hello", " you"]), (other, ["<think>", "Hello", " you"])):
        part = played.response["output"][-1]["content"][0]
        assert part["text"] == "".join(tokens)
        assert [entry["token"] for entry in part["logprobs"]] == tokens
