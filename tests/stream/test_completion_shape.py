"""Answers in the shape of text completions, whose choices have a `text` and no delta."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.wire.chat import first_failure
from tests.stream.stream_player import Play, event, play


def completion(text: str | None, finish: str | None = None, **fields: Any) -> bytes:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish, **fields}
    return event({"object": "text_completion", "choices": [choice]})


def said(*pieces: bytes) -> tuple[str, list[Any]]:
    played: Play = play(*pieces)
    return played.response["status"], played.said


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_the_text_of_a_choice_without_delta_is_the_message(finish: str) -> None:
    played = play(completion("Hel"), completion("lo the"), completion("re."), completion("", finish))
    assert played.said[0][:2] == ("text", "Hello there.")
    assert played.deltas("output_text") == ["Hel", "lo the", "re."]
    assert played.response["status"] == ("completed" if finish == "stop" else "incomplete")


@pytest.mark.parametrize("delta", [{"content": "Hi"}, {"reasoning": "Hi"}])
def test_a_text_beside_a_delta_is_not_said_twice(delta: dict[str, str]) -> None:
    kind = "text" if "content" in delta else "reasoning"
    assert play(completion("Hi", delta=delta), completion(" ", "stop", delta={})).said[:1] == [(kind, "Hi")]
    assert play(completion("Hi", "stop", message=delta)).said[:1] == [(kind, "Hi")]


@pytest.mark.parametrize("before", [["Hello ", "there, who are you?"], []])
def test_a_text_at_the_end_that_repeats_the_answer_is_not_said_twice(before: list[str]) -> None:
    whole = "Hello there, who are you?"
    deltas = [event({"choices": [{"index": 0, "delta": {"content": piece}}]}) for piece in before]
    assert said(*deltas, completion(whole, "stop")) == ("completed", [("text", whole)])
    assert said(*map(completion, before), completion(whole, "stop")) == ("completed", [("text", whole)])


@pytest.mark.parametrize("text", [None, "", 7, ["Hi"]])
def test_what_is_no_text_says_nothing(text: Any) -> None:
    assert said(completion(text), completion("Hi", "stop")) == ("completed", [("text", "Hi")])


def test_it_shows_that_a_stream_is_an_answer() -> None:
    assert first_failure([b'{"choices":[{"text":""}]}']) == (False, None)
    assert first_failure([b'{"choices":[{"text":"Hi"}]}']) == (True, None)
