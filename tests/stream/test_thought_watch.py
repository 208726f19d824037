"""A backend of which nobody knows whether it parses: a thought at the beginning of an answer is found, other text stays."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from responses_gateway import parsers
from responses_gateway.stream.reading.leading_thought import LeadingThoughtDetector
from responses_gateway.stream.reading.markup import Evidence, Markup
from tests.stream.stream_player import (
    Play,
    arguments,
    call,
    chunk,
    finish,
    new_translator,
    play,
    refuse,
    substance,
    text,
    think,
    translate,
)

ANSWER = "<think>\nThey greet.\n</think>\n\nHello! Say `</think>`, or <b>."
SAID = [("reasoning", "They greet."), ("text", "Hello! Say `</think>`, or <b>.")]


def watch() -> LeadingThoughtDetector:
    new_parser = partial(parsers.parser, "auto", "none", schemas={})
    return LeadingThoughtDetector(parsers.reasoning_markers("auto")[0], partial(Markup, new_parser, thinking_open=False))


def watched(*pieces: Any, **options: Any) -> tuple[Play, Evidence]:
    markup = watch()
    seen = play(*(text(piece) if isinstance(piece, str) else piece for piece in pieces), markup=markup, **options)
    return seen, markup.evidence


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("before", ["", "\n", " \n\n"])
def test_a_thought_at_the_beginning(size: int, before: str) -> None:
    whole = before + ANSWER
    seen, evidence = watched(*(whole[at : at + size] for at in range(0, len(whole), size)), finish())
    assert seen.said == SAID
    assert evidence == Evidence(thought=True, first_marker="open")


@pytest.mark.parametrize(
    "answer",
    [
        "Hello! <think>\nis how models begin.\n</think>\n\nYes.",
        "Hm.\n</think>\n\nYes.",
        "<thinker>a</thinker>",
        "`<think>` opens it",
        "<thi",
        "[THINK",
        "  <b>indented</b>\n\n",
        '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>',
    ],
)
def test_any_other_text_is_left_as_it_is(answer: str) -> None:
    plain = substance(translate([text(answer), finish()]))
    for size in (1, 4, 100):
        pieces = [text(answer[at : at + size]) for at in range(0, len(answer), size)]
        assert substance(translate([*pieces, finish()], markup=watch())) == plain


def test_only_the_first_characters_wait() -> None:
    translator = new_translator(markup=watch())
    translator.start()
    shown = [b"output_text.delta" in translator.feed(text(piece)) for piece in ("<", "b", ">", "bold", "</")]
    assert shown == [False, True, True, True, True]


def test_nothing_is_asked_about_plain_text_any_more() -> None:
    markup = watch()
    play(text(" "), markup=markup)
    assert not markup.settled
    play(text("Hi"), text(" there"), finish(), markup=markup)
    assert markup.settled


@pytest.mark.parametrize("client_sees", ["thinking", "calls", "refusal"])
def test_what_the_backend_itself_tells_apart_is_left_alone(client_sees: str) -> None:
    streams = {
        "thinking": [think("Hm."), text("<think>"), text(" is a tag.")],
        "calls": [call(0, "c1", "weather", ""), arguments(0, '{"city": "Rome"}'), text("<think>")],
        "refusal": [refuse("No."), text("<think>")],
    }
    stream = [*streams[client_sees], finish()]
    assert substance(translate(stream, markup=watch())) == substance(translate(stream))
    assert watched(*stream)[1] == Evidence(field=client_sees == "thinking")


def test_log_probabilities_stay_with_text_that_is_passed_on() -> None:
    entry = {"token": "<b>", "logprob": -0.5, "bytes": [60, 98, 62], "top_logprobs": []}
    seen, _ = watched(text("<"), text("b>", logprobs={"content": [entry]}), finish(), logprobs=True)
    (item,) = seen.response["output"]
    assert [found["token"] for found in item["content"][0]["logprobs"]] == ["<b>"]


def test_text_that_waits_when_the_stream_breaks_comes_out() -> None:
    seen, _ = watched("<thi", chunk(), done=False)
    assert seen.response["status"] == "failed"
    assert seen.said == [("text", "<thi", "incomplete")]
