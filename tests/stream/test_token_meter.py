"""Tokens of text in pieces: the count and the ids are those of the whole text, however it was cut."""

from __future__ import annotations

import json
from collections import deque
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from responses_gateway.backend.tokenizer.tokenizers import ModelTokenizer
from responses_gateway.stream.tokens.meter import KINDS, Encode, TokenMeter
from tests.data_folder import STREAMS, TINY_MODEL
from tests.stream import vocabularies
from tests.stream.vocabularies import PAGE, encoder
from tests.thoroughness import examples

WORDS = st.text("abcdefgh'.,(){}=\n\t 0129", max_size=60)
CHINESE = st.text("这是一个测试模型的输出没有空格日本語テキストー，。、", min_size=1, max_size=900)
LETTERS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=700)
DIGITS = st.text("0123456789", min_size=1, max_size=500)
# Combining accents, Hangul in pieces, flags and families of emoji, odd white space.
ODD = st.text("eéöa\u0301\u0308각\u1100\u1161👩\u200d👦🇨🇭\u00a0\u3000\r\n x", max_size=300)
LINES = st.sampled_from(["-", "=", " ", "\n", "ab", "= ", "😀", "ー"])
RULES = st.builds(lambda piece, times: piece * times, LINES, st.integers(1, 400))
TEXTS = st.lists(st.one_of(st.sampled_from(PAGE), WORDS, CHINESE, LETTERS, DIGITS, ODD, RULES), max_size=8).map("".join)
STEPS = st.lists(st.integers(1, 40), min_size=1, max_size=9)
# A fixed choice of examples: what is tested here must not depend on the day.
steady = settings(max_examples=examples(25), deadline=None, derandomize=True)


def pieces_of(text: str, steps: list[int]) -> list[str]:
    """Return the text, cut at these distances, over and over."""
    pieces = []
    at = 0
    turns = deque(steps)
    while at < len(text):
        pieces.append(text[at : at + turns[0]])
        at += turns[0]
        turns.rotate(-1)
    return pieces


def counted(encode: Encode, pieces: list[str]) -> int:
    meter = TokenMeter(encode)
    for piece in pieces:
        meter.feed("text", piece)
    return meter.totals()["text"]


# ---- counting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", vocabularies.KINDS)
@given(text=TEXTS, steps=STEPS)
@steady
def test_the_count_is_that_of_the_whole_text(kind: str, text: str, steps: list[int]) -> None:
    encode = encoder(kind)
    assert counted(encode, pieces_of(text, steps)) == len(encode(text))


@pytest.mark.parametrize("kind", vocabularies.KINDS)
@pytest.mark.parametrize(
    "text", ["这是一个测试模型的输出没有空格" * 200, "-" * 3000, "word " * 900, "x" * 3000], ids=["cjk", "rule", "words", "x"]
)
def test_a_long_text_is_counted_in_batches_of_bounded_size(kind: str, text: str) -> None:
    encode = encoder(kind)
    sizes = []

    def watched(piece: str) -> Any:
        sizes[-1] += len(piece)
        return encode(piece)

    meter = TokenMeter(watched)
    for piece in pieces_of(text, [3, 5]):
        sizes.append(0)
        meter.feed("text", piece)
    assert max(sizes) < 4000
    assert sum(sizes) < 4 * len(text)
    sizes.append(0)
    assert meter.totals()["text"] == len(encode(text))
    assert sizes[-1] < 2000


def test_what_one_huge_piece_brings_is_worked_off_little_by_little() -> None:
    text = "\n".join(PAGE * 10)
    encode = encoder("llama3")
    encoded: list[int] = []

    def noting(piece: str) -> list[int]:
        encoded.append(len(piece))
        return encode(piece)

    meter = TokenMeter(noting)
    meter.feed("tool_arguments", text)
    assert sum(encoded) < 2000
    for _ in range(20):
        meter.feed("tool_arguments", "x")
    assert 20 * 150 < sum(encoded) < len(text)
    assert meter.totals()["tool_arguments"] == len(encode(text + "x" * 20))
    assert sum(encoded) >= len(text)


def test_kinds_are_counted_apart_and_never_joined() -> None:
    encode = encoder("llama3")
    meter = TokenMeter(encode)
    meter.feed("reasoning", "The gate")
    meter.feed("reasoning", "way stands")
    meter.feed("text", "between them")
    meter.feed("reasoning", " and translates")
    totals = meter.totals()
    assert totals["reasoning"] == len(encode("The gateway stands")) + len(encode(" and translates"))
    assert totals["text"] == len(encode("between them"))
    assert set(totals) == set(KINDS)
    assert totals["other"] == totals["refusal"] == totals["tool_arguments"] == 0


def test_two_items_of_one_kind_are_not_joined() -> None:
    encode = encoder("llama3")
    assert len(encode("gateway")) < len(encode("gate")) + len(encode("way"))
    meter = TokenMeter(encode)
    meter.feed("tool_arguments", "gate")
    meter.split()
    meter.feed("tool_arguments", "way")
    assert meter.totals()["tool_arguments"] == len(encode("gate")) + len(encode("way"))


def test_totals_may_be_asked_for_in_the_middle() -> None:
    encode = encoder("gpt2")
    meter = TokenMeter(encode)
    text = " ".join(PAGE)
    for piece in pieces_of(text, [7]):
        meter.feed("text", piece)
        before = meter.totals()
        assert meter.totals() == before
    assert meter.totals()["text"] == len(encode(text))


@pytest.mark.parametrize("kind", vocabularies.PREFIXED)
def test_a_tokenizer_that_adds_a_space_is_off_by_a_few_at_most(kind: str) -> None:
    """Measure a tokenizer with its prefix, which `responses_gateway.backend.tokenizer.tokenizers` takes away."""
    encode = encoder(kind)
    text = "这是一个测试，模型的输出没有空格。" * 300
    assert len(encode(text)) <= counted(encode, pieces_of(text, [2])) <= len(encode(text)) * 1.01


def test_characters_that_the_vocabulary_does_not_know_hold_nothing_up() -> None:
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    encode = partial(tokenizer.encode, add_special_tokens=False)
    text = "测" * 2000 + "a"
    assert counted(encode, pieces_of(text, [4])) == len(encode(text)) == 1


# ---- against a real server --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny() -> ModelTokenizer:
    """Return the tokenizer of the model whose streams were recorded."""
    return ModelTokenizer(TINY_MODEL / "tokenizer.json")


def recorded(setting: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """Name and chunks of every stream of a setting that was answered."""
    manifest = json.loads((STREAMS / setting / "manifest.json").read_text(encoding="utf-8"))
    found = []
    for stream in manifest["streams"]:
        if stream["status"] == 200:
            lines = (STREAMS / setting / stream["file"]).read_text(encoding="utf-8").splitlines()
            found.append((stream["file"], [json.loads(line[6:]) for line in lines if line.startswith("data: {")]))
    return found


def choices_of(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [choice for chunk in chunks for choice in chunk["choices"]]


@pytest.mark.parametrize("setting", ["raw", "raw_interval"])
def test_the_count_is_that_of_the_server(tiny: ModelTokenizer, setting: str) -> None:
    """Raw output: markers are tokens, and the end token is the only one without text."""
    wrong = {}
    for name, chunks in recorded(setting):
        # The first was cut in the middle of a character, the second written with tokens that no tokenizer would choose.
        if "inside_character" in name or name.startswith("write_file"):
            continue
        choices = choices_of(chunks)
        ended = any(choice["finish_reason"] == "stop" for choice in choices)
        mine = counted(tiny.encode_markup, [choice["delta"].get("content") or "" for choice in choices]) + ended
        server = chunks[-1]["usage"]["completion_tokens"]
        if mine != server:
            wrong[name] = (mine, server)
    assert wrong == {}
