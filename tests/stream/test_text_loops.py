"""What counts as a loop of text: at least twenty copies and two thousand characters of one piece, exactly."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.stream.items.text_items import TextItem
from responses_gateway.stream.options import StreamOptions
from responses_gateway.stream.text_loops import COPIES, TextLoopWatch, is_loop, period
from responses_gateway.stream.translator import Translator
from tests.server.scripted_backend import call, chunk, text_stream
from tests.thoroughness import examples

LINE = "I will check the file again to be sure.\n"


def item_of(text: str) -> TextItem:
    item = TextItem.__new__(TextItem)
    item.pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    return item


@pytest.mark.parametrize(
    ("text", "loops"),
    [
        (LINE * 50, True),
        ("Before that. " + LINE * 60 + LINE[:11], True),
        (LINE * 49, False),  # too few characters
        (("x" * 150 + "\n") * 14, False),  # too few copies
        (("x" * 150 + "\n") * 20, True),
        (("y" * 900 + "xx" + "y" * 90 + "\n") * 20, True),
        (("a" * 1001) * 1, False),
        ("0,0,0,0\n" * 240, False),
        ("0,0,0,0\n" * 250, True),
        ("\n".join(f"{number},0,0,0,0" for number in range(900)), False),
        (LINE * 60 + "Now it is done.", False),
        ("なるほど。" * 400, True),
    ],
)
def test_loops(text: str, loops: bool) -> None:
    assert is_loop(item_of(text)) is loops


@settings(derandomize=True, max_examples=examples(200), deadline=None)
@given(st.text("ab", min_size=1, max_size=30), st.text("abc", max_size=20))
def test_the_period_is_the_length_of_the_shortest_piece(piece: str, before: str) -> None:
    shortest = next(length for length in range(1, len(piece) + 1) if (piece * 2).startswith(piece, length))
    assert period((before + piece * 2_100)[-2_000:]) == shortest


@pytest.mark.untraced
@settings(derandomize=True, max_examples=examples(100), deadline=None)
@given(st.text(min_size=2_000, max_size=2_100), st.integers(0, 50))
def test_what_is_found_repeats(text: str, copies: int) -> None:
    whole = text * copies
    if is_loop(item_of(whole)):
        assert len(text) <= len(whole) / COPIES or period(whole[-2_000:]) is not None


def test_a_hostile_text_takes_no_longer() -> None:
    text = "a" * 999 + "b" + "a" * 1_000
    began = time.perf_counter()
    for _ in range(20):
        period(text)
    assert time.perf_counter() - began < 1.0


def watched(*pieces: bytes, size: int) -> Translator:
    translator = Translator(StreamOptions("resp_1", "m"), lambda: 1.0)
    watch = TextLoopWatch(translator)
    translator.start()
    data = b"".join(pieces)
    for at in range(0, len(data), size):
        watch.feed(data[at : at + size])
    translator.finish()
    return translator


@pytest.mark.parametrize("size", [100, 5_000, 1 << 20])
def test_the_answer_ends_soon_however_it_is_cut(size: int) -> None:
    translator = watched(*text_stream(*[LINE] * 120), size=size)
    assert (translator.status, translator.incomplete_reason) == ("incomplete", "max_output_tokens")
    (item,) = translator.response.output
    assert COPIES <= item.count("check the file") < 100
    assert translator.repairs["text_loop_ended"] == 1


def test_arguments_may_repeat() -> None:
    arguments = '{"rows": [' + "[0, 0, 0, 0], " * 500 + "[0]]}"
    pieces = [arguments[at : at + 50] for at in range(0, len(arguments), 50)]
    stream = [chunk(call("", id="c1", type="function")), *(chunk(call(piece)) for piece in pieces), chunk({}, "tool_calls")]
    translator = watched(*stream, size=3_000)
    assert translator.status == "completed"
