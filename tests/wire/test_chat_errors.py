"""The conversion of a backend's errors: status, code and parameter, for all known servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from responses_gateway.wire.chat import decode_chunk
from responses_gateway.wire.errors import ApiError, in_client_terms, invalid_request, read_error, read_error_chunk, server_error
from responses_gateway.wire.messages import error_of, for_client
from tests.data_folder import STREAMS

RECORDED = STREAMS / "errors.txt"

NO_MODEL = (404, "model_not_found", "model")
OVERFLOW = (400, "context_length_exceeded", "input")
HEADER_REFUSED = (502, "server_error", None)
NO_ENDPOINT = (502, "server_error", None)


def fate(error: ApiError) -> tuple[int, str | None, str | None]:
    return error.status, error.code, error.param


def wrong(param: str | None = None) -> tuple[int, str, str | None]:
    return 400, "invalid_prompt", param


# ---- a real vLLM -------------------------------------------------------------------------------------------------------

# Heading in the recording -> the error for the client; entries that are not refusals of chat requests are left out.
VLLM = {
    "unknown model": NO_MODEL,
    "bad json": wrong("body.16"),
    "no content-type": wrong(),
    "missing messages": wrong("body.messages"),
    "bad temperature": wrong("temperature"),
    "max_tokens 0": wrong("max_tokens"),
    "max_tokens too large": wrong("max_tokens"),
    "context length stream": OVERFLOW,
    "prompt+max_tokens over": OVERFLOW,
    "image to text model": wrong(),
    "bad schema": wrong(),
    "bad tool": wrong("body.tools.0.function"),
    "tool_choice named missing": wrong("tool_choice"),
    "404": NO_ENDPOINT,
    "405": wrong(),
}


@pytest.mark.parametrize("heading", VLLM)
def test_refusals_of_a_real_vllm(heading: str) -> None:
    recorded = recorded_errors()
    status, body = recorded[heading]
    error = read_error(status, body)
    assert fate(error) == VLLM[heading]
    if heading != "404":
        assert error.message == message_in(body)


def recorded_errors() -> dict[str, tuple[int, bytes]]:
    """Heading -> status and body."""
    found = {}
    for entry in RECORDED.read_text(encoding="utf-8").split("### ")[1:]:
        heading, status, body = entry.split("\n", 2)
        found[heading] = (int(status.split()[0]), body.strip().encode())
    return found


def message_in(body: bytes) -> str:
    value = json.loads(body)
    return str(value["error"]["message"] if "error" in value else value["detail"])


# ---- codes that are no statuses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1002, (429, "rate_limit_exceeded")), ("1039", (429, "rate_limit_exceeded")), (1008, (429, "insufficient_quota")),
        (1004, (401, "invalid_api_key")), (2049, (401, "invalid_api_key")), (2013, (400, "invalid_prompt")),
        (1001, (504, "server_error")), (1033, (502, "server_error")), ("never", (502, "server_error")),
        ([1002], (502, "server_error")),
    ],
)  # fmt: skip
def test_the_numbers_of_minimax(number: Any, expected: tuple[int, str]) -> None:
    said = {"base_resp": {"status_code": number, "status_msg": "so it is"}}
    for error in (read_error_chunk(said), read_error(500, json.dumps(said).encode())):
        assert (error.status, error.code, error.message) == (*expected, "so it is")


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ({"type": "authentication_error"}, (401, "invalid_api_key")),
        ({"code": "Invalid_API_Key"}, (401, "invalid_api_key")),
        ({"type": "permission_error"}, (403, "permission_denied")),
        ({"type": "overloaded_error"}, (503, "server_error")),
        ({"type": "rate_limit_error", "code": "insufficient_quota"}, (429, "insufficient_quota")),
        ({"code": 1302}, (429, "rate_limit_exceeded")),
        ({"code": "1113"}, (429, "insufficient_quota")),
        ({"code": "Arrearage"}, (429, "insufficient_quota")),
        ({"code": "AccountOverdueError", "type": "Forbidden"}, (429, "insufficient_quota")),
        ({"code": 1002}, (502, "server_error")),  # means something else at each server
        ({"type": "server_error", "code": 529}, (503, "server_error")),
    ],
)
def test_what_a_code_means_in_a_stream(kinds: dict[str, Any], expected: tuple[int, str]) -> None:
    error = read_error_chunk({"message": "so it is", **kinds})
    assert (error.status, error.code) == expected


def test_a_status_that_blames_the_request_says_more_than_a_code_of_keys() -> None:
    error = read_error(400, json.dumps(openai("no such field", "authentication_error")).encode())
    assert (error.status, error.code) == (400, "invalid_prompt")


# ---- other servers -----------------------------------------------------------------------------------------------------


def openai(message: str, kind: Any = "invalid_request_error", code: Any = None, param: Any = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code, "param": param}}


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, openai("This model's maximum context length is 8192 tokens. You sent 9000.", code="context_length_exceeded")),
        (400, openai("too long", code="context_length_exceeded")),
        # SGLang
        (400, {"object": "error", "message": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
               "type": "BadRequestError", "param": None, "code": 400}),
        (400, openai("Requested token count exceeds the model's maximum context length of 8192 tokens.", code=400)),
        (400, {"object": "error", "message": "Input length (9000 tokens) exceeds the maximum allowed length (8192 tokens). Use "
               "a shorter input or enable --allow-auto-truncate.", "code": 400}),
        # vLLM, of prompts with images
        (400, openai("The decoder prompt (length 9000) is longer than the maximum model length of 8192.", code=400)),
        # llama.cpp
        (400, openai("the request exceeds the available context size. try increasing it", code=400)),
        (400, openai("too long", "exceed_context_size_error", 400)),
        (500, openai("context size has been exceeded", "server_error", 500)),
        # TGI
        (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 and 20",
               "error_type": "validation"}),
        (422, {"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 5000"}),
        # Ollama
        (400, {"error": "the input length exceeds the context length"}),
        # LM Studio
        (400, {"error": "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with "
               "context length of only 4096 tokens, which is not enough."}),
        (400, {"error": "The number of tokens to keep from the initial prompt is greater than the context length."}),
        # Gemini
        (400, [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "The input token count (1200000) exceeds the "
                          "maximum number of tokens allowed (1048576)."}}]),
        # TensorRT-LLM
        (400, {"object": "error", "message": "Prompt length (9000) exceeds maximum input length (8192)."}),
        # Bedrock
        (400, {"message": "Input is too long for requested model."}),
        # Anthropic behind a bridge
        (400, openai("prompt is too long: 9000 tokens > 8192 maximum")),
        (413, {"detail": "context window exceeded"}),
    ],
)  # fmt: skip
def test_a_prompt_that_does_not_fit(status: int, body: Any) -> None:
    assert fate(read_error(status, json.dumps(body).encode())) == OVERFLOW


@pytest.mark.parametrize(
    ("status", "body", "expected", "message"),
    [
        (400, {"object": "error", "message": "no such voice", "code": 400}, wrong(), "no such voice"),
        (422, {"error": "template error", "error_type": "template_error"}, wrong(), "template error"),
        (
            422,
            {"detail": [{"loc": ["body"], "msg": "Field required"}]},
            wrong(),
            '[{"loc": ["body"], "msg": "Field required"}]',
        ),
        (418, {}, wrong(), "The backend answered with HTTP 418."),
        (400, {}, (400, "refused_without_reason", None), None),
        (400, {"detail": [{"loc": ["header", "x-request-id"], "msg": "not a UUID"}]}, HEADER_REFUSED, None),
        (400, openai("Invalid header: X-Request-ID is not a UUID"), HEADER_REFUSED, None),
        (400, openai("The header of the table is not a UUID"), wrong(), None),
        (400, {"detail": [{"loc": ["body", "tools", 0, "header", "x"], "msg": "missing"}]}, wrong(), None),
        (
            500,
            openai("1 validation error:\n  {'loc': ('body', 'top_p')}\n\n  File \"/srv/app.py\", line 3, in f\n    x"),
            wrong(),
            "1 validation error:\n  {'loc': ('body', 'top_p')}",
        ),
        (500, openai("image input is not supported - hint: you may need the mmproj", code=500), wrong(), None),
        (500, openai("audio input is not supported - hint: you may need the mmproj", code=500), wrong(), None),
        (500, openai("Failed to parse messages: Unsupported content; messages = []", code=500), wrong(), None),
        (500, openai("failed to decode: image input is not supported", code=500), (502, "server_error", None), None),
        (404, {"error": "Conversation roles must alternate"}, wrong(), "Conversation roles must alternate"),
        (404, {"error": 'model "x" not found, try pulling it first'}, NO_MODEL, 'model "x" not found, try pulling it first'),
        (404, openai("gone", param="model"), NO_MODEL, "gone"),
        (404, {"detail": "Not Found"}, NO_ENDPOINT, None),
        (400, openai("Failed to call a function.", code="tool_use_failed"), (502, "server_error", None), None),  # Groq
        (400, openai("Failed to generate JSON.", code="json_validate_failed"), (502, "server_error", None), None),
        (401, openai("bad key"), (401, "invalid_api_key", None), "bad key"),
        (403, openai("not yours"), (403, "permission_denied", None), "not yours"),
        (429, openai("slow down", code=429), (429, "rate_limit_exceeded", None), "slow down"),
        (429, openai("pay", code="insufficient_quota"), (429, "insufficient_quota", None), "pay"),
        (500, openai("CUDA error", code=500), (502, "server_error", None), "CUDA error"),
        (503, openai("Loading model", "unavailable_error", 503), (503, "server_error", None), "Loading model"),
        (504, {}, (504, "server_error", None), "The backend answered with HTTP 504."),
        (529, {}, (503, "server_error", None), "The backend answered with HTTP 529."),
        (302, {}, (502, "server_error", None), "The backend answered with HTTP 302."),
        (500, openai("odd", code=["x"], kind={}, param=5), (502, "server_error", None), "odd"),
        (500, [openai("in a list")], (502, "server_error", None), "in a list"),
        (500, {"error": openai("within another")}, (502, "server_error", None), "within another"),
        (500, {"error": {"message": 5}}, (502, "server_error", None), "The backend answered with HTTP 500."),
    ],
)
def test_other_refusals(status: int, body: Any, expected: tuple[int, str, str | None], message: str | None) -> None:
    error = read_error(status, json.dumps(body).encode())
    assert fate(error) == expected
    assert message is None or error.message == message


REGION = {"code": "unsupported_country_region_territory", "message": "Country, region, or territory not supported",
          "param": None, "type": "request_forbidden"}  # fmt: skip
QUOTA = (429, "insufficient_quota", None)
XAI = "The caller does not have permission to execute the specified operation"
KIMI = "is currently only available for Coding Agents such as Kimi CLI, Claude Code, Roo Code, Kilo Code, etc."


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        # OpenRouter
        (403, {"error": {"code": 403, "message": "m requires moderation on OpenRouter. Your input was flagged. "
                         "No credits were charged.", "metadata": {"reasons": ["violence"]}}}, wrong()),
        (403, openai("Request blocked: prompt injection patterns detected", code=403), wrong()),
        (403, openai("The prompt was blocked by Model Armor", code=403), wrong()),
        (403, openai("Upstream safety policy triggered", "safety_check_failed", "403"), wrong()),
        (403, openai("Key limit exceeded (total limit). Manage it using https://openrouter.ai/settings/keys", code=403), QUOTA),
        # xAI
        (403, {"code": XAI, "error": "Content violates usage guidelines. Team: t, API key ID: 0000, Model: grok"}, wrong()),
        (403, {"code": XAI, "error": "Your newly created team doesn't have any credits yet."}, QUOTA),
        (403, {"code": "permission-denied", "error": "Your team has reached its monthly spending limit."}, QUOTA),
        # Kimi, SiliconFlow
        (403, openai("You've reached your usage limit for this billing cycle.", "access_terminated_error"), QUOTA),
        (403, {"code": 30001, "message": "Sorry, your account balance is insufficient", "data": None}, QUOTA),
        # OpenAI, LiteLLM, Ollama, DashScope, Bedrock, Groq
        (403, openai("Project `p` does not have access to model `m`", code="model_not_found"), NO_MODEL),
        (401, openai("key not allowed to access model. This key can only access models=['m']", "key_model_access_denied", "401",
                     "model"), NO_MODEL),
        (403, {"error": "this model requires a subscription, upgrade for access: https://ollama.com/upgrade"}, NO_MODEL),
        (403, openai("Access to model denied. Please make sure you are eligible for using the model."), NO_MODEL),
        (403, openai("You don't have access to the model with the specified model ID.", "AccessDeniedException"), NO_MODEL),
        (403, openai("The model `m` is blocked at the project level.", "permissions_error"), NO_MODEL),
    ],
)  # fmt: skip
def test_a_403_that_is_not_about_the_key(status: int, body: Any, expected: tuple[int, str, str | None]) -> None:
    error = read_error(status, json.dumps(body).encode())
    assert fate(error) == expected
    assert error.of_gateway_key() is error  # whose key it was does not matter
    assert "0000" not in error.message


@pytest.mark.parametrize(
    ("body", "final"),
    [
        (openai("Usage limit reached for 5 hour. Your limit will reset at 2026-09-09 05:38:28", code="1308"), True),  # z.ai
        (openai("您已达到每周/每月使用上限，您的限额将在 2026-09-09 05:38:28 重置", code="1310"), True),
        (openai("Your current subscription plan does not yet include access to GLM-5", code="1311"), True),
        (openai("Budget has been exceeded! Current cost: 1, Max budget: 0.5", "budget_exceeded"), True),  # LiteLLM
        ({"error": "you have reached your session usage limit, upgrade for higher limits"}, True),  # Ollama
        (openai("Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day"), True),
        (
            {"code": "x", "error": "Your team has either used all available credits or reached its monthly spending limit."},
            True,
        ),
        (openai("Usage limit of 60 requests per minute reached"), False),
        (openai("Usage limit reached. Try again in 20 seconds."), False),
        (openai("The model is temporarily rate-limited upstream. Please retry shortly."), False),
        (openai("Your account's current usage pattern does not comply with the Fair Usage Policy", code="1313"), False),
    ],
)
def test_a_429_for_what_is_used_up_for_hours_is_not_asked_again(body: Any, final: bool) -> None:
    error = read_error(429, json.dumps(body).encode())
    assert (error.final, error.code) == (final, "insufficient_quota" if final else "rate_limit_exceeded")
    assert not read_error(429, json.dumps(body).encode(), retry_after=30).final


@pytest.mark.parametrize(
    "body",
    [
        {"error": REGION},
        openai(f"Kimi For Coding {KIMI}", "access_terminated_error"),
        openai("Access denied due to Virtual Network/Firewall rules.", code="403"),
        [
            {
                "error": {
                    "code": 403,
                    "message": "Generative Language API has not been used in project 1 before or it is disabled.",
                }
            }
        ],
        {"type": "error", "error": {"type": "forbidden", "message": "Request not allowed"}},
    ],
)
def test_a_403_for_who_asks_or_from_where_has_its_words(body: Any) -> None:
    error = read_error(403, json.dumps(body).encode())
    assert fate(error.of_gateway_key()) == (403, "permission_denied", None)
    told = for_client(error)
    assert (told.status, told.final, error.message in told.message) == (502, True, True)


@pytest.mark.parametrize(
    "body",
    [
        openai("The API key is not valid for this model"), openai("Your API key was reported as leaked, in your account."),
        {"code": "permission-denied", "error": "Access is denied. Please ensure you're using the correct credentials."},
        {"detail": "Authorization failed"}, {}, openai("no"),
    ],
)  # fmt: skip
def test_a_403_for_the_key_tells_nothing_of_it(body: Any) -> None:
    error = read_error(403, json.dumps(body).encode())
    assert error.of_gateway_key().message.startswith("The backend does not accept the gateway's own key (HTTP 403).")
    assert for_client(error).message.startswith("The backend refused the key")


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b"\xff\xfe", b"[1]", b"null", b"[" * 100_000])
def test_a_body_that_says_nothing(body: bytes) -> None:
    error = read_error(502, body)
    assert (*fate(error), error.message) == (502, "server_error", None, "The backend answered with HTTP 502.")


@pytest.mark.parametrize(
    ("message", "param", "expected"),
    [
        (
            "max_tokens=40000 cannot be greater than max_model_len=32768.",
            "max_tokens",
            ("max_output_tokens=40000 cannot be greater than max_model_len=32768.", "max_output_tokens"),
        ),
        (
            "max_completion_tokens is too large: 9.",
            "max_completion_tokens",
            ("max_output_tokens is too large: 9.", "max_output_tokens"),
        ),
        ("`max_new_tokens` must be positive", None, ("`max_output_tokens` must be positive", None)),
        ("bad schema", "response_format.json_schema.schema", ("bad schema", "text.format.schema")),
        ("no such format", "body.response_format", ("no such format", "text.format")),
        ("Field required", "body.messages", ("Field required", "input")),
        ("role?", "messages[3].role", ("role?", "input")),
        ("reasoning_effort: no", "reasoning_effort", ("reasoning.effort: no", "reasoning.effort")),
        ("too high", "temperature", ("too high", "temperature")),
        ("bad tool", "body.tools.0.function", ("bad tool", "tools.0.function")),
        ("Unknown: tools[0].function.strict", "tools[0].function.strict", ("Unknown: tools[0].strict", "tools[0].strict")),
        ("'response_format.json_schema.strict'?", None, ("'text.format.strict'?", None)),
        ("bad json", "body.16", ("bad json", None)),
        ("my_max_tokens and max_tokens_total", "stop", ("my_max_tokens and max_tokens_total", "stop")),
        ("no words", "body", ("no words", None)),
    ],
)
def test_errors_name_the_parameters_of_the_client(message: str, param: str | None, expected: tuple[str, str | None]) -> None:
    error = in_client_terms(read_error(400, json.dumps(openai(message, param=param)).encode()))
    assert (error.message, error.param) == expected


def test_the_gateway_s_own_errors_keep_their_words() -> None:
    error = invalid_request("max_tokens is not what it was", "messages")
    assert in_client_terms(error) is error


def test_the_time_to_wait_is_passed_on() -> None:
    assert read_error(429, b"{}", 7.5).retry_after == 7.5
    assert read_error(503, b"{}", 2.0).retry_after == 2.0
    assert read_error(400, b"{}", 2.0).retry_after is None


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("You exceeded your current quota. Please retry in 33.129s.", 33.129),  # Google, without a header
        ("Rate limit reached, please try again after 1 seconds", 1),
        ("Please try again in 20s. Visit your account", 20),
        ("Please try again in 350ms", None),
        ("Please try again in 1m26.4s", None),
        ("Try again later", None),
    ],
)
def test_the_time_to_wait_may_stand_in_the_message(message: str, seconds: float | None) -> None:
    body = json.dumps({"error": {"message": message, "code": 429}}).encode()
    assert read_error(429, body).retry_after == seconds
    assert read_error(429, body, 7.5).retry_after == 7.5
    assert read_error(400, body).retry_after is None


def test_a_request_with_more_tokens_than_a_minute_has_is_not_repeated() -> None:
    # Groq's, by tokens per minute; Claude Code would send it eleven times.
    body = openai("Request too large for model `m` on tokens per minute (TPM): Limit 10000", "tokens", "rate_limit_exceeded")
    for status, final in ((413, True), (429, False)):
        error = read_error(status, json.dumps(body).encode())
        assert (error.status, error.code, error.final) == (429, "rate_limit_exceeded", final)


def test_no_capacity_is_no_fault_of_the_request() -> None:
    # Groq's flex tier.
    assert read_error(498, b'{"error":{"message":"Flex tier capacity exceeded"}}').status == 503


def test_a_404_of_a_server_whose_model_has_died_is_no_fault_of_the_request() -> None:
    """Of mlx_lm.server, which answers any failure so."""
    error = read_error(404, b'{"error": "generation thread died"}')
    assert (error.status, error.code, error.message) == (502, "server_error", "generation thread died")
    assert read_error(404, b'{"error": "Only user and assistant roles are supported!"}').status == 400


def test_a_long_message_is_cut() -> None:
    assert len(read_error(500, json.dumps({"error": "x" * 9000}).encode()).message) == 2000


def test_the_types_are_the_sdk_s() -> None:
    kinds = {status: read_error(status, b"{}").type for status in (400, 401, 429, 500)}
    assert kinds == {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error", 500: "server_error"}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"message": "EngineCore encountered an issue.", "code": 500}, (502, "server_error", None)),
        ({"message": "x", "code": 503}, (503, "server_error", None)),
        ({"message": "x", "status_code": 429}, (429, "rate_limit_exceeded", None)),
        ({"message": "x", "code": "rate_limit_exceeded"}, (429, "rate_limit_exceeded", None)),
        ({"message": "x", "code": "insufficient_quota"}, (429, "insufficient_quota", None)),
        ({"message": "x", "code": "429"}, (429, "rate_limit_exceeded", None)),
        ({"message": "x", "type": "rate_limit_error"}, (429, "rate_limit_exceeded", None)),
        ({"message": "x", "code": "4299"}, (502, "server_error", None)),
        ({"message": "x", "code": "tool_use_failed", "status_code": 400}, (502, "server_error", None)),
        ({"message": "x", "type": ["rate_limit_error"]}, (502, "server_error", None)),
        ({"message": "maximum context length", "code": 400}, OVERFLOW),
        ({"message": "x", "code": 200}, (502, "server_error", None)),
        ({"message": "x", "code": True}, (502, "server_error", None)),
        ({"message": "x", "code": []}, (502, "server_error", None)),
        ("text", (502, "server_error", None)),
        (None, (502, "server_error", None)),
    ],
)
def test_errors_in_the_middle_of_a_stream(error: Any, expected: tuple[int, str, str | None]) -> None:
    assert fate(read_error_chunk(error)) == expected


# ---- the error object --------------------------------------------------------------------------------------------------


def test_the_words_of_a_prompt_that_is_too_long_stand_once() -> None:
    words = "Your input exceeds the context window of this model. Please adjust your input and try again."
    assert in_client_terms(read_error(400, json.dumps(openai(words)).encode())).message == words


def test_the_body_of_an_error() -> None:
    error = invalid_request("no", "input[0]", "bad")
    assert error.body() == {"error": {"message": "no", "type": "invalid_request_error", "param": "input[0]", "code": "bad"}}
    assert (error.status, str(error)) == (400, "no")


def test_a_server_error_is_the_backend_s_unless_told_otherwise() -> None:
    assert (server_error("x").status, server_error("x", 500).status) == (502, 500)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html><head><title>413 Request Entity Too Large</title></head></html>", "in front of it, accepts (HTTP 413)"),
        (b"Payload Too Large", "in front of it, accepts (HTTP 413)"),
        (b"", "in front of it, accepts (HTTP 413)"),
        (b'{"error": {"message": "The images have 40 MB, 20 are allowed."}}', "The images have 40 MB"),
    ],
)
def test_a_request_with_too_many_bytes_is_no_prompt_with_too_many_tokens(body: bytes, message: str) -> None:
    """Codex repeats what is answered with 413; Anthropic's clients know that status, and send fewer pictures."""
    error = read_error(413, body)
    assert (error.status, error.code, message in error.message) == (400, "request_too_large", True)
    assert error_of(error)[:2] == (413, "request_too_large")


@pytest.mark.parametrize("status", [408, 499])
def test_a_request_that_took_too_long_is_not_wrong(status: int) -> None:
    error = read_error(status, b'{"error": {"message": "Request timed out"}}')
    assert (error.status, error.code, error.message) == (504, "server_error", "Request timed out")


def test_a_failed_response_in_place_of_a_chunk_is_an_error() -> None:
    payload = json.dumps({"type": "response.failed", "response": {"error": {"message": "No memory is left"}}}).encode()
    failure = decode_chunk(payload).failure(payload)
    assert read_error_chunk(failure).message == "No memory is left"
