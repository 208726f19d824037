"""Fields of other types than OpenAI's: converted if the meaning is clear, else refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from responses_gateway.wire.chat import ChatUsage, Choice, MalformedChunk, decode_chunk


def choice_of(choice: dict[str, Any]) -> Choice:
    chunk = decode_chunk(json.dumps({"choices": [choice]}).encode())
    assert chunk.converted
    assert chunk.choices is not None
    return chunk.choices[0]


@pytest.mark.parametrize("index", [None, "0"])
def test_an_index_that_is_no_number(index: Any) -> None:
    assert choice_of({"index": index, "delta": {}}).index == 0


@pytest.mark.parametrize(
    "calls", [{"index": "1", "function": {"name": "f"}}, [None, {"index": "1", "function": {"name": "f"}}, "x"]]
)
def test_calls_that_are_no_list_of_objects(calls: Any) -> None:
    delta = choice_of({"delta": {"tool_calls": calls}}).delta
    assert delta is not None
    assert [(call.index, call.function and call.function.name) for call in delta.tool_calls or ()] == [(1, "f")]


def test_content_as_one_part() -> None:
    delta = choice_of({"message": {"content": {"type": "text", "text": "Hi"}}}).message
    assert delta is not None
    assert delta.content == [{"type": "text", "text": "Hi"}]


@pytest.mark.parametrize(
    "logprobs",
    [
        [1],
        -0.5,
        {"content": [{"token": "a", "logprob": None}]},
        {"content": [{"token": "a", "logprob": -1, "top_logprobs": {"a": -1}}]},
        {"content": [{"token": "a", "logprob": -1, "top_logprobs": 5}]},
        {"content": [{"token": "a", "logprob": -1, "bytes": [-1]}]},
        {"content": [{"token": "a", "logprob": -1, "bytes": [256]}]},
        {"content": [{"token": "a", "logprob": -1, "bytes": ["a"]}]},
        {"content": [{"token": "a", "logprob": -1, "top_logprobs": [{"token": "b", "logprob": -2, "bytes": [None]}]}]},
        {"content": [{"token": "a", "logprob": -1, "bytes": "a"}]},
        {"content": [5]},
        {"content": "x"},
    ],
)
def test_log_probabilities_of_another_shape_are_none(logprobs: Any) -> None:
    choice = choice_of({"delta": {"content": "a"}, "logprobs": logprobs})
    assert choice.logprobs is None
    assert choice.delta is not None
    assert choice.delta.content == "a"


def test_log_probabilities_are_kept_beside_a_field_of_another_type() -> None:
    choice = choice_of({"index": None, "delta": {"content": "a"}, "logprobs": {"content": [{"token": "a", "logprob": -1}]}})
    assert choice.logprobs is not None
    assert [entry.logprob for entry in choice.logprobs.content or ()] == [-1.0]


@pytest.mark.parametrize("counts", [(12.0, 3.0), ("12", "3"), (12.5, 3)])
def test_counts_that_are_no_integers(counts: tuple[Any, Any]) -> None:
    usage = {"prompt_tokens": counts[0], "completion_tokens": counts[1], "prompt_tokens_details": {"cached_tokens": counts[1]}}
    found = decode_chunk(json.dumps({"choices": [], "usage": usage}).encode()).usage
    assert isinstance(found, ChatUsage)
    assert found.prompt_tokens_details is not None
    assert (found.prompt_tokens, found.completion_tokens, found.prompt_tokens_details.cached_tokens) == (12, 3, 3)


@pytest.mark.parametrize(
    "odd",
    [
        {"usage": {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": []}},
        {"usage": {"prompt_tokens": 1, "completion_tokens": 2, "completion_tokens_details": "none"}},
        {"usage": {"prompt_tokens": 1, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": "many"}}},
        {"usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": "3 or so"}},
        {"usage": {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": True}}},
        {"usage": {"prompt_tokens": 1, "completion_tokens": 2}, "object": 5},
    ],
)
def test_counts_are_kept_beside_what_the_answer_can_do_without(odd: dict[str, Any]) -> None:
    found = decode_chunk(json.dumps({"choices": [], **odd}).encode()).usage
    assert isinstance(found, ChatUsage)
    assert (found.prompt_tokens, found.completion_tokens, found.prompt_tokens_details and 0) in ((1, 2, None), (1, 2, 0))


@pytest.mark.parametrize("usage", [[], "n/a", 0, {"prompt_tokens": "many"}, {"prompt_tokens": {}}])
def test_a_text_is_kept_beside_usage_that_is_none(usage: Any) -> None:
    chunk = decode_chunk(json.dumps({"choices": [{"delta": {"content": "a"}}], "usage": usage}).encode())
    assert chunk.choices is not None
    assert chunk.choices[0].delta is not None
    assert chunk.choices[0].delta.content == "a"
    assert chunk.usage is None or chunk.usage.prompt_tokens is None


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ({"id": 7}, ("7", 0)),
        ({"id": ["x"]}, (None, 0)),
        ({"id": True}, (None, 0)),
        ({"index": 0.0}, ("c", 0)),
        ({"index": "first"}, ("c", None)),
        ({"index": {}}, ("c", None)),
    ],
)
def test_a_call_is_kept_whose_id_or_index_is_odd(call: dict[str, Any], expected: tuple[Any, Any]) -> None:
    entry = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}, **call}
    delta = choice_of({"delta": {"tool_calls": [entry]}}).delta
    assert delta is not None
    assert [(call.id, call.index) for call in delta.tool_calls or ()] == [expected]


@pytest.mark.parametrize("odd", [{"refusal": []}, {"refusal": False}, {"tool_calls": ""}, {"function_call": []}])
def test_an_empty_field_of_another_type_is_none(odd: dict[str, Any]) -> None:
    delta = choice_of({"delta": {"content": "a", **odd}}).delta
    assert delta is not None
    assert (delta.content, delta.refusal or None, delta.tool_calls, delta.function_call) == ("a", None, None, None)


@pytest.mark.parametrize("token_ids", ["x", ["1"], [None], {}, [1.5]])
def test_ids_of_tokens_that_are_none(token_ids: Any) -> None:
    assert choice_of({"delta": {"content": "a"}, "token_ids": token_ids}).token_ids is None


def test_words_that_mean_something_elsewhere_are_words_here() -> None:
    delta = choice_of({"index": None, "delta": {"content": "null", "reasoning": "true", "refusal": "1"}}).delta
    assert delta is not None
    assert (delta.content, delta.reasoning, delta.refusal) == ("null", "true", "1")


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
@pytest.mark.parametrize(("sent", "meant"), [("6", "6"), ("0.005", "0.005"), ("-1", "-1"), ("0", "0"), ("true", "true")])
def test_a_token_that_was_sent_as_a_number_is_text(field: str, sent: str, meant: str) -> None:
    """Cloudflare's Workers AI: "[1]" came as "[", 1 and "]", and the response failed."""
    delta = decode_chunk(b'{"choices":[{"index":0,"delta":{"%b":%b}}]}' % (field.encode(), sent.encode())).choices[0].delta
    assert getattr(delta, field) == meant


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [{"index": "x"}]},
        {"choices": [{"index": 1e400}]},
        {"choices": [{"delta": {"tool_calls": "x"}}]},
        {"choices": [{"finish_reason": 5}]},
        {"usage": {"prompt_tokens": "many"}},
        {"usage": {"prompt_tokens": 1e300}},
        [{"choices": []}, {"choices": []}],
    ],
)
def test_what_cannot_be_understood_is_refused(chunk: Any) -> None:
    with pytest.raises(MalformedChunk):
        decode_chunk(json.dumps(chunk).encode())
