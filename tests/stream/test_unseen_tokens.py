"""Tokens that a backend used and showed nothing of: counted where there is no other explanation, and given out if need be."""

from __future__ import annotations

import json

import pytest

from tests.data_folder import STREAMS
from tests.stream.stream_player import arguments, call, chunk, finish, new_translator, play, text, think, usage

THOUGHT = "I need the weather of Paris, so I call the tool."


def unseen(*pieces: bytes, **fields: object) -> int:
    return play(*pieces, **fields).translator.unseen_tokens  # type: ignore[arg-type]


def used(output: int, reasoning: int | None = None) -> bytes:
    details = {} if reasoning is None else {"completion_tokens_details": {"reasoning_tokens": reasoning}}
    return usage(prompt_tokens=9, completion_tokens=output, total_tokens=9 + output, **details)


def test_a_call_that_the_server_left_out() -> None:
    assert unseen(finish(), used(36)) == 36
    assert unseen(think(THOUGHT), finish(), used(44, reasoning=14)) == 30
    assert unseen(text("Let me check."), finish(), used(60)) > 40


@pytest.mark.parametrize(
    "pieces",
    [
        [finish(), used(5)],  # an empty thought and the end token
        [text("Hello."), finish(), used(4)],
        [text("Hello."), finish()],  # nothing was reported
        [text("1, 2, 3, " * 30), finish(), used(180)],
        [text("你好，世界！👩‍👩‍👧‍👦"), finish(), used(50)],
        [text("\n\n\n"), finish(), used(7)],
        [finish(), used(900, reasoning=895)],  # reasoning that the server hides, and counts
        [call(0, "c", "weather", '{"a": 1}'), finish("tool_calls"), used(45)],
        [call(0, "c", "weather"), arguments(0, json.dumps({"code": "x = 1\n" * 200})), finish("tool_calls"), used(900)],
        [text("cut"), finish("length"), used(4096)],  # it is known to be incomplete
    ],
)
def test_markup_and_what_is_hidden_on_purpose_do_not_count(pieces: list[bytes]) -> None:
    assert unseen(*pieces) == 0


def test_what_the_gateway_left_out_itself_does_not_count() -> None:
    calls = [call(index, f"c{index}", "weather", '{"city": "' + "x" * 40 + '"}') for index in (0, 1, 2, 3, 4, 5)]
    assert unseen(*calls, finish("tool_calls"), used(400), max_calls=1) == 0


def test_ids_tell_it_too() -> None:
    pieces = [chunk({"content": "Hello"}, token_ids=[1]), *(chunk({}, token_ids=[number]) for number in range(40)), finish()]
    assert unseen(*pieces, used(41)) in (39, 40)  # as many tokens as the text may have


@pytest.mark.slow
@pytest.mark.untraced
def test_no_recorded_stream_of_a_server_whose_parsers_fit_raises_an_alarm() -> None:
    alarms = []
    for file in STREAMS.glob("*/*.sse"):
        playing = new_translator(tools={})
        playing.start()
        playing.feed(file.read_bytes())
        playing.finish()
        if playing.unseen_tokens:
            alarms.append(f"{file.parent.name}/{file.name}")
    assert alarms == []


# ---- the ids of tokens of which nothing else came ------------------------------------------------------------------------

SILENT = [chunk({}, token_ids=[7, 8]), chunk({}, token_ids=[9]), finish(), used(4)]


def decode(ids: object) -> str:
    return f"<tool_call>{ids}</tool_call>"


def test_an_empty_answer_is_given_out_as_text_where_its_ids_are_known() -> None:
    shown = play(*SILENT, decode=decode)
    assert shown.said == [("text", "<tool_call>[7, 8, 9]</tool_call>")]
    assert shown.translator.repairs == {"silent_tokens_shown": 1}


def test_without_a_tokenizer_or_with_an_answer_nothing_is_added() -> None:
    assert play(*SILENT).said == []
    assert play(chunk({"content": "Hi"}, token_ids=[1]), *SILENT, decode=decode).said == [("text", "Hi")]
    assert play(*SILENT, decode=lambda ids: "\n").said == []
    assert play(chunk({}, token_ids=[7]), finish("length"), decode=decode).said == []
