"""Tokens by kind: exact with ids or a tokenizer, an estimate that adds up without either."""

from __future__ import annotations

import re
from typing import Any

import pytest

from responses_gateway.parsers import ThoughtTokens
from responses_gateway.stream.tokens.counter import TokenCounter
from responses_gateway.wire.deltas import Usage
from tests.stream.stream_player import (
    DONE,
    Play,
    arguments,
    call,
    chunk,
    event,
    finish,
    new_translator,
    play,
    text,
    think,
    usage,
)


class Words:
    """A tokenizer that takes each word, with the space before it, for a token."""

    def __init__(self, content: str) -> None:
        found = list(re.finditer(r" ?[^ ]+| +", content))
        self.ids = [hash(match[0]) & 0xFFFF for match in found]
        self.offsets = [match.span() for match in found]
        self.word_ids: list[int | None] = list(range(len(found)))

    def __len__(self) -> int:
        return len(self.ids)


def with_ids(ids: list[int], **delta: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "token_ids": ids}]})


def counted(prompt: int, completion: int) -> bytes:
    return usage(prompt_tokens=prompt, completion_tokens=completion)


THOUGHTS = ThoughtTokens(opens=frozenset({100}), closes=frozenset({101}), calls=frozenset({102}))


def test_ids_count_a_thought_and_the_known_markup_exactly() -> None:
    played = play(
        with_ids([1], role="assistant", content=""),
        with_ids([100, 2, 3], reasoning="Hm, well"),
        with_ids([4], reasoning=", yes"),
        with_ids([5]),  # a part of a character
        with_ids([101]),
        with_ids([6], content="Hello"),
        with_ids([7, 8], content=" there."),
        with_ids([102, 9, 10, 11], tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]),
        finish("tool_calls"),
        counted(9, 14),
        thoughts=THOUGHTS,
    )
    counter = played.translator.tokens
    kinds = counter.by_kind()
    assert (kinds["reasoning"], kinds["other"], sum(kinds.values())) == (4, 4, 14)
    assert not counter.disagrees
    assert played.response["usage"]["output_tokens_details"]["reasoning_tokens"] == 4


def test_a_chunk_with_two_kinds_is_divided_at_the_marker() -> None:
    played = play(with_ids([1, 2, 101, 3], reasoning="abc", content="d"), finish(), counted(1, 4), thoughts=THOUGHTS)
    assert played.response["usage"]["output_tokens_details"]["reasoning_tokens"] == 2


@pytest.mark.parametrize(
    ("pieces", "output", "reasoning"),
    [
        ([with_ids([1, 2], reasoning="So"), with_ids([9], reasoning=" it")], 3, 2),  # never closed: the last is the end token
        ([with_ids([100, 1, 2, 9], reasoning="So")], 4, 2),
        ([with_ids([1, 2], reasoning="So"), with_ids([101, 3], content="Yes"), with_ids([100, 4, 101], reasoning="x")], 7, 3),
        ([with_ids([1, 2], reasoning="So"), call(0, "a", "weather", "{}"), with_ids([102, 5, 9])], 5, 2),
    ],
)
def test_a_thought_that_only_one_end_is_seen_of(pieces: list[bytes], output: int, reasoning: int) -> None:
    played = play(*pieces, finish(), counted(1, output), thoughts=THOUGHTS)
    usage = played.response["usage"]["output_tokens_details"]
    assert (usage["reasoning_tokens"], played.translator.tokens.reasoning_from) == (reasoning, "ids")


@pytest.mark.parametrize(
    "pieces",
    [
        [with_ids([1, 2], reasoning="Hm."), with_ids([3], content="Yes")],  # no marker was seen
        [with_ids([1], reasoning="Hm."), with_ids([2, 102], content="Yes")],  # only one of a call
        [with_ids([100, 1], reasoning="Hm."), text("Yes")],  # not all ids came
    ],
)
def test_where_ids_do_not_tell_the_number_of_the_backend_stands(pieces: list[bytes]) -> None:
    assert reasoning_of(*pieces, finish(), reported(2, 3), thoughts=THOUGHTS) == (2, "backend")


def test_a_backend_that_counts_in_another_way_is_noticed() -> None:
    played = play(with_ids([1, 2], content="Hello"), finish(), counted(9, 3))
    assert played.translator.tokens.disagrees
    assert played.response["usage"]["output_tokens"] == 3  # what the backend says is what it bills


def reported(reasoning: int | None, completion: int = 8) -> bytes:
    details = {"completion_tokens_details": {"reasoning_tokens": reasoning}}
    return usage(prompt_tokens=1, completion_tokens=completion, **details)


def reasoning_of(*pieces: bytes, **options: Any) -> tuple[int, str | None]:
    """Return the tokens of reasoning that the client is told, and where they come from."""
    played = play(*pieces, **options)
    return played.response["usage"]["output_tokens_details"]["reasoning_tokens"], played.translator.tokens.reasoning_from


@pytest.mark.parametrize("told", [None, 0])
def test_reasoning_that_the_backend_did_not_count_is_counted(told: int | None) -> None:
    thought = [with_ids([1, 2], reasoning="Hm, no."), with_ids([101, 3], content="Yes")]
    assert reasoning_of(*thought, finish(), reported(told, 4), thoughts=THOUGHTS) == (2, "ids")
    assert reasoning_of(*thought, finish(), reported(told, 4)) == (3, "estimate")  # the markers are not known
    plain = [think("one two three four"), text("five")]
    assert reasoning_of(*plain, finish(), reported(told), encode=Words) == (4, "tokenizer")
    assert reasoning_of(*plain, finish(), reported(told)) == (7, "estimate")
    assert reasoning_of(think("a"), text("b" * 999), finish(), reported(told)) == (1, "estimate")


def test_what_is_counted_here_is_exact_and_what_a_backend_counts_need_not_be() -> None:
    """vLLM counts no tokens whose text it holds back."""
    thought = [with_ids([100], reasoning=""), with_ids([1, 2, 3, 101], reasoning="行"), with_ids([4], content="Yes")]
    assert reasoning_of(*thought, finish(), reported(1, 6), thoughts=THOUGHTS) == (3, "ids")
    assert reasoning_of(think("one two"), text("five"), finish(), reported(1), encode=Words) == (2, "tokenizer")


def test_a_tokenizer_of_another_model_is_not_asked() -> None:
    assert reasoning_of(think("one two three"), text("four"), finish(), reported(2, 3), encode=Words) == (2, "backend")


def test_what_the_backend_counts_of_reasoning_stands() -> None:
    assert reasoning_of(with_ids([1, 2], reasoning="Hm."), finish(), reported(5)) == (5, "backend")
    assert reasoning_of(text("Yes"), finish(), reported(0), encode=Words) == (0, "backend")
    assert reasoning_of(text("Yes"), finish(), reported(None)) == (0, None)


def test_a_tokenizer_counts_where_no_ids_come() -> None:
    played = play(
        think("one two"), think(" three"), text("four"), text(" five\n"), text("six"),
        call(0, "a", "weather"), arguments(0, '{"city": "New York"}'),
        call(1, "b", "weather"), arguments(1, '{"city": "Rome"}'),
        finish("tool_calls"), counted(5, 20), encode=Words,
    )  # fmt: skip
    assert played.translator.tokens.by_kind() == {"reasoning": 3, "text": 2, "tool_arguments": 5, "other": 10}
    assert played.response["usage"]["output_tokens_details"]["reasoning_tokens"] == 3
    assert not played.translator.tokens.disagrees


def test_fewer_tokens_than_the_text_has_are_noticed() -> None:
    assert play(text("one two three"), finish(), counted(1, 2), encode=Words).translator.tokens.disagrees


@pytest.mark.parametrize("known", [True, False])
def test_a_backend_without_usage(known: bool) -> None:
    translator = new_translator(encode=Words)
    translator.tokens.input_tokens = 12 if known else None
    for piece in (think("one two"), text("three"), finish(), DONE):
        translator.feed(piece)
    assert translator.ended
    if known:
        assert '"input_tokens":12' in translator.response.json()
        assert '"output_tokens":3' in translator.response.json()
        assert '"reasoning_tokens":2' in translator.response.json()
    else:
        assert '"usage":null' in translator.response.json()


def test_without_ids_and_tokenizer_the_reported_tokens_are_shared_out() -> None:
    played = play(think("abcd"), text("ab"), call(0, "a", "weather"), arguments(0, "{}"), finish("tool_calls"), counted(1, 8))
    assert played.translator.tokens.by_kind() == {"reasoning": 4, "text": 2, "tool_arguments": 2}
    assert played.response["usage"]["output_tokens_details"]["reasoning_tokens"] == 4


def test_the_reasoning_that_is_reported_is_not_shared_out() -> None:
    counter = TokenCounter()
    counter.complete_usage(Usage(1, 10, reasoning=7), {"reasoning": 100, "text": 1})
    assert counter.by_kind() == {"reasoning": 7, "text": 3}


def test_tokens_without_any_text_are_other() -> None:
    counter = TokenCounter()
    counter.complete_usage(Usage(1, 2), {})
    assert counter.by_kind() == {"other": 2}


def test_nothing_is_known_of_a_stream_without_usage() -> None:
    played = play(text("Hello"), finish())
    assert played.translator.tokens.by_kind() == {}
    assert not played.translator.tokens.disagrees


def test_the_tokenizer_counts_chunks_of_the_fast_path_too() -> None:
    reads = [*map(text, ["one", " two", " three", " four"]), text(" five") + text(" six") + finish(), counted(1, 6)]
    played = play(*reads, encode=Words)
    assert played.said == [("text", "one two three four five six")]
    assert played.translator.tokens.by_kind() == {"text": 6}


# ---- in other places, and under other names ----------------------------------------------------------------------------

CHOICE_USAGE = {"prompt_tokens": 19, "completion_tokens": 13, "cached_tokens": 7}
ENDING = chunk(finish="stop", usage=CHOICE_USAGE)


def counts_in(played: Play) -> tuple[int, int, int]:
    reported = played.response["usage"]
    return reported["input_tokens"], reported["output_tokens"], reported["input_tokens_details"]["cached_tokens"]


def test_the_usage_of_a_choice_counts_where_there_is_no_other() -> None:
    assert counts_in(play(text("Hi"), ENDING)) == (19, 13, 7)
    before = play(text("Hi"), usage(prompt_tokens=10, completion_tokens=5), ENDING)
    behind = play(text("Hi"), ENDING, usage(prompt_tokens=10, completion_tokens=5))
    assert counts_in(before)[:2] == counts_in(behind)[:2] == (10, 5)


def test_zeros_behind_real_counts_say_nothing() -> None:
    played = play(text("Hi"), finish(), usage(**CHOICE_USAGE), usage(prompt_tokens=0, completion_tokens=0))
    assert counts_in(played) == (19, 13, 7)
    halves = play(
        usage(prompt_tokens=19, completion_tokens=0), text("Hi"), finish(), usage(prompt_tokens=0, completion_tokens=13)
    )
    assert counts_in(halves) == (19, 13, 0)


def test_usage_in_every_choice_does_not_stop_the_fast_path() -> None:
    pieces = [text("ab", usage={"prompt_tokens": 19, "completion_tokens": 13}) for _ in range(50)]
    played = play(*pieces, ENDING)
    assert played.said == [("text", "ab" * 50)]
    assert counts_in(played) == (19, 13, 7)
    assert len(played.deltas("output_text")) == 50


def test_timings_count_where_there_is_nothing_else() -> None:
    timings = {"cache_n": 7, "prompt_n": 12, "predicted_n": 13, "predicted_ms": 8.5}
    last = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "timings": timings})
    assert counts_in(play(text("Hi"), last)) == (19, 13, 7)


def test_text_that_looks_like_usage_is_text() -> None:
    said = '"prompt_tokens": 5, "predicted_n": 7'
    played = play(text(said), finish(), usage(prompt_tokens=19, completion_tokens=13))
    assert played.said == [("text", said)]
    assert counts_in(played) == (19, 13, 0)
