"""What other servers than vLLM send, and what they send behind the end of an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.stream.stream_player import DONE, Play, call, event, finish, judged, new_translator, play, text, think, usage

ANSWER = [think("hm"), text("Hi"), call(0, "a", "clock", "{}"), text("end"), finish()]


def completion(body: bytes) -> Play:
    playing = new_translator()
    return judged(playing.start() + playing.feed_completion(body) + playing.finish(), playing)


def test_usage_without_counts_does_not_take_back_those_that_came() -> None:
    played = play(text("Hi"), finish(), usage(prompt_tokens=5, completion_tokens=2), usage(), usage(total_tokens=0))
    assert played.response["usage"]["total_tokens"] == 7


@pytest.mark.parametrize("wrong", [{"prompt_tokens": -1}, {"prompt_tokens_details": {"cached_tokens": -1}}])
def test_counts_that_cannot_be_true_are_not_repeated(wrong: dict[str, Any]) -> None:
    found = play(text("Hi"), finish(), usage(**{"prompt_tokens": 5, "completion_tokens": 2, **wrong})).response["usage"]
    assert found is None or found["input_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize("garbage", [b"data: [done]\n\n", b"data: cost=3\n\n", b"data: {\n\n"])
def test_garbage_behind_the_reason_takes_nothing_back(garbage: bytes) -> None:
    played = play(call(0, "a", "clock", "{}"), finish(), garbage, text("no"))
    assert (played.response["status"], played.said) == ("completed", [("call", "clock", "{}")])
    assert played.translator.malformed == 1
    assert play(text("Hi"), finish("length"), garbage).response["status"] == "incomplete"


def test_a_marker_with_space_behind_it() -> None:
    played = play(text("Hi"), finish(), b"data: [DONE] \n\n", done=False)
    assert (played.response["status"], played.translator.malformed) == ("completed", 0)


def test_an_error_beside_its_choice() -> None:
    ending = event(
        {"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 429, "message": "provider is busy"}}]}
    )
    assert play(text("Hi"), ending).error == ("rate_limit_exceeded", "provider is busy")


@pytest.mark.parametrize("nothing", [None, False, "", {}, [], {"message": "", "type": "", "code": None}])
def test_a_field_that_says_that_there_is_no_error(nothing: Any) -> None:
    pieces = [event({"choices": [{"delta": {"content": piece}}], "error": nothing}) for piece in "abc"]
    ending = [event({"choices": [{"delta": {}, "finish_reason": "stop"}], "error": nothing})]
    counts = event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}, "error": nothing})
    assert play(*pieces, *ending, counts).said == [("text", "abc")]


@pytest.mark.parametrize(
    "error",
    [
        {"detail": "gone"},
        {"message": "gone", "code": 500},
        {"message": "gone", "status_code": 500},
        {"type": "error", "message": "gone"},
        {"type": "error", "error": {"type": "overloaded_error", "message": "gone"}},
        {"error": {"error": {"message": "gone"}}},
        {"error": [{"message": "gone"}]},
        [{"error": {"message": "gone", "code": 500}}],
    ],
)
def test_errors_of_other_shapes(error: Any) -> None:
    played = play(text("Hi"), b"data: " + json.dumps(error).encode() + b"\n\n")
    assert played.error == ("server_error", "gone")
    assert played.said == [("text", "Hi", "incomplete")]


@pytest.mark.parametrize("notice", [{"message": "queued"}, {"message": "ok", "code": 0}, {"type": "ping"}])
def test_a_notice_is_no_error(notice: dict[str, Any]) -> None:
    assert play(text("Hi"), event(notice), finish()).said == [("text", "Hi")]


@pytest.mark.parametrize("before", [b"", b"\n", b": ping\n\n", b"event: x\n", b"\xef\xbb\xbf"])
def test_a_stream_whose_content_type_does_not_say_so(before: bytes) -> None:
    played = completion(before + b"".join(ANSWER) + DONE)
    assert played.said == play(*ANSWER).said
    assert completion(before + text("Hi")).error[1] == "The backend closed the stream before the model finished."


def test_chunks_of_another_choice_are_passed_over() -> None:
    other = [event({"choices": [{"index": 1, "delta": {"content": piece}}]}) for piece in "xyz"]
    ending = event({"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]})
    turned = event({"choices": [{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {"content": "d"}}]})
    played = play(text("a"), other[0], text("b"), *other[1:], text("c"), turned, ending, finish())
    assert (played.response["status"], played.said) == ("completed", [("text", "abcd")])
    assert play(*other, event({"choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]})).said == [("text", "xyz")]
