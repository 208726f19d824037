"""Formats of answers that servers refuse: which refusals ask for another one, and which one that is."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.request.parameters.other_format import losses_of_format, other_format

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
ASKED: dict[str, Any] = {
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
}
OBJECT = {**ASKED, "response_format": {"type": "json_object"}}
# What DeepSeek, an older DeepSeek, Groq and llama-cpp-python say.
NO_SCHEMAS = [
    '{"error":{"message":"This response_format type is unavailable now","type":"invalid_request_error"}}',
    "Failed to deserialize the JSON body: response_format: response_format.type `json_schema` is unavailable now at line 1",
    "This model does not support response format `json_schema`. See supported models at https://example.com",
    """{"detail":[{"loc":["body","response_format","type"],"msg":"Input should be 'text' or 'json_object'"}]}""",
]
# What Groq, Gemini and Vertex AI say.
NOT_BESIDE_TOOLS = [
    '{"error":{"message":"json mode cannot be combined with tool/function calling","type":"invalid_request_error"}}',
    """[{"error":{"code":400,"message":"Function calling with a response mime type: 'application/json' is unsupported"}}]""",
    "For controlled generation of only function calls (forced function calling), please set 'function_calling_config.mode'"
    " field to ANY instead of populating 'response_mime_type', 'response_schema' and 'response_json_schema' fields.",
]
LM_STUDIO = "{\"error\":\"'response_format.type' must be 'json_schema' or 'text'\"}"


@pytest.mark.parametrize("refusal", NO_SCHEMAS)
def test_a_server_without_schemas_is_told_the_schema_in_words(refusal: str) -> None:
    sent = other_format(refusal.encode(), ASKED)
    assert sent["response_format"] == {"type": "json_object"}
    system, user = sent["messages"]
    assert system["content"].startswith("Be brief.\n\nAnswer with a JSON object")
    assert system["content"].endswith('{"type":"object","properties":{"a":{"type":"string"}}}')
    assert user == ASKED["messages"][1]
    assert [loss.name for loss in losses_of_format(ASKED, {**ASKED, **sent})] == ["text.format"]
    alone = other_format(refusal.encode(), {**ASKED, "messages": ASKED["messages"][1:]})
    assert [message["role"] for message in alone["messages"]] == ["system", "user"]


@pytest.mark.parametrize("refusal", NOT_BESIDE_TOOLS)
def test_a_server_without_formats_beside_tools_is_told_the_schema_in_words(refusal: str) -> None:
    for asked, schema in ((ASKED, '{"type":"object","properties":{"a":{"type":"string"}}}'), (OBJECT, '{"type":"object"}')):
        sent = other_format(refusal.encode(), asked)
        assert sent["response_format"] == {"type": "text"}
        assert sent["messages"][0]["content"].startswith("Be brief.\n\nCall functions as usual. Answer with a JSON object")
        assert sent["messages"][0]["content"].endswith(schema)
        assert [loss.name for loss in losses_of_format(asked, {**asked, **sent})] == ["text.format"]
        assert other_format(refusal.encode(), {**asked, **sent}) == {}


def test_a_server_without_objects_gets_the_schema_of_any() -> None:
    sent = other_format(LM_STUDIO.encode(), OBJECT)
    assert sent["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert losses_of_format(OBJECT, {**OBJECT, **sent}) == []  # it means the same
    assert other_format(LM_STUDIO.encode(), {**OBJECT, **sent}) == {}


@pytest.mark.parametrize("refusal", [*NO_SCHEMAS, *NOT_BESIDE_TOOLS])
def test_there_is_nothing_less_than_an_object(refusal: str) -> None:
    assert other_format(refusal.encode(), {"messages": OBJECT["messages"]}) == {}
    first = other_format(refusal.encode(), ASKED)
    body = {**ASKED, **first}
    for _ in range(3):
        body |= other_format(refusal.encode(), body)
    assert other_format(refusal.encode(), body) == {}


@pytest.mark.parametrize(
    "refusal",
    [
        "Invalid schema for response_format 'x': In context=(), 'additionalProperties' is required to be supplied.",
        "Unsupported parameter: 'response_format'",
        '{"error":{"message":"The type of a must be string","param":"response_format.json_schema.schema"}}',
        "The prompt must be shorter",
    ],
)
def test_what_the_client_can_mend_is_the_clients(refusal: str) -> None:
    assert other_format(refusal.encode(), ASKED) == {}
    assert other_format(refusal.encode(), OBJECT) == {}
