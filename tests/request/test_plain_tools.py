"""Tools in the form that every server takes: what it has, what it says in words, and which refusals ask for it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from responses_gateway.request.tools.plain_tools import SIMPLIFIED, losses_of_tools, other_tools, plain_tools

Json = dict[str, Any]
KEYWORDS = {"type", "description", "properties", "required", "items", "enum"}
TYPES = {"object", "array", "string", "number", "integer", "boolean", "null"}


def tool(parameters: Any, **more: Any) -> Json:
    return {"type": "function", "function": {"name": "f", "parameters": parameters, **more}}


def plain(parameters: Json) -> Json:
    """Return parameters in the plain form, which servers of all kinds take."""
    (made,) = plain_tools([tool(parameters)])
    found: Json = made["function"]["parameters"]
    assert found["type"] == "object"
    assert list(faults(found)) == []
    assert plain_tools([made]) == [made]  # it has no form that is plainer
    return found


def faults(schema: Any) -> Iterator[Any]:
    """Yield what one server or another refuses in a schema."""
    if not isinstance(schema, dict) or not set(schema) <= KEYWORDS or schema.get("type") not in TYPES:
        yield schema
        return
    needed = {"object": "properties", "array": "items"}.get(schema["type"])
    if needed is not None and needed not in schema:
        yield schema
    if "enum" in schema and (schema["type"] != "string" or not all(type(value) is str for value in schema["enum"])):
        yield schema
    for inner in [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]:
        yield from faults(inner)


def member(schema: Any) -> Json:
    """Return the plain form of a schema of a parameter."""
    found: Json = plain({"type": "object", "properties": {"a": schema}})["properties"]["a"]
    return found


def told(schema: Json) -> Json:
    """Return what the description of a schema tells besides."""
    found: Json = json.loads(schema["description"].rpartition("JSON Schema: ")[2])
    return found


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({"type": "string", "description": "A path."}, {"type": "string", "description": "A path."}),
        ({"type": ["integer", "null"]}, {"type": "integer"}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": "integer"}),
        ({"const": "on"}, {"type": "string", "enum": ["on"]}),
        ({"enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
        ({}, {"type": "string"}),
        (True, {"type": "string"}),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}),
        ({"items": {"type": "number"}}, {"type": "array", "items": {"type": "number"}}),
        ({"type": "object", "additionalProperties": False, "title": "T"}, {"type": "object", "properties": {}}),
        ({"$ref": "#/none"}, {"type": "string"}),
    ],
)
def test_what_needs_no_words(schema: Any, sent: Json) -> None:
    assert member(schema) == sent


@pytest.mark.parametrize(
    ("schema", "kind", "words"),
    [
        ({"type": "string", "maxLength": 10000, "pattern": "^a$"}, "string", {"maxLength": 10000, "pattern": "^a$"}),
        ({"enum": [1, 2]}, "integer", {"enum": [1, 2]}),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            "object",
            {"additionalProperties": {"type": "string"}},
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "number"}]},
            "string",
            {"anyOf": [{"type": "string"}, {"type": "number"}]},
        ),
    ],
)
def test_what_is_told_in_words(schema: Json, kind: str, words: Json) -> None:
    sent = member({"description": "How.", **schema})
    assert sent["type"] == kind
    assert sent["description"].startswith("How.\n")
    assert told(sent) == words
    assert "description" not in member({"type": "string", "examples": ["x" * 2000]})


def test_alternatives_at_the_top_become_one_object() -> None:
    add = {"type": "object", "properties": {"op": {"const": "add"}, "x": {"type": "number"}}, "required": ["op", "x"]}
    delete = {"type": "object", "properties": {"op": {"const": "delete"}, "id": {"type": "string"}}, "required": ["op"]}
    sent = plain({"oneOf": [add, delete]})
    assert sent["properties"] == {"op": {"type": "string"}, "x": {"type": "number"}, "id": {"type": "string"}}
    assert "delete" in sent["description"]
    either = {"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert plain(either)["properties"] == {"a": {"type": "string"}}
    both = {"type": "object", "allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"required": ["c"]}]}
    assert plain(both) == {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


def test_references_are_replaced_by_what_they_refer_to() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/a~1b"}, "v": {"type": "integer"}}, "required": ["v"]}
    sent = plain({"$defs": {"a/b": node}, "type": "object", "properties": {"n": {"$ref": "#/$defs/a~1b", "description": "N."}}})
    first = sent["properties"]["n"]
    assert (first["description"], first["required"]) == ("N.", ["v"])
    assert first["properties"]["next"]["properties"]["v"] == {"type": "integer"}


def test_none_is_strict() -> None:
    (made,) = plain_tools([tool({"type": "object", "properties": {}}, strict=True, description="D")])
    assert made["function"] == {"name": "f", "parameters": {"type": "object", "properties": {}}, "description": "D"}


SCHEMAS = st.recursive(
    st.sampled_from([True, None, [], {"type": "string"}, {"$ref": "#/properties/a"}, {"enum": [1, "a"]}, {"const": None}]),
    lambda inner: st.dictionaries(
        st.sampled_from(["anyOf", "allOf", "oneOf", "items", "properties", "required", "type", "not", "$defs", "description"]),
        st.one_of(inner, st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)),
        max_size=4,
    ),
    max_leaves=20,
)


@example({"anyOf": [{"items": True}]})
@example({"allOf": [{"enum": ["a"]}], "type": "integer"})
@given(SCHEMAS)
def test_whatever_a_schema_is_its_plain_form_is_one(schema: Any) -> None:
    plain(schema if isinstance(schema, dict) else {"properties": {"a": schema}})


def test_a_schema_that_refers_to_itself_in_many_ways_is_read_in_no_time() -> None:
    wide = {"anyOf": [{"$ref": "#/$defs/a"}] * 50, "properties": {str(n): {"$ref": "#/$defs/a"} for n in range(50)}}
    began = time.process_time()
    plain({"$defs": {"a": wide}, "type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}})
    assert time.process_time() - began < 0.5  # ten times what it takes


def test_what_many_members_refer_to_does_not_fill_the_memory() -> None:
    many = {"type": "string", "enum": [f"value {number}" for number in range(5_000)]}
    members = {f"p{number}": {"$ref": "#/$defs/a"} for number in range(2_000)}
    (made,) = plain_tools([tool({"$defs": {"a": many}, "type": "object", "properties": members})])
    found = made["function"]["parameters"]["properties"]
    assert [member.get("enum") == many["enum"] for member in (found["p0"], found["p1999"])] == [True, False]
    assert len(json.dumps(made)) < 4_000_000


def test_thousands_of_names_of_what_is_required_hold_nobody_up() -> None:
    members = {f"p{number}": {"type": "string"} for number in range(5_000)}
    required = [f"q{number}" for number in range(50_000)]
    began = time.process_time()
    plain_tools([tool({"type": "object", "properties": members, "required": [*required, "p7", {}]})])
    assert time.process_time() - began < 2


UNUSUAL = {"tools": [tool({"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}]}}})]}


@pytest.mark.parametrize(
    "refusal",
    [
        "tools.function.parameters is not a valid moonshot flavored json schema, details: <At path 'root': when using anyOf",
        "Invalid schema for function 'f': schema must have type 'object' and not have 'oneOf' at the top level.",
        "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
        "Unknown name \"const\" at 'tools[0].function_declarations[9].parameters.properties[1].value': Cannot find field.",
        "Failed to initialize samplers: failed to parse grammar",
        "JSON Schema not supported: could not understand the instance `{'required': ['criteria']}`.",
        "JSON schema conversion failed: Unrecognized schema: {}",
        "Tools with mixed values for 'strict' are not allowed. Please set all tools to 'strict: true' or 'strict: false'",
        "'additionalProperties' is required to be supplied and set to false.",
        "Unable to submit: `f` functionDeclaration `parameters.a` schema specified other fields alongside any_of.",
        "invalid_function_parameters",
    ],
)
def test_refusals_ask_for_it(refusal: str) -> None:
    assert other_tools(refusal.encode(), UNUSUAL) == {"tools": plain_tools(UNUSUAL["tools"])}
    assert other_tools(refusal.encode(), {"messages": []}) == {}


@pytest.mark.parametrize(
    "refusal",
    [
        "Roles must alternate",
        "The prompt is too long",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "An assistant message with 'tool_calls' must be followed by tool messages",
    ],
)
def test_other_refusals_do_not(refusal: str) -> None:
    assert other_tools(refusal.encode(), UNUSUAL) == {}


@pytest.mark.parametrize(
    "refusal",
    [
        "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024, but got …",
        "'Search …' is too long - 'tools.0.function.description'",
    ],
)
def test_a_description_that_is_too_long_goes_on_at_the_parameters(refusal: str) -> None:
    short = tool({"type": "object"}, description="short")
    long = tool({"type": "object", "description": "of all"}, description="a" * 1000 + "the rest")
    body: Json = {"tools": [long, short]}
    shortened = tool({"type": "object", "description": "the rest\nof all"}, description="a" * 1000)
    assert other_tools(refusal.encode(), body) == {"tools": [shortened, short]}
    assert losses_of_tools(body, {"tools": [shortened, short]}) == [SIMPLIFIED]


def test_tools_that_may_not_be_called_are_left_out_where_a_server_takes_no_choice() -> None:
    said = b"Tool choice must be auto"
    body: Json = {"messages": [], "tools": UNUSUAL["tools"], "tool_choice": "none", "parallel_tool_calls": False}
    left_out = other_tools(said, body)
    assert left_out == {"tools": None, "tool_choice": None, "parallel_tool_calls": None}
    assert losses_of_tools(body, {"messages": []}) == []
    assert other_tools(said, body, calls_in_text=True) == {}
    assert other_tools(b"overloaded", body) == {}


def test_a_call_that_a_server_does_not_force_is_forced_less() -> None:
    said = b"Thinking mode does not support this tool_choice"
    other = {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}}
    body: Json = {"tools": [*UNUSUAL["tools"], other], "tool_choice": {"type": "function", "function": {"name": "g"}}}
    alone = other_tools(said, body)
    assert alone == {"tools": [other], "tool_choice": "required"}
    assert other_tools(said, {**body, **alone}) == {"tool_choice": "auto"}
    assert other_tools(said, {**body, "tool_choice": "auto"}) == {}
