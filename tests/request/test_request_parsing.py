"""Decoding and checking of bodies: what is accepted, and the 400 that names the field."""

from __future__ import annotations

import json
import math
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.requests import MAX_DEPTH, ResponsesRequest, parse_request, read_object
from tests.thoroughness import examples

# Characters of a text that makes a body long.
LONG = 100_000


def refusal(body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_request(body)
    assert caught.value.status == 400
    assert caught.value.type == "invalid_request_error"
    return caught.value


def complaint(body: Any) -> str:
    """Return the message of a refusal; nothing if the body is accepted."""
    try:
        parse_request(body)
    except ApiError as error:
        return error.message
    return ""


def request(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": "hi", **fields}


def test_a_small_request() -> None:
    parsed = parse_request(b'{"model": "m", "input": "hi", "temperature": 0, "stream": true}')
    assert (parsed.model, parsed.input, parsed.temperature, parsed.stream) == ("m", "hi", 0, True)
    assert parsed.tools is None


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"metadata": {str(number): "x" for number in range(17)}}, "metadata", "expected at most 16 entries."),
        ({"temperature": "hot"}, "temperature", "expected a number."),
        ({"max_output_tokens": 1.5}, "max_output_tokens", "expected a whole number."),
        ({"stream": "yes"}, "stream", "expected true or false."),
        ({"temperature": 9}, "temperature", "must be at most 2."),
        ({"truncation": "off"}, "truncation", "expected 'auto' or 'disabled'."),
        ({"reasoning": []}, "reasoning", "expected an object."),
        ({"input": 1}, "input", "expected a string or a list."),
    ],
)
def test_what_is_wrong_is_said_in_the_terms_of_the_api(fields: dict[str, Any], param: str, said: str) -> None:
    error = refusal(request(**fields))
    assert error.param == param
    assert error.message.endswith(f"'{param}': {said}")


@pytest.mark.slow
def test_no_message_is_in_the_words_of_the_library() -> None:
    """Try values of every type for every field."""
    for name in ResponsesRequest.model_fields:
        for value in ({}, [], "", 1, 1.5, True, {"a": 1}, [1], ["x"] * 200, "x" * 2_000_000, -1, 10**9):
            said = complaint(request(**{name: value}))
            assert not re.search("Input should|after validation|dictionary", said), (name, value)


def test_null_is_not_given() -> None:
    names = [name for name in ResponsesRequest.model_fields if name not in {"model", "input"}]
    parsed = parse_request(request(**dict.fromkeys(names)))
    assert parsed == parse_request(request())


def test_unknown_parameters_are_kept() -> None:
    assert parse_request(request(top_k=20, colour="red")).model_extra == {"top_k": 20, "colour": "red"}


def test_bytes_and_mapping_are_the_same() -> None:
    body = request(input=[{"role": "user", "content": "é"}])
    assert parse_request(body) == parse_request(json.dumps(body).encode())
    parsed = parse_request(body)
    body["input"][0]["content"] = "changed"
    assert parsed.input == [{"role": "user", "content": "é"}]


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"model": None}, "model", "missing_required_parameter"),
        ({"model": 3}, "model", "invalid_type"),
        ({"model": ""}, "model", "invalid_value"),
        ({"input": None}, "input", "missing_required_parameter"),
        ({"input": 3}, "input", "invalid_type"),
        ({"input": {"role": "user"}}, "input", "invalid_type"),
        ({"tool_choice": 3}, "tool_choice", "invalid_type"),
        ({"temperature": 2.1}, "temperature", "invalid_value"),
        ({"temperature": "1"}, "temperature", "invalid_type"),
        ({"top_p": -0.1}, "top_p", "invalid_value"),
        ({"presence_penalty": 3}, "presence_penalty", "invalid_value"),
        ({"top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"top_logprobs": True}, "top_logprobs", "invalid_type"),
        ({"max_output_tokens": 0}, "max_output_tokens", "invalid_value"),
        ({"max_output_tokens": 1.5}, "max_output_tokens", "invalid_type"),
        ({"max_tool_calls": 0}, "max_tool_calls", "invalid_value"),
        ({"include": ["a", 3]}, "include[1]", "invalid_type"),
        ({"text": {"verbosity": 3}}, "text.verbosity", "invalid_type"),
        ({"reasoning": "high"}, "reasoning", "invalid_type"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort", "invalid_type"),
        ({"truncation": "maybe"}, "truncation", "invalid_value"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata", "invalid_value"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a", "invalid_value"),
        ({"metadata": {"k" * 65: "x"}}, "metadata." + "k" * 65, "invalid_value"),
        ({"metadata": {"k" * 1000: "x"}}, ("metadata." + "k" * 1000)[:199], "invalid_value"),
        ({"metadata": {"a": 1}}, "metadata.a", "invalid_type"),
        ({"safety_identifier": "x" * 129}, "safety_identifier", "invalid_value"),
        ({"stream": "yes"}, "stream", "invalid_type"),
    ],
)
def test_the_field_that_is_wrong_is_named(fields: dict[str, Any], param: str, code: str) -> None:
    error = refusal(request(**fields))
    assert (error.param, error.code) == (param, code)
    assert f"'{param}'" in error.message


def test_input_may_be_left_out_where_something_else_gives_the_context() -> None:
    parsed = parse_request({"model": "m", "previous_response_id": "resp_1"})
    assert (parsed.input, parsed.previous_response_id) == (None, "resp_1")


@pytest.mark.parametrize("effort", ["none", "max", "bogus"])
def test_any_effort_is_let_through(effort: str) -> None:
    parsed = parse_request(request(reasoning={"effort": effort, "context": "all_turns"}))
    assert parsed.reasoning is not None
    assert parsed.reasoning.effort == effort


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"3",
        b"{",
        b'{"model": "m", "input": "\xff"}',
        b'{"model": "m", "input": "\\ud800\\u"}',
        b'{"model": "m", "input": "x", "temperature": NaN}',
        b'{"model": "m", "input": "x", "temperature": 1e999}',
        b'{"model": "m", "input": "x", "seed": ' + b"9" * 5000 + b"}",
        b'{"model": "m", "input": ' + b"[" * 100_000,
        b'{"model": "m", "input": ' + b"[" * 200 + b"]" * 200 + b"}",
        b'{"a":' * 400 + b"1" + b"}" * 400,
        {"model": "m", "input": math.nan},
        {"model": "m", "input": object()},
        {"model": "m", "input": {1, 2}},
    ],
    ids=range(15),
)
def test_hostile_bodies_get_a_400(body: Any) -> None:
    assert refusal(body).code == "invalid_json"


@pytest.mark.parametrize("body", [b'{"model": "m", "input": "\\ud800"}', {"model": "m", "input": "\ud800"}])
def test_half_a_character_is_replaced(body: Any) -> None:
    assert parse_request(body).input == "\ufffd"


def test_a_mapping_that_holds_itself_gets_a_400() -> None:
    body = request()
    body["input"] = body
    assert refusal(body).code == "invalid_json"


@pytest.mark.parametrize("length", [1, LONG])
def test_nesting_up_to_the_limit_is_fine(length: int) -> None:
    def nested(depth: int) -> bytes:
        return b'{"model": "m", "input": "%b", "extra": ' % (b"x" * length) + b"[" * depth + b"]" * depth + b"}"

    parse_request(nested(MAX_DEPTH - 1))
    assert refusal(nested(MAX_DEPTH)).code == "invalid_json"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_a_long_body_is_read_as_a_short_one_however_deep_its_values_are() -> None:
    value: Any = {"a": [1, -0.5, 2**70, None, True, "\u00e9", 12345678901234567890, 1e300]}
    for depth in range(40):
        fields = {"x": value, "y": [value], "long": "x" * LONG}
        assert read_object(json.dumps(fields).encode()) == fields, depth
        value = {"b": value, "c": [value, []]} if depth < 8 else [value] if depth % 3 else {"d": value}
    for wrong in ([1], "x", None, 1):
        with pytest.raises(ApiError, match="must be a JSON object"):
            read_object(json.dumps(wrong).encode() + b" " * LONG)


@settings(max_examples=examples(150), deadline=None)
@given(st.dictionaries(st.sampled_from([*ResponsesRequest.model_fields, "extra"]), json_values, max_size=6))
def test_wrong_types_anywhere_are_a_400_or_a_request(fields: dict[str, Any]) -> None:
    try:
        found: ResponsesRequest | ApiError = parse_request(request(**fields))
    except ApiError as error:
        found = error
    assert isinstance(found, ResponsesRequest) or found.status == 400


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_are_a_400(body: bytes) -> None:
    refusal(body)


def test_a_small_request_is_cheap() -> None:
    """Expect about 4 µs on a desktop; the limit only catches a change of the order of magnitude."""
    body = b'{"model": "m", "input": "hi", "stream": true}'
    best = math.inf
    for _ in range(5):
        start = time.thread_time()
        for _ in range(200):
            parse_request(body)
        best = min(best, (time.thread_time() - start) / 200)
    assert best < 100e-6
