"""Tokens by kind: exact with ids or a tokenizer, an estimate that adds up without either."""

from __future__ import annotations

import re
from typing import Any

import pytest

from responses_gateway.stream.tokens.counter import TokenCounter
from responses_gateway.wire.deltas import Usage
from tests.stream.stream_player import DONE, arguments, call, event, finish, new_translator, play, text, think, usage


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


def test_ids_count_each_kind_exactly() -> None:
    played = play(
        with_ids([1], role="assistant", content=""),
        with_ids([2, 3], reasoning="Hm, well"),
        with_ids([4], reasoning=", yes"),
        with_ids([5]),  # a marker, which has no text
        with_ids([6], content="Hello"),
        with_ids([7, 8], content=" there."),
        with_ids([9, 10, 11], tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]),
        finish("tool_calls"),
        counted(9, 11),
    )
    counter = played.translator.tokens
    assert counter.by_kind() == {"reasoning": 3, "text": 3, "tool_arguments": 3, "other": 2}
    assert not counter.disagrees
    assert played.response["usage"]["output_tokens_details"]["reasoning_tokens"] == 3


def test_ids_of_a_chunk_with_two_kinds_are_shared_by_length() -> None:
    played = play(with_ids([1, 2, 3, 4], reasoning="abc", content="d"), finish(), counted(1, 4))
    assert played.translator.tokens.by_kind() == {"reasoning": 3, "text": 1}


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
    thought = [with_ids([1, 2], reasoning="Hm, no."), with_ids([3], content="Yes")]
    assert reasoning_of(*thought, finish(), reported(told)) == (2, "ids")
    plain = [think("one two three four"), text("five")]
    assert reasoning_of(*plain, finish(), reported(told), encode=Words) == (4, "tokenizer")
    assert reasoning_of(*plain, finish(), reported(told)) == (7, "estimate")
    assert reasoning_of(think("a"), text("b" * 999), finish(), reported(told)) == (1, "estimate")


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
