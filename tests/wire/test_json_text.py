"""The decoder of JSON strings that arrive in pieces."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.wire.json_text import JsonScanner, StringDecoder, json_object, read_object, with_whole_characters
from tests.thoroughness import examples


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"a\d+", r"a\d+"),
        (r"C:\users", r"C:\users"),
        (r"\u00e9 \ud83d\ude00", "é 😀"),
        (r"\ud83d and \ude00", "\ufffd and \ufffd"),
        ("two\nlines", "two\nlines"),
    ],
)
def test_a_string_means_the_same_however_it_is_cut(written: str, meant: str) -> None:
    text = written + '"'
    for at in range(len(text) + 1):
        decoder = StringDecoder()
        assert decoder.feed(text[:at]) + decoder.feed(text[at:]) == meant
        assert decoder.closed


@pytest.mark.parametrize("cut", ["\\", r"\u12", r"\ud83d", r"\ud83d\ude"])
def test_an_escape_that_is_cut_waits(cut: str) -> None:
    decoder = StringDecoder()
    assert decoder.feed("a" + cut) == "a"
    assert not decoder.closed


def test_text_behind_the_string_is_not_read() -> None:
    decoder = StringDecoder()
    assert decoder.feed("a\\") == "a"
    assert decoder.feed('n"}, "b') == "\n"
    assert decoder.unread == len('}, "b')
    assert decoder.feed("c") == ""


@pytest.mark.parametrize("text", ['{"a": 1}', ' {"b" : [1, "\\n"]}', "{}"])
def test_an_object_stays_as_it_stands(text: str) -> None:
    assert json_object(text) == text


def test_line_breaks_in_strings_are_escaped() -> None:
    assert json_object('{"a": "b\n\tc", "d": "é"}') == '{"a": "b\\n\\tc", "d": "é"}'
    assert read_object('{"a": "b\nc"}') == {"a": "b\nc"}


def test_an_object_that_is_encoded_twice_is_read() -> None:
    assert json_object('"{\\"a\\": \\"b\\"}"') == '{"a": "b"}'
    assert read_object('"{\\"a\\": [1]}"') == {"a": [1]}
    assert json_object('"\\"{}\\""') is None


@pytest.mark.parametrize("text", ["", "null", "[]", '"a"', "{", '{"a": NaN}', '{"a": "\\ud800"}', "{'a': 1}", "[" * 100_000])
def test_what_is_no_object(text: str) -> None:
    assert json_object(text) is None
    assert read_object(text) is None


@pytest.mark.parametrize(
    ("written", "whole"),
    [
        (rb"a\ud83d", rb"a\ufffd"),
        (rb"\uDE00\ud83d\ude00\uD83D", rb"\ufffd\ud83d\ude00\ufffd"),
        (rb"\ud83d\ud83d\ude00", rb"\ufffd\ud83d\ude00"),
        (rb"\\ud83d \\\ud83d", rb"\\ud83d \\\ufffd"),
        (rb"\\ud83d\ude00", rb"\\ud83d\ufffd"),
        (rb"\u00e9 \ud7ff\ue000", rb"\u00e9 \ud7ff\ue000"),
    ],
)
def test_half_a_character_is_replaced_and_all_else_stays(written: bytes, whole: bytes) -> None:
    assert with_whole_characters(written) == whole
    assert json.loads(b'"%b"' % whole) == json.loads(b'"%b"' % written).encode("utf-16", "surrogatepass").decode(
        "utf-16", "replace"
    )


@given(st.text('{}[]"\\\\ab,:', max_size=60), st.integers(0, 20), st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_a_long_piece_ends_where_its_characters_one_by_one_do(text: str, before: int, closed: bool) -> None:
    long = "{" + text[:before] + '{"a": [{"b": "}"}, [1]]},' * 400 + text[before:] + ("]}" * closed)
    at_once = JsonScanner()
    one_by_one = JsonScanner()
    end = 0
    while end < len(long) and not one_by_one.closed:
        end += one_by_one.feed(long[end])
    assert at_once.feed(long) == end
    assert at_once == one_by_one


def test_the_brackets_of_a_long_piece_are_not_looked_at_one_by_one() -> None:
    """Megabytes of them in one chunk would hold all other streams for seconds."""
    calls = 0

    def count(_frame: object, event: str, _value: object) -> None:
        nonlocal calls
        calls += event == "c_call"

    scanner = JsonScanner()
    text = '{"a": [' + '{"b": [1]},' * 10_000 + "1]}"
    sys.setprofile(count)
    try:
        scanner.feed(text)
    finally:
        sys.setprofile(None)
    assert scanner.closed
    assert calls < 100
