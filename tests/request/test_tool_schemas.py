"""Schemas of tools: what servers insist on is filled in, and nothing that a schema says is changed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from responses_gateway.request.tools.schemas import SchemaReader
from tests.request.builders import chat_request
from tests.request.messages_bodies import chat_of

Schema = dict[str, Any]
EMPTY: Schema = {"type": "object", "properties": {}}
PATH = {"type": "string", "description": "A path."}


def filled(schema: Schema) -> Schema:
    return SchemaReader().parameters(schema)


def with_property(schema: Any) -> Schema:
    return {"type": "object", "properties": {"path": PATH, "inner": schema}, "required": ["path"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": []},
        {"type": "object", "properties": None},
        {"type": None},
        {"properties": {}},
        {"type": ["object", "null"]},
    ],
)
def test_parameters_are_an_object_with_properties(schema: Schema) -> None:
    assert filled(schema) == EMPTY
    assert filled({**schema, "additionalProperties": False}) == {**EMPTY, "additionalProperties": False}
    tool = {"type": "function", "name": "now", "parameters": schema}
    assert chat_request(tools=[tool]).body["tools"][0]["function"]["parameters"] == EMPTY
    found = chat_request(tools=[{"type": "namespace", "name": "clock", "tools": [tool]}]).body
    assert found["tools"][0]["function"]["parameters"] == EMPTY
    at_messages = chat_of(tools=[{"name": "now", "input_schema": schema}])
    assert at_messages["tools"][0]["function"]["parameters"] == EMPTY


@pytest.mark.parametrize(
    ("inner", "sent"),
    [
        ({"type": "object"}, EMPTY),
        ({"type": "object", "additionalProperties": {"type": "object"}}, {**EMPTY, "additionalProperties": EMPTY}),
        ({"type": "array", "items": {"type": "object"}}, {"type": "array", "items": EMPTY}),
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": "object", "properties": [], "$defs": []}, {**EMPTY, "$defs": {}}),
        ({"type": "array", "items": []}, {"type": "array", "items": {}}),
        ({"type": "array", "items": None}, {"type": "array", "items": {}}),
        ({"type": ["array", "null"], "items": True}, {"type": ["array", "null"], "items": {}}),
        ({"anyOf": [{"type": "object"}, {"type": "null"}, None]}, {"anyOf": [EMPTY, {"type": "null"}, {}]}),
        ({"$defs": {"a": {"type": "object"}}, "$ref": "#/$defs/a"}, {"$defs": {"a": EMPTY}, "$ref": "#/$defs/a"}),
        ({"type": "string", "enum": None, "description": None}, {"type": "string"}),
        (True, {}),
        (None, {}),
    ],
)
def test_what_is_missing_inside_is_filled_in(inner: Any, sent: Schema) -> None:
    assert filled(with_property(inner)) == with_property(sent)
    assert filled(with_property(with_property(inner))) == with_property(with_property(sent))


@pytest.mark.parametrize(
    "inner",
    [
        {"type": ["string", "null"], "default": None},
        {"const": None},
        {"enum": ["a", None], "examples": [{"type": "object"}]},
        {"type": "array", "prefixItems": [{"type": "string"}]},
        {"default": {"type": "object", "note": None}},
        False,
    ],
)
def test_values_and_whole_schemas_stay_as_they_are(inner: Any) -> None:
    schema = with_property(inner)
    assert filled(schema) == schema
    assert filled({"type": "string"}) == {"type": "string"}  # nonsense is the server's to judge


def test_a_property_may_be_called_like_a_member_of_a_schema() -> None:
    names = {"type": PATH, "properties": {"type": "object"}, "items": {"type": "array"}, "default": {"type": "object"}}
    found = filled({"type": "object", "properties": names})["properties"]
    assert found == {"type": PATH, "properties": EMPTY, "items": {"type": "array", "items": {}}, "default": EMPTY}


_LEAVES: Any = st.sampled_from(
    [{}, {"type": "string"}, {"type": "object"}, {"type": "array"}, {"type": ["object", "null"]}, True]
)


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(st.sampled_from(["a", "items"]), inner, max_size=2)
    several = st.lists(inner, min_size=1, max_size=2)
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("object")}, optional={"properties": named, "additionalProperties": inner}),
        st.fixed_dictionaries({"type": st.just("array")}, optional={"items": inner, "prefixItems": several}),
        st.fixed_dictionaries({"anyOf": several}, optional={"not": inner}),
    )


def _values() -> Iterator[Any]:
    inner = ["x", None, 1, [], {}, ["x", 1], {"a": "x"}, {"a": {}, "items": []}, [{}], {"b": 1}]
    yield from inner
    for value in inner:
        yield [value]
        yield {"a": value}


@given(st.recursive(_LEAVES, _larger, max_leaves=8))
def test_the_same_values_are_valid_as_before(schema: Any) -> None:
    parameters = with_property(schema)
    new = filled(parameters)
    assert filled(new) == new
    before = Draft202012Validator(parameters)
    after = Draft202012Validator(new)
    for value in _values():
        arguments = {"path": "p", "inner": value}
        assert before.is_valid(arguments) == after.is_valid(arguments)


@pytest.mark.slow
def test_a_very_large_schema_takes_no_longer_than_others() -> None:
    wide = {"type": "object", "properties": {str(number): {"type": "object"} for number in range(200_000)}}
    deep: Schema = {}
    for _ in range(2000):
        deep = {"type": "object", "properties": {"a": deep}}
    begun = time.process_time()
    assert filled(wide) == wide
    assert filled(deep) == deep
    reader = SchemaReader()
    for _ in range(200):
        reader.parameters({"type": "object", "properties": {str(number): {} for number in range(1000)}})
    assert time.process_time() - begun < 1
