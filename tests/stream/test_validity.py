"""Calls against the schemas of their tools: what is valid stays as it is, what is repaired is valid."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from responses_gateway.stream.validity.call_rules import REPAIRS, CallRules
from responses_gateway.stream.validity.malformed import read_malformed
from responses_gateway.stream.validity.schema import Steps, ToolSchema, Unchecked
from responses_gateway.wire.tools import ToolTarget
from tests.stream.stream_player import arguments, call, finish, play, text
from tests.thoroughness import examples

Json = dict[str, Any]
quick = settings(deadline=None, max_examples=examples(200), derandomize=True)
MANY = 100_000


def rules(parameters: Any, *, repairs: bool = True, drops_nulls: bool = False) -> CallRules:
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}, {"type": "other"}]
    return CallRules(tools, repairs=repairs, drops_nulls=drops_nulls)


def checked(parameters: Any, written: str, **more: bool) -> tuple[str, str, tuple[str, ...]]:
    found = rules(parameters, **more).check("f", written, ended=True)
    return found.label, found.arguments, found.repairs


# ---- any schema, any value -----------------------------------------------------------------------------------------------

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.text("ab1 \n\"'{}", max_size=5), st.sampled_from([0.5, 2.5])
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=8,
)
leaves = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer"},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "null"},
        {},
        True,
        {"type": ["integer", "null"]},
        {"enum": ["a", 1, None, True]},
        {"const": "a"},
        {"type": "string", "maxLength": 2},
        {"type": "string", "minLength": 2, "pattern": "^a+b?$"},
        {"type": "integer", "minimum": 1, "maximum": 5},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 5},
        {"type": "integer", "multipleOf": 3},
        {"not": {"type": "string"}},
        {"type": "array", "uniqueItems": True, "items": {"type": "integer"}},
        False,
    ]
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    names = st.lists(st.sampled_from("abc"), max_size=2, unique=True)
    return st.one_of(
        st.builds(lambda p, r, more: {"type": "object", "properties": p, "required": r, **more}, properties, names, extras),
        st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 2)),
        st.builds(
            lambda name, branches: {name: branches},
            st.sampled_from(["anyOf", "oneOf", "allOf"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(lambda test, then: {"if": test, "then": then}, inner, inner),
        st.builds(lambda first: {"type": "array", "prefixItems": [first], "maxItems": 3}, inner),
    )


extras = st.sampled_from(
    [
        {},
        {"additionalProperties": False},
        {"additionalProperties": {"type": "integer"}},
        {"maxProperties": 2},
        {"minProperties": 1},
        {"propertyNames": {"enum": ["a", "b"]}},
        {"patternProperties": {"^c": {"type": "string"}}},
        {"dependentRequired": {"a": ["b"]}},
    ]
)
schemas = st.recursive(leaves, containers, max_leaves=6)
objects = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


def roots(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    properties = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    return st.builds(lambda p, more: {"type": "object", "properties": p, **more}, properties, extras)


@quick
@given(roots(schemas), objects)
def test_what_is_valid_is_what_a_library_finds_valid(schema: Json, value: Json) -> None:
    try:
        found = ToolSchema(schema, Steps(MANY)).violation(value, Steps(MANY))
    except Unchecked:
        assume(False)
        return
    assert (found is None) == jsonschema.Draft202012Validator(schema).is_valid(value)


@quick
@given(roots(schemas), objects, st.data())
def test_no_valid_call_is_ever_changed(schema: Json, value: Json, data: st.DataObject) -> None:
    assume(jsonschema.Draft202012Validator(schema).is_valid(value))
    written = json.dumps(value, indent=data.draw(st.sampled_from([None, 1])), ensure_ascii=data.draw(st.booleans()))
    cuts = sorted(data.draw(st.lists(st.integers(1, max(1, len(written) - 1)), max_size=4, unique=True)))
    pieces = [written[a:b] for a, b in zip([0, *cuts], [*cuts, len(written)], strict=True) if a < b]
    tools = {"f": ToolTarget("function", "f")}
    played = play(
        call(0, "a", "f"),
        *(arguments(0, piece) for piece in pieces),
        text("end"),
        finish(),
        tools=tools,
        calls=rules(schema, drops_nulls=True),
    )
    assert played.said[0] == ("call", "f", written)
    assert REPAIRS.isdisjoint(played.translator.repairs)


broken = st.sampled_from(
    [
        lambda t: t,
        lambda t: t[:-1],
        lambda t: t + "}",
        lambda t: f"```json\n{t}\n```",
        json.dumps,
        lambda t: t.replace("}", ",}"),
        lambda t: t.replace('"', "'"),
        lambda t: t.replace("true", "True").replace("null", "None"),
        lambda t: t.replace("\\n", "\n"),
        lambda t: t.replace("b", "\\d"),
        lambda t: t + " done",
        lambda t: t + t,
    ]
)


@pytest.mark.untraced
@quick
@given(roots(schemas), objects, st.booleans(), broken, broken)
def test_what_is_repaired_is_valid(schema: Json, value: Json, strings: bool, first: Any, second: Any) -> None:
    given_value = {name: json.dumps(member) for name, member in value.items()} if strings else value
    written = second(first(json.dumps(given_value)))
    for drops_nulls in (True, False):
        label, result, repairs = checked(schema, written, drops_nulls=drops_nulls)
        if repairs:
            assert label != "valid"
            assert set(repairs) <= REPAIRS
            assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(result))
        else:
            assert result == written


@quick
@given(st.text("{}[]\",:\\n'`abtrue1 ", max_size=40))
def test_whatever_is_written_is_read_or_left(written: str) -> None:
    found = read_malformed(written, Steps(MANY))
    assert found is None or isinstance(found.value, dict)
    label, result, repairs = checked({"type": "object"}, written)
    assert repairs or result == written
    assert label


# ---- readings ------------------------------------------------------------------------------------------------------------

SHELL: Json = {
    "type": "object",
    "properties": {
        "cmd": {"type": "string"},
        "n": {"type": "integer"},
        "x": {"type": "number"},
        "b": {"type": "boolean"},
        "list": {"type": "array", "items": {"$ref": "#/$defs/n"}},
        "any": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
        "two": {"oneOf": [{"type": "array"}, {"type": "object", "properties": {"k": {"type": "integer"}}}]},
        "all": {"allOf": [{"type": "integer"}]},
    },
    "required": ["cmd"],
    "additionalProperties": False,
    "$defs": {"n": {"type": "integer"}},
}


@pytest.mark.parametrize(
    ("written", "value", "kinds"),
    [
        ('{"cmd": "a\nb"}', {"cmd": "a\nb"}, ["control_character"]),
        ('{"cmd": "\\d+ \\w"}', {"cmd": "\\d+ \\w"}, ["invalid_escape"]),
        ("{'cmd': 'it\\'s \\x41\\u0042\"'}", {"cmd": "it's AB\""}, ["python_literal"]),
        ('{"cmd": "a", "b": True,}', {"cmd": "a", "b": True}, ["python_literal", "trailing_comma"]),
        ('{"cmd": "a", "list": [1, 2,],}', {"cmd": "a", "list": [1, 2]}, ["trailing_comma"]),
        ('```\n{"cmd": "a"}\n```', {"cmd": "a"}, ["fence"]),
        ('```json {"cmd": "a"}', {"cmd": "a"}, ["fence"]),
        ('{"cmd": "a",}} ]', {"cmd": "a"}, ["trailing_comma", "extra_bracket"]),
        ('{"cmd": "a",} as asked', {"cmd": "a"}, ["trailing_comma", "trailing_text"]),
        ('"{\\"cmd\\": \\"a\\"}"', {"cmd": "a"}, ["stringified_arguments"]),
        ('{"cmd": "a"', {"cmd": "a"}, ["missing_bracket"]),
        ('{"cmd": "a", "list": [1]', {"cmd": "a", "list": [1]}, ["missing_bracket"]),
        ('{"cmd": "a", "n": "-5", "x": "1.5", "b": "false"}', {"cmd": "a", "n": -5, "x": 1.5, "b": False}, ["decoded_scalar"]),
        ('{"cmd": "a", "n": 3.0}', {"cmd": "a", "n": 3}, ["integral_number"]),
        ('{"cmd": "a", "list": "[1]"}', {"cmd": "a", "list": [1]}, ["decoded_string"]),
        ('{"cmd": "a", "list": ["1"]}', {"cmd": "a", "list": [1]}, ["decoded_scalar"]),
        ('{"cmd": "a", "any": "1"}', {"cmd": "a", "any": 1}, ["decoded_scalar"]),
        ('{"cmd": "a", "all": "1"}', {"cmd": "a", "all": 1}, ["decoded_scalar"]),
        ('{"cmd": "a", "two": "{\\"k\\": \\"1\\"}"}', {"cmd": "a", "two": {"k": 1}}, ["decoded_string", "decoded_scalar"]),
        ('{"cmd": "a", "n": null}', {"cmd": "a"}, ["null_left_out"]),
        ('{"cmd": "a", "b": false, "n": "1"', {"cmd": "a", "b": False, "n": 1}, ["missing_bracket", "decoded_scalar"]),
    ],
)
def test_there_is_one_reading(written: str, value: Json, kinds: list[str]) -> None:
    label, result, repairs = checked(SHELL, written, drops_nulls=True)
    assert (json.loads(result), list(repairs)) == (value, kinds)
    assert label != "valid"


@pytest.mark.parametrize(
    "written",
    [
        '{"cmd": "rm -rf /tmp/build',
        '{"cmd": "a", "list": [1, 2',
        '{"cmd": "a", "list": ["x"',
        '{"cmd": "a", "n": 1',
        "{",
        '{"cmd"',
        '{"cmd": "echo "hi""}',
        '{"cmd": "a"}{"cmd": "b"}',
        '{"cmd": "a", "cmd": "b", "n": "1"}',
        '{"cmd": "a", "cmd": "b",}',
        '{"cmd": "\\d\\n"}',
        '{"cmd": "it\\\'s"}',
        '{"cmd": "\\x41"}',
        "{'cmd': '\\d'}",
        '{cmd: "a"}',
        '{"cmd": "a", "n": "007"}',
        '{"cmd": "a", "n": "5.0"}',
        '{"cmd": "a", "n": +5}',
        '{"cmd": "a", "n": 1e999}',
        '{"cmd": "a", "x": NaN}',
        '{"command": "a"}',
        '{"cmd": 5}',
        '{"cmd": null}',
        '{"cmd": "a", "list": "[1, 2"}',
        '{"cmd": "a", "list": "{}"}',
        '{"cmd": "a", "any": "x"}',
        '{"cmd": "a" "n": 1}',
        '{"cmd": "a", "list": [1 2]}',
        '{"cmd": "a", "b": tru}',
        '{"cmd": "a", "n": 0x10}',
        "[]",
        '"x"',
        "",
        '{"cmd": "\\ud800",}',
        '{"cmd" "a"}',
        '{"cmd": "a", "b": "yes"}',
        '{"cmd": "a"  {"n"',
        '{"cmd": "a"\n"n": 1}',
        '{"cmd": "a",',
        "[" * 50,
        '{"list": ' + "[" * 50,
        '"{\\"cmd\\": 1,}"',
        '{"cmd": "a", "two": 5}',
        '{"cmd": "a", "n": 1e300}',
        '{"cmd": "a",}, "n": 5}',
        '{"cmd": "a\nb"}}: 5',
        '{"cmd": "a",} "}',
    ],
)
def test_anything_else_is_as_written(written: str) -> None:
    label, result, repairs = checked(SHELL, written, drops_nulls=True)
    assert (result, repairs) == (written, ())
    assert label != "valid"


def test_a_value_with_two_readings_is_left() -> None:
    schema = {"properties": {"a": {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 1}]}}}
    assert checked(schema, '{"a": "5"}')[2] == ()
    assert checked({"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "array"}]}}}, '{"a": "5"}')[2] == (
        "decoded_scalar",
    )


def test_a_tool_without_a_schema_takes_any_object() -> None:
    assert checked(None, '{"a": 1}')[0] == "valid"


@pytest.mark.parametrize(
    ("schema", "member", "label"),
    [
        ({"minimum": 2}, "1", "minimum"),
        ({"maximum": 2}, "3", "maximum"),
        ({"exclusiveMinimum": 2}, "2", "exclusiveMinimum"),
        ({"exclusiveMaximum": 2}, "2", "exclusiveMaximum"),
        ({"multipleOf": 0.5}, "0.7", "multipleOf"),
        ({"maxItems": 1}, "[1, 2]", "maxItems"),
        ({"items": False}, "[1]", "items"),
        ({"minProperties": 1}, "{}", "minProperties"),
        ({"not": {}}, "1", "not"),
        ({"oneOf": [{}, {}]}, "1", "oneOf"),
        ({"propertyNames": {"maxLength": 1}}, '{"ab": 1}', "maxLength"),
        ({"patternProperties": {"^a": {"type": "string"}}}, '{"ab": 1}', "type"),
        ({"const": 1}, "true", "const"),
    ],
)
def test_the_keyword_is_named(schema: Json, member: str, label: str) -> None:
    assert checked({"properties": {"a": schema}}, f'{{"a": {member}}}')[0] == f"schema:{label}"


def test_nothing_is_repaired_unless_that_is_asked_for_and_the_model_has_ended() -> None:
    assert checked(SHELL, '{"cmd": "a",}', repairs=False)[2] == ()
    assert rules(SHELL).check("f", '{"cmd": "a",}', ended=False).repairs == ()
    assert rules(SHELL).check("g", "{}", ended=True).label == "unknown_name"
    assert rules(SHELL).requires_arguments("f")
    assert not rules(SHELL, repairs=False).requires_arguments("f")


# ---- schemas that are not read -------------------------------------------------------------------------------------------


def deep(levels: int) -> Json:
    schema: Json = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def unreadable() -> Iterator[Any]:
    yield from ("x", 5, [], {"type": 5}, {"type": []}, {"type": "strng"}, {"properties": []}, {"required": "cmd"})
    yield from ({"required": [1]}, {"maxLength": "5"}, {"minimum": True}, {"multipleOf": 0}, {"enum": "a"}, {"$ref": 5})
    yield from ({"$ref": "#"}, {"$ref": "#/$defs/none"}, {"$ref": "https://example.com/a"}, {"$ref": "other.json#/a"})
    yield from ({"$defs": {"a": {"$ref": "#/$defs/a"}}}, {"$defs": []}, {"contains": {}}, {"exclusiveMinimum": True})
    yield {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"items": {"$ref": "#/$defs/a"}}}}
    yield {"$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(40)} | {"d40": {}}}
    yield {"properties": {f"p{n}": {"type": "string"} for n in range(6000)}}
    yield {"dependentRequired": {"cmd": "a"}}
    yield deep(60)
    for pattern in (
        "(a+)+$",
        "(a|a)*$",
        "(?=a)a",
        r"(a)\1",
        "a*a*a*a*a*a*b",
        "a?" * 40 + "b",
        "[[]",
        "(",
        "x" * 400,
        r"\p{L}",
        "]",
    ):
        yield {"properties": {"cmd": {"type": "string", "pattern": pattern}}}
    yield {"properties": {"cmd": {"anyOf": [{"anyOf": [{"enum": [str(n) for n in range(2000)]}] * 40}] * 40}}}


@pytest.mark.parametrize("schema", list(unreadable()))
def test_a_call_whose_schema_is_not_read_is_unchecked(schema: Any) -> None:
    written = json.dumps({"cmd": "a" * 60 + "!"})
    assert checked(schema, written) == ("unchecked", written, ())


def test_calls_of_one_answer_share_their_steps() -> None:
    many = rules({"properties": {"a": {"type": "array", "items": {"type": "integer"}}}})
    written = json.dumps({"a": [1] * 4000})
    labels = [many.check("f", written, ended=True).label for _ in range(6)]
    assert (labels[0], labels[-1]) == ("valid", "unchecked")


def test_long_arguments_are_not_checked() -> None:
    assert checked({"type": "object"}, json.dumps({"a": "x" * 2_000_000}))[0] == "unchecked"
    assert checked({"type": "object"}, json.dumps({"a": "x" * 200_000})[:-1])[::2] == ("invalid_json", ())
    schema = {"properties": {"a": {"type": "array"}}}
    assert checked(schema, json.dumps({"a": "x" * 200_000}))[0] == "unchecked"


def test_patterns_are_read_as_in_javascript() -> None:
    def found(pattern: str, value: str) -> bool:
        return checked({"properties": {"a": {"pattern": pattern}}}, json.dumps({"a": value}))[0] == "valid"

    assert found("^v[0-9]+\\.[0-9]+$", "v1.2")
    assert not found("^v1$", "v1\n")
    assert not found("^\\d$", "٣")
    assert found("b+|c?", "xx")
    assert found("^[a-z]{2}(?:-[A-Z]{2})?$", "en-GB")


def test_definitions_null_and_members_are_followed() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/x~1y", "description": "d"}},
        "$defs": {"x/y": {"type": "integer", "nullable": True}},
    }
    assert checked(schema, '{"a": null}')[0] == "valid"
    assert checked(schema, '{"a": "1"}')[2] == ("decoded_scalar",)
    assert checked({"properties": {"a": {"enum": [[1]]}}}, '{"a": [1]}')[0] == "unchecked"
    assert checked({"properties": {"a": {"enum": [1]}}}, '{"a": [1]}')[0] == "schema:enum"
    assert checked({"properties": {"a": {"uniqueItems": True}}}, '{"a": [[], []]}')[0] == "unchecked"
    assert (
        checked({"properties": {"a": {"$ref": "#/$defs/s"}}, "$defs": {"s": {"type": "string"}}}, '{"a": 1}')[0]
        == "schema:type"
    )


@pytest.mark.parametrize("keyword", [{"multipleOf": 1e-300}, {"multipleOf": 10**400}])
@pytest.mark.parametrize("value", ["1e12", "1.5"])
def test_numbers_beyond_those_that_can_be_divided_break_no_answer(keyword: Json, value: str) -> None:
    assert checked({"properties": {"a": keyword}}, f'{{"a": {value}}}')[0] in ("valid", "unchecked", "schema:multipleOf")


def test_a_pattern_too_long_to_be_read_is_not_kept() -> None:
    pattern = "a" * 1000
    parameters = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    held = sys.getrefcount(pattern)
    assert checked(parameters, '{"a": "b"}')[0] == "unchecked"
    assert sys.getrefcount(pattern) == held
