"""Fields that the gateway adds on its own are given up where a strict server refuses them; those of the client never are."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from responses_gateway.backend.transport.optional_fields import LearnedChanges, changed, further_changes
from responses_gateway.wire.added_fields import ALWAYS_ADDED, UNSEEN_FIELDS, AddedField, AddedFields
from tests.server.running_gateway import assert_error, gateway, post, run
from tests.server.scripted_backend import HEAD, Backend, Connection, Play, backend, chunk, text_stream

# Raw markup: the gateway asks for special tokens, and for the ids of tokens.
RAW: dict[str, Any] = {"reasoning_parser": "qwen3", "tool_call_parser": "kimi_k2", "token_ids": "on", "opened_thinking": "no"}
ADDED = {"return_token_ids", "skip_special_tokens", "spaces_between_special_tokens", "stream_options"}
WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}

VARIABLES: AddedFields = {"reasoning_effort": AddedField(), "chat_template_kwargs": AddedField()}
# A request with every field that the gateway may add.
FULL: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "A", "reasoning": "a thought"}],
    **{path: field.value for path, field in UNSEEN_FIELDS.items()},
    "parallel_tool_calls": True,
    "max_completion_tokens": 100,
    "reasoning_effort": "none",
    "chat_template_kwargs": {"enable_thinking": False},
}
OWN = {**ALWAYS_ADDED, **VARIABLES}


def refused_fields(refusal: str, body: dict[str, Any] = FULL, added: AddedFields = OWN) -> dict[str, str]:
    """Return the changes for which a refusal asks."""
    return dict(further_changes(refusal.encode(), json.dumps(body).encode(), {}, added))


def without(body: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return what is sent of a body if fields of these names are left out."""
    sent: dict[str, Any] = json.loads(changed(json.dumps(body).encode(), dict.fromkeys(names, ""), OWN).data)
    return sent


REFUSALS = {
    "transformers": "{\"detail\":\"Unexpected fields in the request: {'FIELD'}\"}",
    "pydantic": '{"detail":[{"type":"extra_forbidden","loc":["body","FIELD"],"msg":"Extra inputs are not permitted"}]}',
    "pydantic as text": "{\"message\":\"[{'type': 'extra_forbidden', 'loc': ('body', 'FIELD'), 'msg': 'Extra inputs'}]\"}",
    "openai": '{"error":{"message":"Unknown parameter: \'FIELD\'.","param":"FIELD","code":"unknown_parameter"}}',
    "openai, older": '{"error":{"message":"Unrecognized request argument supplied: FIELD","param":null}}',
    "serde": '{"error":"Failed to deserialize the JSON body: unknown field `FIELD`, expected one of `model`, `messages`"}',
    "google": '[{"error":{"code":400,"message":"Invalid JSON payload. Unknown name \\"FIELD\\": Cannot find field."}}]',
    "groq": '{"error":{"message":"property \'FIELD\' is unsupported"}}',
    "anthropic": '{"error":{"message":"FIELD: Extra inputs are not permitted"}}',
    "litellm": '{"error":{"message":"litellm.UnsupportedParamsError: x does not support parameters: [\'FIELD\']"}}',
    "openrouter": '{"error":{"message":"No endpoints found that support the provided \'FIELD\' value.","code":404}}',
    "marshmallow": '{"FIELD":["Unknown field."]}',
    "joi": '{"message":"\\"FIELD\\" is not allowed"}',
    "zod": '{"code":"unrecognized_keys","keys":["FIELD"],"path":[],"message":"Unrecognized key(s) in object"}',
    "ajv": '{"message":"must NOT have additional properties","params":{"additionalProperty":"FIELD"}}',
    "jackson": 'Unrecognized field "FIELD" (class A), not ignorable (2 known properties: "model", "stream_options", "x"])',
    "dotnet": "The JSON property 'FIELD' could not be mapped to any .NET member.",
    "bedrock": '{"message":"Malformed input request: #: extraneous key [FIELD] is not permitted"}',
    "nim": "Validation: Unsupported parameter(s): `FIELD`",
    "chinese": '{"error":{"code":"1210","message":"参数FIELD不支持"}}',
    "set": '{"error":{"message":"FIELD must not be set for this model"}}',
    "zod, flat": '{"formErrors":["Unrecognized key(s) in object: \'FIELD\'"],"fieldErrors":{}}',
    "protobuf": 'Message type "x.Request" has no field named "FIELD" at "Request".',
    "newtonsoft": "Could not find member 'FIELD' on object of type 'Request'. Path 'FIELD', line 1, position 20.",
    "class-validator": '{"statusCode":400,"message":["property FIELD should not exist"],"error":"Bad Request"}',
    "laravel": '{"errors":{"FIELD":["The FIELD field is prohibited."]}}',
    "rails": "found unpermitted parameter: :FIELD",
    "superstruct": "At path: FIELD -- Expected a value of type `never`, but received: `false`",
    "azure ai": "Extra parameters ['FIELD'] are disallowed",
    "short": "this server doesn't support FIELD",
    "json schema": '{"error":{"message":"Additional properties are not allowed (\'FIELD\' was unexpected)"}}',
}  # fmt: skip


@pytest.mark.parametrize("server", REFUSALS)
def test_refusals_of_many_servers_are_understood(server: str) -> None:
    for field in ("return_token_ids", "stream_options", "skip_special_tokens", *VARIABLES):
        assert refused_fields(REFUSALS[server].replace("FIELD", field)) == {field: ""}
    assert refused_fields(REFUSALS[server].replace("FIELD", "temperature")) == {}
    assert refused_fields(REFUSALS[server].replace("FIELD", "max_completion_tokens")) == {"max_completion_tokens": "max_tokens"}


@pytest.mark.parametrize(
    "message",
    [
        "When using `tool_choice`, `tools` must be set.",
        "max_tokens must be at least 1, got 0.",
        "The field my.stream_options of your tool is an unknown_stream_options_value",
        "\xff\xfe not text",
    ],
)
def test_other_refusals_are_not_about_these_fields(message: str) -> None:
    assert refused_fields(message) == {}


@pytest.mark.parametrize(
    "refusal",
    [
        "Unknown parameter: 'messages[1].reasoning'.",
        '{"error":{"message":"Invalid","param":"messages.[1].reasoning","code":"unknown_parameter"}}',
        '{"detail":[{"type":"extra_forbidden","loc":["body","messages",1,"reasoning"],"msg":"Extra inputs"}]}',
        "[{'type': 'extra_forbidden', 'loc': ('body', 'messages', 1, 'ChatCompletionAssistantMessageParam', 'reasoning')}]",
        "1 validation error for Request\nbody -> messages -> 1 -> reasoning\n  extra fields not permitted",
        "messages.1.assistant.reasoning: property 'messages.1.assistant.reasoning' is unsupported",
        "'messages.1' : for 'role:assistant' must be satisfied[('messages.1' : property 'reasoning' is unsupported)]",
        "Invalid JSON payload received. Unknown name \"reasoning\" at 'messages[1]': Cannot find field.",
        '{"error":{"metadata":{"raw":"{\\"error\\":{\\"message\\":\\"unknown field \\\\\\"reasoning\\\\\\"\\"}}"}}}',
        "messages[1]: unknown field `reasoning`, expected one of `role`, `content`, `tool_calls`, `reasoning_content`",
        "Additional properties are not allowed ('reasoning' was unexpected) at /messages/1",
        "/messages/1/reasoning: must NOT have additional properties",
        "Unsupported field $.messages[1]['reasoning']",
        '{"error":"json: unknown field \\u0022reasoning\\u0022"}',
        '{"error":{"message":"Extra fields not permitted: reasoning"}}',
        "assistant.reasoning is not supported by this model",
        "unknown field body > messages > 1 > reasoning",
        "messages[*].reasoning: Extra inputs are not permitted",
        "messages.1: Additional property reasoning is not allowed",
        "#/messages/1: extraneous key [reasoning] is not permitted",
        "reasoning: Unknown field in message",
        "unknown field reasoning at messages[1]",
        "messages with role assistant must not contain 'reasoning'",
        '{"message":["messages.1.property reasoning should not exist"]}',
        "1 validation error for Message\nreasoning\n  extra fields not permitted (type=value_error.extra)",
    ],
)
def test_a_field_of_messages_is_named_in_many_ways(refusal: str) -> None:
    assert refused_fields(refusal) == {"messages[].reasoning": "reasoning_content"}


@pytest.mark.parametrize(
    "refusal",
    [
        "The model's reasoning is unsupported here.",
        "unknown field `x`, expected one of `model`, `messages`, `reasoning`, `reasoning_effort`, `stream_options`",
        '{"message":"Unknown parameter: x. Supported parameters are: reasoning_effort, stream_options","type":"invalid"}',
        "Unrecognized argument: x. Did you mean stream_options?",
        "Unsupported value of delta.reasoning",
        "tools.0.function.stream_options: Extra inputs are not permitted",
        "unknown reasoning-effort or x_reasoning_effort",
        "reasoning.effort is not supported",
        '{"detail":[{"type":"extra_forbidden","loc":["body","tools",0,"function","stream_options"],"msg":"Extra inputs"}]}',
        "max_completion_tokens is too large: 99999. This model supports at most 4096 completion tokens",
        "Invalid value for max_completion_tokens: must be at least 1",  # under another name the limit might be ignored
    ],
)
def test_other_words_refuse_no_field(refusal: str) -> None:
    assert refused_fields(refusal) == {}


@pytest.mark.parametrize(
    ("refusal", "field"),
    [
        ('{"error":{"message":"Invalid value: \'none\'. Supported: \'low\'.","param":"reasoning_effort"}}', "reasoning_effort"),
        ("`reasoning_effort` must be one of `low`, `medium`, or `high`", "reasoning_effort"),
        ("This model does not support enable_thinking", "chat_template_kwargs"),
        ("reasoning_effort requires a model that thinks", "reasoning_effort"),
        ("chat_template_kwargs: only for open models", "chat_template_kwargs"),
        ("Argument not supported on this model: reasoningEffort", "reasoning_effort"),
        ("Unknown name include_usage at 'stream_options'", "stream_options"),
        ("Invalid reasoning_effort. Use chat_template_kwargs.enable_thinking to disable thinking.", "reasoning_effort"),
    ],
)
def test_a_value_of_the_gateways_own_may_be_refused_too(refusal: str, field: str) -> None:
    assert refused_fields(refusal) == {field: ""}


@pytest.mark.parametrize(
    ("refusal", "field"),
    [
        ("Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed with 'tools'.", "parallel_tool_calls"),
        ("This model does not support parallel tool calls", "parallel_tool_calls"),
        ("Got priority 3 but Priority scheduling is not enabled.", "priority"),
        ("reasoning effort 'none' is not supported", "reasoning_effort"),
        ('reasoning.effort: Invalid option: expected one of "low"|"high"', "reasoning_effort"),
    ],
)
def test_a_name_may_be_used_like_any_other_word(refusal: str, field: str) -> None:
    words: AddedFields = {**OWN, "priority": AddedField(word=True), "reasoning_effort": AddedField(word=True)}
    assert refused_fields(refusal, {**FULL, "priority": 3}, words) == {field: ""}


@pytest.mark.parametrize(
    ("refusal", "always"),
    [
        ("Reasoning is mandatory for this endpoint and cannot be disabled.", True),
        ("Budget 0 is invalid. This model only works in thinking mode.", True),
        ("Thinking can't be turned off for this model", True),
        ("This model does not support disabling reasoning.", True),
        ("thinking is enabled but reasoning_content is missing in assistant tool call message at index 2", False),
    ],
)
def test_a_model_that_always_thinks_is_not_kept_from_it(refusal: str, always: bool) -> None:
    switches: AddedFields = dict.fromkeys(("reasoning_effort", "chat_template_kwargs"), AddedField(switch=True))
    assert refused_fields(refusal, FULL, switches) == (dict.fromkeys(switches, "") if always else {})


def test_of_two_names_the_one_that_is_refused_is_changed() -> None:
    for words in ("'max_completion_tokens' is deprecated in favor of 'max_tokens'", "unknown maxCompletionTokens"):
        assert refused_fields(words) == {"max_completion_tokens": "max_tokens"}
    refusal = "Unsupported parameter: 'max_completion_tokens' is not supported with this model. Use 'max_tokens' instead."
    assert refused_fields(refusal) == {"max_completion_tokens": "max_tokens"}
    other = refusal.replace("max_completion_tokens", "x").replace("max_tokens", "max_completion_tokens")
    older = {"model": "m", "messages": [], "max_tokens": 5}
    assert refused_fields(other.replace("'x'", "'max_tokens'"), older) == {"max_tokens": "max_completion_tokens"}


def test_a_field_with_two_names_already_is_left_out() -> None:
    message = {"role": "assistant", "content": "A", "reasoning": "a", "reasoning_content": "a"}
    body = {"model": "m", "messages": [message]}
    changes = refused_fields("unknown field messages[0].reasoning", body)
    assert changes == {"messages[].reasoning": ""}
    sent = json.loads(changed(json.dumps(body).encode(), changes, OWN).data)
    assert sent["messages"] == [{"role": "assistant", "content": "A", "reasoning_content": "a"}]


def test_a_limit_that_nobody_asked_for_may_go() -> None:
    added = {**OWN, "max_tokens": AddedField("max_completion_tokens")}
    body = json.dumps({"model": "m", "messages": [], "max_tokens": 5}).encode()
    first = further_changes(b"unknown field max_tokens", body, {}, added)
    assert first == {"max_tokens": "max_completion_tokens"}
    assert further_changes(b"unknown field max_completion_tokens", body, first, added) == {"max_tokens": ""}


def test_changes_of_other_requests_do_no_harm() -> None:
    plain = json.dumps({"model": "m", "messages": "what no translation makes", "chat_template_kwargs": 3}).encode()
    changes = {"messages[].reasoning": "", "chat_template_kwargs.enable_thinking": "", "reasoning_effort": "", "gone": ""}
    assert changed(plain, changes, {**OWN, "chat_template_kwargs.enable_thinking": AddedField()}).data == plain


def test_a_refusal_of_any_size_is_read_at_once() -> None:
    body = json.dumps({**FULL, "messages": FULL["messages"] * 200}).encode()
    for piece in ("'reasoning' unknown ", "use use use ", "expected one of ", "\\\\", "messages.1.", "a,", "'x', "):
        began = time.process_time()
        further_changes((piece * 200_000).encode(), body, {}, OWN)
        assert time.process_time() - began < 0.5  # ten times what it takes


def test_only_so_many_models_are_remembered() -> None:
    learned = LearnedChanges()
    for number in range(1000):
        learned.note(f"m{number}", {"a": ""})
        learned.note(f"m{number}", {"b": ""})
    assert len(learned) < 300
    assert learned["m999"] == {"a": "", "b": ""}


def test_what_a_client_asked_for_stays() -> None:
    body = {"tool_choice": "required", "skip_special_tokens": True}
    assert without(body, list(body)) == body
    neutral = {"tool_choice": "auto", "parallel_tool_calls": True}  # the same as nothing
    assert without(neutral, list(neutral)) == {}
    assert without({"parallel_tool_calls": False}, ["parallel_tool_calls"]) == {}  # the gateway does it by itself


def refusing_fields(refused: set[str], *, one_at_a_time: bool = False, status: int = 422) -> Play:
    """Return a backend that refuses these fields by name, and answers "Hello." otherwise."""

    async def play(connection: Connection) -> None:
        found = sorted(refused & set(body_of(connection)))
        if not found:
            connection.write(HEAD)
            connection.send(*text_stream("Hello."))
            connection.end()
            return
        names = found[:1] if one_at_a_time else found
        data = json.dumps({"detail": f"Unexpected fields in the request: {set(names)}"}).encode()
        head = b"HTTP/1.1 %d No\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(data))
        connection.write(head + data)

    return play


def body_of(connection: Connection) -> dict[str, Any]:
    """Return the body of the request that is being answered."""
    body: dict[str, Any] = json.loads(connection.requests[-1].partition(b"\r\n\r\n")[2])
    return body


def bodies(behind: Backend) -> list[dict[str, Any]]:
    return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in behind.requests if request.startswith(b"POST")]


@pytest.mark.parametrize("one_at_a_time", [False, True])
@pytest.mark.parametrize("status", [400, 422])
def test_a_refused_field_is_left_out_from_then_on(one_at_a_time: bool, status: int) -> None:
    async def test() -> None:
        play = refusing_fields(ADDED, one_at_a_time=one_at_a_time, status=status)
        async with backend(play) as behind, gateway(behind.url, adapt=False, **RAW) as served:
            for _ in range(2):
                answer = await post(served)
                assert answer.final["output"][0]["content"][0]["text"] == "Hello."
            sent = bodies(behind)
            assert len(sent) == (len(ADDED) + 2 if one_at_a_time else 3)  # only the first request was repeated
            assert set(sent[0]) >= ADDED
            assert not ADDED & set(sent[-2])
            assert not ADDED & set(sent[-1])

    run(test())


def test_each_field_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        play = refusing_fields({"return_token_ids"})
        async with backend(play) as behind, gateway(behind.url, adapt=False, **RAW) as served:
            for _ in range(3):
                await post(served)

    with caplog.at_level("INFO", logger="responses_gateway"):
        run(test())
    said = [getattr(record, "fields", {}) for record in caplog.records if "optional field" in record.getMessage()]
    assert [fields["field"] for fields in said] == ["return_token_ids"]


def test_a_refusal_that_goes_on_is_the_clients_and_teaches_nothing() -> None:
    # A conversation that is quoted in an error may have these names in it.
    async def refuse(connection: Connection) -> None:
        data = b'{"error":{"message":"unknown field return_token_ids in your message","code":400}}'
        connection.write(b"HTTP/1.1 400 No\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)

    async def test() -> None:
        async with backend(refuse) as behind, gateway(behind.url, adapt=False, **RAW) as served:
            for _ in range(2):
                assert "unknown field" in assert_error(await post(served), 400, "invalid_prompt")
            sent = bodies(behind)
            assert ["return_token_ids" in body for body in sent] == [True, False, True, False]

    run(test())


def test_a_field_of_the_client_is_refused_to_the_client() -> None:
    async def test() -> None:
        play = refusing_fields({"temperature", "tool_choice"}, status=400)
        async with backend(play) as behind, gateway(behind.url, adapt=False) as served:
            assert "temperature" in assert_error(await post(served, temperature=0.5), 400)
            assert len(bodies(behind)) == 1
            answer = await post(served, tools=[WEATHER], tool_choice="auto")  # the default says the same
            assert answer.final["status"] == "completed"
            answer = await post(served, tools=[WEATHER], tool_choice="none")  # without tools none can be called
            assert (answer.final["status"], "tools" in bodies(behind)[-1]) == ("completed", False)

    run(test())


def test_one_call_at_a_time_is_what_a_client_gets_of_a_server_that_refuses_to_be_told() -> None:
    """o3-mini and o4-mini do; Codex asks for that with many models."""

    async def test() -> None:
        words = "Unsupported parameter: 'parallel_tool_calls' is not supported with this model."
        refusal = json.dumps({"error": {"message": words}}).encode()

        async def play(connection: Connection) -> None:
            if "parallel_tool_calls" in body_of(connection):
                head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                connection.write(head % len(refusal) + refusal)
                return
            calls = [
                {"index": at, "id": f"call-{at}", "function": {"name": "get_weather", "arguments": "{}"}} for at in range(2)
            ]
            connection.write(HEAD)
            connection.send(chunk({"tool_calls": calls}), chunk({}, "tool_calls"), b"data: [DONE]\n\n")
            connection.end()

        async with backend(play) as behind, gateway(behind.url, adapt=False) as served:
            for _ in range(2):
                answer = await post(served, tools=[WEATHER], parallel_tool_calls=False)
                assert [item["type"] for item in answer.final["output"]] == ["function_call"]
                assert answer.final["parallel_tool_calls"] is False
            assert len(bodies(behind)) == 3

    run(test())
