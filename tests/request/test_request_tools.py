"""Tools: the functions offered to the model, their names, and the way back to the client's tools."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from responses_gateway.request import ChatRequest, Policy
from responses_gateway.wire.tools import CUSTOM_INPUT, ToolTarget
from tests.request.builders import Item, call, chat_request, function, outcomes, output, refusal, user

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}


def namespace(name: str, *tools: Item, **fields: Any) -> Item:
    return {"type": "namespace", "name": name, "description": "", "tools": list(tools), **fields}


def offered(result: ChatRequest) -> dict[str, Item]:
    """Return the functions of the chat request by name."""
    return {tool["function"]["name"]: tool["function"] for tool in result.body.get("tools", [])}


def test_a_function() -> None:
    result = chat_request(tools=[function("f", strict=False)])
    assert result.body["tools"] == [
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}},
        }
    ]
    assert result.tools == {"f": ToolTarget("function", "f")}
    assert "tool function preserved" in outcomes(result)


@pytest.mark.parametrize("parameters", [None, {}])
def test_a_function_without_parameters(parameters: Any) -> None:
    sent = offered(
        chat_request(tools=[{"type": "function", "name": "f", "parameters": parameters, "description": None, "strict": True}])
    )
    assert sent["f"] == {"name": "f", "parameters": {"type": "object", "properties": {}}, "strict": True}


def test_arguments_that_a_client_wants_encrypted_are_plain_text() -> None:
    properties = {"message": {"type": "string", "encrypted": True}, "encrypted": {"type": "boolean"}, "odd": 5}
    tools = [function("send", parameters={"type": "object", "properties": properties}), function("plain")]
    result = chat_request(tools=tools)
    sent = offered(result)["send"]["parameters"]["properties"]
    assert sent == {"message": {"type": "string"}, "encrypted": {"type": "boolean"}, "odd": 5}
    assert {name: target.expects_ciphertext for name, target in result.tools.items()} == {"send": True, "plain": False}
    assert "tool encrypted_arguments adapted" in outcomes(result)
    assert result.echo["tools"][0]["parameters"]["properties"] == properties


def test_a_custom_tool_takes_one_string() -> None:
    result = chat_request(tools=[{"type": "custom", "name": "exec", "description": "Runs code.", "format": {"type": "text"}}])
    sent = offered(result)["exec"]
    assert sent["parameters"]["required"] == [CUSTOM_INPUT]
    assert sent["parameters"]["properties"][CUSTOM_INPUT]["type"] == "string"
    assert sent["description"].startswith("Runs code.")
    assert result.tools == {"exec": ToolTarget("custom", "exec")}


def test_a_grammar_is_explained_in_the_description() -> None:
    tool = {"type": "custom", "name": "patch", "format": GRAMMAR}
    result = chat_request(tools=[tool])
    assert "lark grammar:\nstart: /.+/" in offered(result)["patch"]["description"]
    assert "tool custom_grammar adapted" in outcomes(result)
    quiet = chat_request(tools=[tool], policy=Policy(custom_tool_grammar="off"))
    assert "start:" not in offered(quiet)["patch"]["description"]
    assert "tool custom_grammar ignored" in outcomes(quiet)


def test_namespaces_are_flattened() -> None:
    exec_tool = {"type": "custom", "name": "exec", "format": GRAMMAR}
    result = chat_request(
        tools=[
            namespace("mcp__tiny", function("add"), {"type": "function", "name": "bare"}, description="Tiny tools."),
            namespace("old__", function("add")),
            namespace("functions", exec_tool),
        ]
    )
    assert result.tools == {
        "mcp__tiny__add": ToolTarget("function", "add", "mcp__tiny"),
        "mcp__tiny__bare": ToolTarget("function", "bare", "mcp__tiny"),
        "old__add": ToolTarget("function", "add", "old__"),
        "exec": ToolTarget("custom", "exec", "functions"),
    }
    assert offered(result)["mcp__tiny__bare"]["description"] == "Tiny tools."


def test_names_that_collide_stay_apart_whatever_the_order() -> None:
    tools = [
        function("a__b"),
        namespace("a", function("b")),
        {"type": "custom", "name": "a__b"},
        namespace("a__", function("b")),
    ]
    tables = [chat_request(tools=list(order)).tools for order in itertools.permutations(tools)]
    assert all(table == tables[0] for table in tables)
    assert len(tables[0]) == 4
    assert tables[0]["a__b"] == ToolTarget("function", "a__b")


@pytest.mark.parametrize("name", ["x" * 65, "with space", "größe", "a.b/c", "x" * 300])
def test_names_that_chat_does_not_take(name: str) -> None:
    result = chat_request(tools=[function(name), function(name + "!")])
    assert set(result.tools.values()) == {ToolTarget("function", name), ToolTarget("function", name + "!")}


@pytest.mark.parametrize("name", ["21st_magic_builder", "-x", "3" * 80])
def test_a_name_that_servers_refuse_begins_otherwise(name: str) -> None:
    # Google: "Must start with a letter or an underscore."; Kimi wants a letter.
    [hashed] = chat_request(tools=[function(name)]).tools
    assert hashed[0].isalpha()
    assert len(hashed) <= 64
    assert chat_request(tools=[function(name)]).tools == {hashed: ToolTarget("function", name)}


def test_a_name_that_looks_like_a_hashed_one() -> None:
    [hashed] = chat_request(tools=[function("a b")]).tools
    result = chat_request(tools=[function("a b"), function(hashed)])
    assert result.tools[hashed] == ToolTarget("function", hashed)
    assert set(result.tools.values()) == {ToolTarget("function", "a b"), ToolTarget("function", hashed)}


def test_a_name_does_not_depend_on_the_other_tools() -> None:
    long = namespace("n" * 40, function("t" * 40))
    [alone] = chat_request(tools=[long]).tools
    assert alone in chat_request(tools=[function("f"), long, function("g")]).tools


def test_calls_in_the_history_use_the_same_names() -> None:
    tools = [
        namespace("n" * 40, function("t" * 40)),
        {"type": "custom", "name": "patch"},
        namespace("functions", function("wait")),
    ]
    history = [
        {**call("a", "t" * 40), "namespace": "n" * 40},
        call("b", "patch"),
        {**call("c", "exec_command"), "namespace": "functions"},
        call("d", "wait"),
        {**call("e", "gone away"), "namespace": "n"},
        *(output(call_id) for call_id in "abcde"),
    ]
    result = chat_request(user(), *history, tools=[*tools, function("exec_command")])
    names = [entry["function"]["name"] for entry in result.body["messages"][1]["tool_calls"]]
    assert names[0] in result.tools
    assert names[1:4] == ["patch", "exec_command", "wait"]
    assert names[4] not in result.tools


@pytest.mark.parametrize("kind", ["local_shell", "shell", "apply_patch"])
def test_builtin_tools_are_offered_as_functions(kind: Any) -> None:
    result = chat_request(tools=[{"type": kind}])
    assert result.tools == {kind: ToolTarget(kind, kind)}
    assert offered(result)[kind]["description"]
    assert f"tool {kind} adapted" in outcomes(result)


def test_a_client_function_keeps_its_name_beside_a_builtin_tool() -> None:
    result = chat_request(tools=[{"type": "shell"}, function("shell")])
    assert result.tools["shell"] == ToolTarget("function", "shell")
    assert ToolTarget("shell", "shell") in result.tools.values()


def test_tool_search_run_by_the_client() -> None:
    schema = {"type": "object", "properties": {"query": {"type": "string"}}}
    result = chat_request(tools=[{"type": "tool_search", "execution": "client", "description": "Finds.", "parameters": schema}])
    assert offered(result)["tool_search"] == {"name": "tool_search", "description": "Finds.", "parameters": schema}
    default = offered(chat_request(tools=[{"type": "tool_search", "execution": "client"}]))["tool_search"]
    assert default["parameters"]["required"] == ["query"]


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ({"type": "web_search", "external_web_access": True}, "web_search"),
        ({"type": "web_search_preview_2025_03_11"}, "web_search"),
        ({"type": "file_search", "vector_store_ids": []}, "file_search"),
        ({"type": "code_interpreter", "container": {"type": "auto"}}, "code_interpreter"),
        ({"type": "image_generation"}, "image_generation"),
        ({"type": "computer_use_preview"}, "computer"),
        ({"type": "mcp", "server_label": "x"}, "mcp"),
        ({"type": "tool_search"}, "tool_search"),
        (namespace("n", {"type": "shell"}), "shell"),
        ({"type": "acme"}, "unknown"),
        (namespace("n", {"type": "local_shell"}), "local_shell"),
    ],
)
def test_tools_that_only_a_server_could_run_are_ignored_on_record(tool: Item, name: str) -> None:
    result = chat_request(tools=[tool], tool_choice="auto", parallel_tool_calls=True)
    assert "tools" not in result.body
    assert result.tools == {}
    assert f"tool {name} ignored" in outcomes(result)
    strict = refusal(tools=[function(), tool], policy=Policy(strict=True))
    assert strict.param is not None
    assert strict.param.startswith("tools[1]")


def test_a_local_shell_runs_at_the_client_with_its_skills() -> None:
    skill = {"name": "pdf", "description": "Reads PDFs.", "path": "/skills/pdf"}
    result = chat_request(tools=[{"type": "shell", "environment": {"type": "local", "skills": [skill]}}])
    assert result.tools == {"shell": ToolTarget("shell", "shell")}
    assert "- pdf (/skills/pdf): Reads PDFs." in offered(result)["shell"]["description"]
    for plain in ({"type": "local"}, {"type": "local", "skills": []}, None):
        assert "Skills" not in offered(chat_request(tools=[{"type": "shell", "environment": plain}]))["shell"]["description"]


SECRET = {"domain": "example.com", "name": "KEY", "value": "hunter2"}
ALLOWED = {"type": "allowlist", "allowed_domains": ["example.com"], "domain_secrets": [SECRET]}


@pytest.mark.parametrize(
    "environment",
    [
        {"type": "container_auto"},
        {"type": "container_auto", "network_policy": ALLOWED},
        {"type": "container_reference", "container_id": "cntr_1"},
        {"type": "moon"},
    ],
)
def test_a_shell_in_a_container_is_refused(environment: Item) -> None:
    error = refusal(tools=[function(), {"type": "shell", "environment": environment}])
    assert (error.status, error.param, error.code) == (400, "tools[1].environment.type", "unsupported_value")
    assert "local" in error.message
    assert "hunter2" not in error.message


def test_tools_from_input_items_are_declared_once_and_in_order() -> None:
    result = chat_request(
        {"type": "additional_tools", "role": "developer", "tools": [function("b"), function("a", description="second")]},
        user(),
        {"type": "tool_search_call", "call_id": "s", "arguments": {}},
        {"type": "tool_search_output", "call_id": "s", "tools": [function("c"), function("b")]},
        tools=[function("a")],
    )
    assert list(offered(result)) == ["a", "b", "c"]
    assert offered(result)["a"]["description"] == "d"
    assert result.body["messages"][0] == {"role": "user", "content": "hi"}
    assert "item additional_tools adapted" in outcomes(result)


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        (3, ""),
        ({}, ".type"),
        ({"type": 3}, ".type"),
        ({"type": "function"}, ".name"),
        ({"type": "function", "name": ""}, ".name"),
        ({"type": "function", "name": "f", "parameters": "x"}, ".parameters"),
        ({"type": "function", "name": "f", "description": 3}, ".description"),
        ({"type": "custom", "name": "f", "format": "lark"}, ".format"),
        ({"type": "custom", "name": "f", "format": {"type": "x"}}, ".format.type"),
        ({"type": "custom", "name": "f", "format": {"type": "grammar", "syntax": "lark"}}, ".format.definition"),
        ({"type": "namespace", "name": "n"}, ".tools"),
        ({"type": "namespace", "tools": []}, ".name"),
        (namespace("n", function("")), ".tools[0].name"),
        ({"type": "tool_search", "execution": "client", "parameters": []}, ".parameters"),
    ],
)
def test_a_malformed_tool_is_named(tool: Any, param: str) -> None:
    assert refusal(tools=[function(), tool]).param == f"tools[1]{param}"
    brought = {"type": "additional_tools", "tools": [tool]}
    assert refusal(user(), brought).param == f"input[1].tools[0]{param}"


def test_tools_of_an_item_must_be_a_list() -> None:
    assert refusal(user(), {"type": "additional_tools", "tools": "x"}).param == "input[1].tools"


def test_without_tools_nothing_about_tools_is_sent() -> None:
    result = chat_request(tools=[], tool_choice="auto", parallel_tool_calls=False)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(result.body)
    assert outcomes(result) == set()


def test_the_request_is_not_changed() -> None:
    tools = [function("f"), {"type": "custom", "name": "c", "format": GRAMMAR}]
    before = json.dumps(tools)
    chat_request(tools=tools)
    assert json.dumps(tools) == before
