"""Tools that Anthropic knows by type: those that clients run are functions, the others do not end a session."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from responses_gateway.request import Policy
from tests.request.messages_bodies import (
    PNG,
    TOOL,
    Fields,
    assistant,
    call,
    chat_of,
    losses_of,
    messages_of,
    refusal_of,
    result,
    system,
    text,
    user,
)

STRICT = Policy(strict=True)
EDITOR = "str_replace_based_edit_tool"


def function_of(kind: str, name: str, **options: Any) -> Fields:
    """Return the function that a typed tool becomes beside another one."""
    (_, found) = chat_of(tools=[TOOL, {"type": kind, "name": name, **options}])["tools"]
    function: Fields = found["function"]
    assert function["name"] == name
    assert f"tool {kind.rpartition('_')[0] or kind} adapted" in losses_of(tools=[{"type": kind, "name": name, **options}])
    return function


@pytest.mark.parametrize(
    ("kind", "name", "inputs"),
    [
        ("bash_20241022", "bash", [{"command": "ls"}, {"restart": True}]),
        ("bash_20250124", "bash", [{"command": "ls"}, {"restart": True}]),
        ("bash_20990101", "bash", [{"command": "ls"}]),
        (
            "text_editor_20241022",
            "str_replace_editor",
            [{"command": "undo_edit", "path": "/a"}, {"command": "insert", "path": "/a", "insert_line": 0, "new_str": "x"}],
        ),
        ("text_editor_20250124", "str_replace_editor", [{"command": "view", "path": "/a", "view_range": [1, -1]}]),
        ("text_editor_20250429", EDITOR, [{"command": "insert", "path": "/a", "insert_line": 0, "new_str": "x"}]),
        (
            "text_editor_20250728",
            EDITOR,
            [
                {"command": "view", "path": "/a"},
                {"command": "create", "path": "/a", "file_text": ""},
                {"command": "str_replace", "path": "/a", "old_str": "x", "new_str": "y"},
                {"command": "insert", "path": "/a", "insert_line": 3, "insert_text": "x"},
            ],
        ),
        (
            "memory_20250818",
            "memory",
            [
                {"command": "view", "path": "/memories"},
                {"command": "delete", "path": "/memories/a"},
                {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/b"},
                {"command": "insert", "path": "/memories/a", "insert_line": 1, "insert_text": "x"},
            ],
        ),
        ("computer_20241022", "computer", [{"action": "screenshot"}, {"action": "left_click_drag", "coordinate": [1, 2]}]),
        (
            "computer_20250124",
            "computer",
            [
                {"action": "scroll", "coordinate": [1, 2], "scroll_direction": "up", "scroll_amount": 3},
                {"action": "hold_key", "text": "ctrl", "duration": 1.5},
                {"action": "left_click_drag", "start_coordinate": [0, 0], "coordinate": [1, 2]},
            ],
        ),
    ],
)
def test_a_tool_that_clients_run_is_a_function_with_its_documented_input(kind: str, name: str, inputs: list[Fields]) -> None:
    function = function_of(kind, name)
    schema = function["parameters"]
    Draft202012Validator.check_schema(schema)
    for arguments in inputs:
        assert Draft202012Validator(schema).is_valid(arguments), arguments
    assert not Draft202012Validator(schema).is_valid({"command": 1, "action": 1})
    assert function["description"]


def test_later_editors_take_nothing_back_and_say_what_they_insert() -> None:
    older = function_of("text_editor_20250124", "str_replace_editor")
    newer = function_of("text_editor_20250728", EDITOR, max_characters=1000)
    assert "undo_edit" in older["parameters"]["properties"]["command"]["enum"]
    assert "undo_edit" not in newer["parameters"]["properties"]["command"]["enum"]
    assert ("undo_edit" in older["description"], "undo_edit" in newer["description"]) == (True, False)
    assert ("insert_text" in older["description"], "insert_text" in newer["description"]) == (False, True)


def test_a_computer_tells_the_size_of_its_screen_and_zooms_where_that_is_enabled() -> None:
    size = {"display_width_px": 1024, "display_height_px": 768, "display_number": 1}
    newest = function_of("computer_20251124", "computer", **size, enable_zoom=True)
    assert "1024 by 768 pixels" in newest["description"]
    assert Draft202012Validator(newest["parameters"]).is_valid({"action": "zoom", "region": [0, 0, 9, 9]})
    for plain in (function_of("computer_20251124", "computer", **size), function_of("computer_20241022", "computer")):
        assert "zoom" not in plain["parameters"]["properties"]["action"]["enum"]
    assert "None" not in function_of("computer_20241022", "computer")["description"]


def test_a_tool_that_clients_run_may_be_chosen_and_its_calls_and_results_read() -> None:
    bash = {"type": "bash_20250124", "name": "bash", "cache_control": {"type": "ephemeral"}}
    found = chat_of(
        user("x"),
        assistant(call("a", "bash", command="ls")),
        user(result("a", "file")),
        tools=[bash],
        tool_choice={"type": "tool", "name": "bash"},
    )
    assert found["tool_choice"] == {"type": "function", "function": {"name": "bash"}}
    assert found["messages"][1]["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"command": "ls"}'}
    assert refusal_of(tools=[{"type": "bash_20250124"}]).param == "tools[0].name"
    assert chat_of(tools=[bash], policy=STRICT)["tools"]


@pytest.mark.parametrize(
    ("declared", "loss"),
    [
        ({"type": "advisor_20260301", "name": "advisor", "model": "m"}, "advisor"),
        ({"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}, "tool_search"),
        ({"type": "tool_search_tool_regex", "name": "tool_search_tool_regex"}, "tool_search"),
        ({"type": "code_execution_20250825", "name": "code_execution"}, "code_execution"),
        ({"type": "mcp_toolset", "mcp_server_name": "x"}, "unknown"),
        ({"type": "computer_toolset_20260801"}, "unknown"),
        ({"type": "telepathy_20300101", "name": "telepathy"}, "unknown"),
    ],
)
def test_a_tool_that_nobody_can_run_here_is_left_out(declared: Fields, loss: str) -> None:
    found = chat_of(tools=[TOOL, declared], tool_choice={"type": "auto"})
    assert [tool["function"]["name"] for tool in found["tools"]] == ["Bash"]
    assert losses_of(tools=[TOOL, declared]) == {f"tool {loss} ignored"}
    assert "tools" not in chat_of(tools=[declared])
    chosen = {"type": "tool", "name": declared.get("name", declared["type"])}
    assert "tool_choice" not in chat_of(tools=[TOOL, declared], tool_choice=chosen)
    assert losses_of(tools=[TOOL, declared], tool_choice=chosen) == {f"tool {loss} ignored", "parameter tool_choice ignored"}
    if loss != "tool_search":  # all tools are offered, so that nothing is lost
        assert refusal_of(tools=[TOOL, declared], policy=STRICT).param == "tools[1].type"


def test_a_tool_of_any_type_with_a_schema_is_a_function() -> None:
    declared = {**TOOL, "type": "telepathy_20300101", "name": "telepathy"}
    assert [tool["function"]["name"] for tool in chat_of(tools=[declared])["tools"]] == ["telepathy"]
    assert losses_of(tools=[declared]) == set()


def test_deferred_tools_are_offered_at_once_where_the_search_for_them_was_left_out() -> None:
    """Nobody else would find them."""
    search = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
    deferred = [{**TOOL, "defer_loading": True}, {"type": "memory_20250818", "name": "memory", "defer_loading": True}]
    found = chat_of(tools=[*deferred, search], policy=STRICT)
    assert [tool["function"]["name"] for tool in found["tools"]] == ["Bash", "memory"]
    assert "tools" not in chat_of(tools=deferred)


def test_tools_that_the_conversation_adds_are_declared_behind_the_others() -> None:
    def change(kind: str, tool: Fields) -> Fields:
        return system([{"type": kind, "tool": tool}])

    tools = [TOOL, {**TOOL, "name": "Later", "defer_loading": True}]
    bash = {"type": "tool_definition", "definition": {"type": "bash_20250124", "name": "bash"}}
    added = [change("tool_addition", bash), change("tool_addition", {"type": "tool_reference", "name": "Later"})]
    asked = [user("x"), *added, assistant("so"), user("y")]
    found = chat_of(*asked, tools=tools)
    assert [tool["function"]["name"] for tool in found["tools"]] == ["Bash", "bash", "Later"]
    assert [message["content"] for message in found["messages"]] == ["x", "so", "y"]
    assert [tool["function"]["name"] for tool in chat_of(*asked)["tools"]] == ["bash"]
    assert "content tool_addition adapted" in losses_of(*asked, tools=tools)
    removed = [user("x"), change("tool_removal", {"type": "tool_reference", "name": "Bash"}), user("y")]
    assert [tool["function"]["name"] for tool in chat_of(*removed, tools=[TOOL])["tools"]] == ["Bash"]
    assert losses_of(*removed, tools=[TOOL]) == {"content tool_removal ignored"}
    listed = change("tool_addition", {"type": "mcp_tool_reference", "server_name": "s", "name": "n"})
    assert losses_of(user("x"), listed) == {"content tool_addition ignored"}
    wrong = change("tool_addition", {"type": "tool_definition", "definition": {"name": "no"}})
    assert refusal_of(user("x"), wrong).param == "messages[1].content[0].tool.definition.input_schema"
    assert refusal_of(user("x"), system([{"type": "tool_addition"}])).param == "messages[1].content[0].tool"


def test_the_model_is_told_that_a_call_has_failed() -> None:
    asked = [user("x"), assistant(call("a"))]

    def told(content: Any) -> Any:
        return messages_of(*asked, user(result("a", content, is_error=True)))[2]["content"]

    assert told("Exit code 1") == "Error:\nExit code 1"
    assert told([text("no such file"), text("2")]) == "Error:\nno such file\n2"
    assert told([PNG]) == "Error"
    assert told("") == told(None) == "Error"
    for words in ("Error: none", "error", "<tool_use_error>No</tool_use_error>", "**Error** x"):
        assert told(words) == words
    assert losses_of(*asked, user(result("a", "no", is_error=True))) == {"content is_error adapted"}
    assert losses_of(*asked, user(result("a", "no", is_error=False))) == set()
    ran = {"type": "mcp_tool_use", "id": "m", "name": "look", "server_name": "s", "input": {}}
    failed = {"type": "mcp_tool_result", "tool_use_id": "m", "is_error": True, "content": [text("gone")]}
    assert messages_of(user("x"), assistant(ran, failed), user("y"))[2]["content"] == "Error:\ngone"
