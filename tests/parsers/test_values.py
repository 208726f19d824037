"""Typing of plain text by JSON schema."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from responses_gateway.parsers import parser
from responses_gateway.parsers.arguments.values import dumps, escape, given, obvious, typed, types_of
from responses_gateway.wire.deltas import ToolArguments


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("null", {"string", "null"}, None),
        ("None", {"null"}, None),
        ("null", {"string"}, "null"),
        ("4", {"integer", "string"}, 4),
        ("007", {"integer", "string"}, 7),
        ("+5", {"integer"}, 5),
        (" 12 ", {"integer"}, 12),
        ("1.0", {"number"}, 1),
        ("1.0", {"integer"}, 1),
        ("1.5", {"integer"}, "1.5"),
        ("1.5", {"number"}, 1.5),
        ("12", {"number"}, 12),
        ("1e400", {"number"}, "1e400"),
        ("1e30", {"number"}, 1e30),
        ("NaN", {"number"}, "NaN"),
        ("1_000", {"integer"}, "1_000"),
        ("9" * 5000, {"integer"}, "9" * 5000),
        ("TRUE", {"boolean"}, True),
        ("0", {"boolean"}, False),
        ("1", {"boolean", "integer"}, 1),
        ("yes", {"boolean"}, "yes"),
        ('{"a": [1]}', {"object"}, {"a": [1]}),
        ("['a', None]", {"array"}, ["a", None]),
        ("{'a': {1, 2}}", {"object"}, "{'a': {1, 2}}"),
        ("[NaN]", {"array"}, "[NaN]"),
        ("[1e400]", {"array"}, "[1e400]"),
        ("[1", {"array"}, "[1"),
        ("[" * 100_000, {"array"}, "[" * 100_000),
        ("5", {"array"}, 5),
        ("5", {"array", "string"}, "5"),
        ("true", {"object", "string"}, "true"),
        ("[1]", {"object", "string"}, "[1]"),
        ("(1, 2)", {"array", "string"}, "(1, 2)"),
        ('["a"]', {"array", "string"}, ["a"]),
    ],
)
def test_text_becomes_the_first_type_that_fits(text: str, types: set[str], value: Any) -> None:
    assert repr(json.loads(typed(text, frozenset(types)))) == repr(value)


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({}, {"string"}),
        (True, {"string"}),
        ({"type": "int32"}, {"integer"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        (
            {"enum": ["a", 1, 1.5, True, None, {}, []]},
            {"string", "integer", "number", "boolean", "null", "object", "array"},
        ),
        ({"const": 3}, {"integer"}),
        ({"anyOf": [{"type": "string"}, {"oneOf": [{"type": "list"}]}]}, {"string", "array"}),
        ({"$ref": "#/$defs/count"}, {"integer"}),
        ({"$ref": "#/$defs/a~1b"}, {"boolean"}),
        ({"$ref": "#/$defs/loop"}, {"string"}),
        ({"$ref": "#/missing/deep"}, {"string"}),
        ({"$ref": "#/$defs/count/type/x"}, {"string"}),
        ({"anyOf": "nonsense", "enum": 3}, {"string"}),
        ({"properties": {"a": {}}}, {"object"}),
        ({"anyOf": [{"items": {}}, {"type": "null"}]}, {"array", "null"}),
        ({"type": "integer", "nullable": True}, {"integer", "null"}),
        ({"type": "integer", "nullable": False}, {"integer"}),
    ],
)
def test_the_types_of_a_schema(schema: Any, types: set[str]) -> None:
    root = {"$defs": {"count": {"type": "integer"}, "a/b": {"type": "bool"}, "loop": {"$ref": "#/$defs/loop"}}}
    assert types_of(schema, root) == types


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-1.5e3", -1500.0),
        ("[1e400]", "[1e400]"),
        ("007", "007"),
        ("true", True),
        ("null", None),
        ("[1]", [1]),
        ("{x", "{x"),
        (" a ", " a "),
    ],
)
def test_without_a_schema_only_the_obvious_is_no_string(text: str, value: Any) -> None:
    assert json.loads(obvious(text)) == value


@pytest.mark.parametrize(("text", "value"), [("null", None), ("3", 3), ('"a"', "a"), ("many", "many"), ("{'a': 1}", {"a": 1})])
def test_text_that_is_said_to_be_json(text: str, value: Any) -> None:
    assert json.loads(given(text)) == value


def test_what_utf_8_cannot_carry_is_escaped() -> None:
    assert escape('é\ud83d"\n') == 'é\\ud83d\\"\\n'
    assert dumps(["\ud83d"]) == '["\\ud83d"]'
    assert dumps({"é": 1}) == '{"é": 1}'


def test_schemas_that_refer_to_each_other_are_each_followed_once() -> None:
    """All ways from one to another are more than anybody could go."""
    kinds = {f"k{number}": {"anyOf": [{"$ref": f"#/$defs/k{other}"} for other in range(50)]} for number in range(50)}
    kinds["k49"]["anyOf"].append({"type": "integer"})
    began = time.process_time()
    assert types_of({"$ref": "#/$defs/k0"}, {"$defs": kinds}) == {"integer"}
    assert time.process_time() - began < 1


@pytest.mark.parametrize("edit", [{"$ref": "#/$defs/edit"}, {"anyOf": [{"$ref": "#/$defs/edit"}, {"type": "null"}]}])
def test_members_of_a_schema_that_is_referred_to_have_its_types(edit: Any) -> None:
    """Pydantic writes every model within a model so."""
    mark = "]<]minimax[>["
    members = {"line": {"type": "string"}, "text": {"type": "string"}, "count": {"type": "integer"}}
    schema = {
        "properties": {"edits": {"type": "array", "items": edit}},
        "$defs": {"edit": {"type": "object", "properties": members}},
    }
    values = {"line": "7", "text": "true", "count": "3"}
    elements = "".join(f"{mark}<{name}>{value}{mark}</{name}>" for name, value in values.items())
    call = f'{mark}<invoke name="edit">{mark}<edits>{mark}<item>{elements}{mark}</item>{mark}</edits>{mark}</invoke>'
    reader = parser(None, "minimax_m3", schemas={"edit": schema})
    deltas = [*reader.feed(f"{mark}<tool_call>{call}{mark}</tool_call>"), *reader.finish("stop")]
    arguments = "".join(delta.text for delta in deltas if isinstance(delta, ToolArguments))
    assert json.loads(arguments) == {"edits": [{"line": "7", "text": "true", "count": 3}]}


def test_the_parameters_of_a_tool_may_be_a_reference() -> None:
    """`zod-to-json-schema` writes those of a schema with a name so."""
    members = {"id": {"type": "string"}, "count": {"type": "integer"}}
    schema = {"$ref": "#/definitions/Find", "definitions": {"Find": {"type": "object", "properties": members}}}
    values = "<parameter=id>2024</parameter><parameter=count>3</parameter>"
    reader = parser(None, "qwen3_coder", schemas={"find": schema})
    deltas = [*reader.feed(f"<tool_call><function=find>{values}</function></tool_call>"), *reader.finish("stop")]
    arguments = "".join(delta.text for delta in deltas if isinstance(delta, ToolArguments))
    assert json.loads(arguments) == {"id": "2024", "count": 3}
