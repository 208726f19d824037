"""Names of tools as models and servers write them: the declared tool where exactly one fits."""

from __future__ import annotations

import pytest

from responses_gateway.wire.tools import ToolTable, ToolTarget, offered_name
from tests.stream.stream_player import arguments, call, finish, play

NAMES = ("list_dir", "tool_12", "Write", "crm__find", "get", "get_weather", "mcp__unreal-mcp__spawn")
TOOLS: ToolTable = {name: ToolTarget("function", name) for name in NAMES}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("functions.list_dir", "list_dir"),
        ("function:list_dir", "list_dir"),
        ("functions.list_dir:0", "list_dir"),
        ("functions list_dir", "list_dir"),  # Kimi K2.5 at Bedrock
        ("list_dir:12", "list_dir"),
        ("default_api.list_dir", "list_dir"),
        ("tools/list_dir", "list_dir"),
        ("list_dir<|channel|>commentary", "list_dir"),
        ("functions.list_dir<|channel|>commentary json", "list_dir"),
        ("tool_12</arg_value>", "tool_12"),
        (" list_dir ", "list_dir"),
        ("list_dir\n", "list_dir"),
        ('"list_dir"', "list_dir"),
        ("list_dir()", "list_dir"),
        ("list_dir(path", "list_dir"),
        ("write", "Write"),
        ("crm.find", "crm__find"),
        ("functions.crm.find", "crm__find"),
        ("get", "get"),
        ("get_weather<", "get_weather"),
        ("get-weather", "get_weather"),
        ("functions.list-dir", "list_dir"),
        ("mcp__unreal_mcp__spawn", "mcp__unreal-mcp__spawn"),
    ],
)
def test_a_declared_tool_is_found_in_what_stands_around_it(written: str, meant: str) -> None:
    assert offered_name(TOOLS, written) == meant


@pytest.mark.parametrize("written", ["no_such", "list_dir_2", "list", "functions.", "<list_dir>", "", " ", "x.no_such"])
def test_what_is_no_declared_tool_stays_as_it_is(written: str) -> None:
    assert offered_name(TOOLS, written) == written


def test_a_name_that_fits_two_tools_stays_as_it_is() -> None:
    tools = {name: ToolTarget("function", name) for name in ("read", "Read", "fs__read", "db__read")}
    assert offered_name(tools, "READ") == "READ"
    assert offered_name(tools, "READ<|x|>") == "READ<|x|>"
    hyphens = {name: ToolTarget("function", name) for name in ("a-b_c", "a_b-c")}
    assert offered_name(hyphens, "a_b_c") == "a_b_c"


def test_a_name_without_its_namespace_is_the_one_tool_of_that_name() -> None:
    tools: ToolTable = {
        "crm__find": ToolTarget("function", "find", "crm"),
        "crm__read": ToolTarget("function", "read", "crm"),
        "fs__read": ToolTarget("function", "read", "fs"),
        "fs__list": ToolTarget("function", "list", "fs"),
        "list": ToolTarget("function", "list"),
    }
    assert [offered_name(tools, name) for name in ("find", "read", "list")] == ["crm__find", "read", "list"]


def test_a_long_name_is_not_looked_through() -> None:
    assert offered_name(TOOLS, "list_dir" + " " * 600) == "list_dir" + " " * 600


def test_the_client_gets_the_declared_name() -> None:
    played = play(call(0, "a", "functions.weather<|channel|>commentary"), arguments(0, '{"a":1}'), finish())
    assert played.said == [("call", "weather", '{"a":1}')]
    in_pieces = [
        call(0, "a", "functions"),
        call(0, None, ".weather"),
        call(0, None, "<|channel|>"),
        arguments(0, "{}"),
        finish(),
    ]
    assert play(*in_pieces).said == [("call", "weather", "{}")]
    behind = [call(0, "a", "weather"), call(0, None, "<|channel|>commentary"), arguments(0, "{}"), finish()]
    assert play(*behind).said == [("call", "weather", "{}")]
    again = [call(0, "a", "functions.weather", '{"a"'), call(0, "a", "weather", ":1}"), finish()]
    assert play(*again).said == [("call", "weather", '{"a":1}')]


def test_the_name_that_the_client_gave_a_tool_is_that_tool_even_if_it_ends_like_another() -> None:
    tools: ToolTable = {"read": ToolTarget("function", "read"), "fs_read_1a2b": ToolTarget("function", "fs.read")}
    assert offered_name(tools, "fs.read") == "fs_read_1a2b"
