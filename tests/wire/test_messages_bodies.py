"""Bodies of the Messages API as they are read, and errors in its words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from responses_gateway.wire.errors import ApiError, read_error
from responses_gateway.wire.messages import error_body, error_of, full_context, parse_messages

BODY: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}


def refusal(**changes: Any) -> ApiError:
    body = {name: value for name, value in {**BODY, **changes}.items() if value is not ...}
    with pytest.raises(ApiError) as caught:
        parse_messages(json.dumps(body).encode())
    return caught.value


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": ...}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"model": ...}, "model"),
    ({"messages": ...}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"stop_sequences": "x"}, "stop_sequences"),
    ({"stop_sequences": ["x", 1]}, "stop_sequences[1]"),
    ({"temperature": "hot"}, "temperature"),
    ({"thinking": "on"}, "thinking"),
    ({"stream": "yes"}, "stream"),
]


def test_a_wrong_field_is_named() -> None:
    for changes, param in WRONG:
        error = refusal(**changes)
        assert (error.status, error.param) == (400, param)
        assert param.partition("[")[0] in error.message


def test_a_choice_that_is_a_string_is_not_told_to_be_one() -> None:
    assert refusal(tool_choice="auto").message == "Invalid type for 'tool_choice': expected an object."


def test_what_is_only_counted_needs_no_limit() -> None:
    body = json.dumps({name: value for name, value in BODY.items() if name != "max_tokens"}).encode()
    assert parse_messages(body, counts=True).max_tokens is None


def test_fields_that_are_not_known_are_kept() -> None:
    assert parse_messages(json.dumps({**BODY, "new_beta": 1}).encode()).model_extra == {"new_beta": 1}


TYPES = [
    (400, 400, "invalid_request_error"),
    (401, 401, "authentication_error"),
    (403, 403, "permission_error"),
    (404, 404, "not_found_error"),
    (413, 413, "request_too_large"),
    (422, 422, "invalid_request_error"),
    (429, 429, "rate_limit_error"),
    (500, 500, "api_error"),
    (502, 502, "api_error"),
    (503, 529, "overloaded_error"),
    (504, 504, "timeout_error"),
]


def test_an_error_has_the_type_that_sdks_know() -> None:
    for status, told, kind in TYPES:
        error = ApiError(status, "no", code="x")
        assert error_of(error) == (told, kind, "no")
        assert error_body(error, "req_1") == {"type": "error", "error": {"type": kind, "message": "no"}, "request_id": "req_1"}


def test_the_message_names_the_field_since_there_is_no_other_place_for_it() -> None:
    assert error_of(ApiError(400, "Must be 1.", param="top_k"))[2] == "top_k: Must be 1."
    assert error_of(ApiError(400, "'top_k' must be 1.", param="top_k"))[2] == "'top_k' must be 1."


# The words of vLLM, older ones of vLLM, and those of SGLang, llama.cpp, OpenAI, TGI, OpenRouter and Anthropic.
@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 32768 tokens "
            "and your request has 1200 input tokens (32000 > 32768 - 1200).",
            "1200 + 32000 > 32768",
        ),
        (
            "This model's maximum context length is 8192 tokens. However, you requested 8000 output tokens and your prompt "
            "contains 1201 input tokens, for a total of 9201 tokens.",
            "1201 + 8000 > 8192",
        ),
        (
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (1000 in the messages, "
            "8000 in the completion).",
            "1000 + 8000 > 8192",
        ),
        (
            "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9192 "
            "tokens: 1192 tokens from the input messages and 8000 tokens for the completion.",
            "1192 + 8000 > 8192",
        ),
        (
            "This model's maximum context length is 100 tokens. However, your prompt contains at least 101 input tokens, which "
            "exceeds this limit even without any output tokens. (parameter=input_tokens, value=101)",
            "101 tokens > 100 maximum",
        ),
        (
            "`inputs` tokens + `max_new_tokens` must be <= 8192. Given: 1200 `inputs` tokens and 8000 `max_new_tokens`",
            "1200 + 8000 > 8192",
        ),
        (
            "This endpoint's maximum context length is 8192 tokens. However, you requested about 9192 tokens (1000 of text "
            "input, 192 of tool input, 8000 in the output). Please reduce the length of either one.",
            "1192 + 8000 > 8192",
        ),
        (
            "This endpoint's maximum context length is 8192 tokens. However, you requested about 9192 tokens (1000 of text "
            "input, 8192 in the output).",
            "1000 + 8192 > 8192",
        ),
        (
            "This endpoint's maximum context length is 8192 tokens. However, you requested about 10000 tokens (9000 of text "
            "input, 1000 in the output).",
            "9000 tokens > 8192 maximum",
        ),
        (
            "This model's maximum context length is 8192 tokens. However, you requested 9192 tokens (1000 in the messages, "
            "192 in the functions, and 8000 in the completion).",
            "1192 + 8000 > 8192",
        ),
        ("prompt is too long: 9000 tokens > 8192 maximum", "9000 tokens > 8192 maximum"),
        ("The prompt is too long: 9000, model maximum context length: 8191", "9000 tokens > 8191 maximum"),
        (
            "input length and `max_tokens` exceed context limit: 1200 + 8000 > 8192, decrease input length or `max_tokens` and "
            "try again",
            "1200 + 8000 > 8192",
        ),
        ("The input (9000 tokens) is longer than the model's context length (8192 tokens).", "9000 tokens > 8192 maximum"),
        (
            "Input length (9000 tokens) exceeds the maximum allowed length (8192 tokens). Use a shorter input.",
            "9000 tokens > 8192 maximum",
        ),
        ("request (9000 tokens) exceeds the available context size (8192 tokens), try", "9000 tokens > 8192 maximum"),
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
            "9000 tokens > 8192 maximum",
        ),
        ("The decoder prompt (length 9000) is longer than the maximum model length of 8192.", "9000 tokens > 8192 maximum"),
        ("the input length exceeds the context length", "the input length exceeds the context length"),
    ],
)
def test_a_full_context_is_told_in_the_words_that_make_clients_shorten_it(message: str, told: str) -> None:
    words = full_context(message)
    if " + " in told:
        assert words == (
            f"input length and `max_tokens` exceed context limit: {told}, decrease input length or `max_tokens` and try again"
        )
    else:
        assert words == f"prompt is too long: {told}"
    error = ApiError(400, message, code="context_length_exceeded")
    assert error_of(error) == (400, "invalid_request_error", words)


def test_an_output_that_fills_the_context_by_itself_is_told_as_a_sum() -> None:
    """Shortening the prompt does not help, so that other clients are not told so; these ask for less."""
    body = {
        "message": "'max_tokens' or 'max_completion_tokens' is too large: 40000. This model's maximum context length is 32768 "
        "tokens and your request has 23 input tokens (40000 > 32768 - 23)."
    }
    error = read_error(400, json.dumps({"error": body}).encode())
    assert error.code == "invalid_prompt"
    told = "input length and `max_tokens` exceed context limit: 23 + 40000 > 32768"
    assert error_of(error)[2].startswith(told)
