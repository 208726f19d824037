"""Tools that a server is to enforce: which schemas can be, and what is left out of them."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.request.tools.strict_tools import digest_of, strict_tools

Json = dict[str, Any]
TAG: Json = {"type": "object", "properties": {"tag": {"type": "string", "pattern": "^v[0-9]+$"}}, "required": ["tag"]}


def tool(parameters: Any) -> Json:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


def test_what_servers_cannot_compile_is_left_out_wherever_it_stands() -> None:
    text = {"type": "string", "maxLength": 8}
    schema = {
        "type": "object",
        "properties": {"a": text, "maxLength": {"type": "array", "items": text}, "b": {"anyOf": [text, True]}},
    }
    made = strict_tools([tool(schema)], ())
    assert made is not None
    plain = {"type": "string"}
    properties = {"a": plain, "maxLength": {"type": "array", "items": plain}, "b": {"anyOf": [plain, True]}}
    expected = {"name": "f", "parameters": {"type": "object", "properties": properties}, "strict": True}
    assert made[0]["function"] == expected


def test_a_tool_that_was_refused_stays_as_it_is() -> None:
    assert strict_tools([tool(TAG)], {digest_of(tool(TAG))}) is None
    assert strict_tools([tool(TAG)], {digest_of(tool({"type": "object"}))}) is not None


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"a": {"$ref": "https://example.com/x"}}},
        {"type": "object", "properties": {"a": {"allOf": [{}, {}]}}},
        {"type": "object", "properties": {"a": "x"}},
        {"type": "object", "properties": {f"p{number}": {} for number in range(5000)}},
        None,
    ],
)
def test_a_tool_whose_schema_cannot_be_enforced_stays_as_it_is(parameters: Any) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    assert strict_tools([tool, {"type": "function", "function": {"name": "g", "parameters": TAG, "strict": False}}], ()) is None


def test_a_deep_schema_is_not_followed_to_its_end() -> None:
    schema: Json = {"type": "string"}
    for _ in range(100):
        schema = {"type": "array", "items": schema}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": schema}}}}]
    assert strict_tools(tools, ()) is None
    kept = [{"type": "function", "function": {"name": "f", "parameters": {"anyOf": [True, {"$ref": "#/$defs/a"}]}}}]
    assert strict_tools(kept, ()) is not None
