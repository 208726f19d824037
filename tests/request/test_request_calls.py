"""Tool calls and outputs: matching, order, and every item type of a call."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from responses_gateway.request.input.calls import RESULTS_NOT_KEPT
from tests.request.builders import (
    Item,
    assistant,
    call,
    chat_request,
    function,
    image,
    messages,
    outcomes,
    output,
    refusal,
    user,
)


def shape(found: list[Item]) -> list[str]:
    """Messages in short: `assistant(a,b)` with the ids of its calls, `tool a`, `user`."""
    return [_short(message) for message in found]


def _short(message: Item) -> str:
    if message["role"] == "tool":
        return f"tool {message['tool_call_id']}"
    calls = ",".join(entry["id"] for entry in message.get("tool_calls", []))
    return f"{message['role']}({calls})" if calls else str(message["role"])


def only_call(*items: Item, **parameters: Any) -> tuple[str, Any]:
    """Name and arguments of the only call in the history."""
    found = messages(user(), *items, **parameters)
    [made] = [entry["function"] for message in found for entry in message.get("tool_calls", [])]
    return made["name"], json.loads(made["arguments"])


def tool_text(*items: Item) -> str:
    """Return the text of the only tool message."""
    [text] = [message["content"] for message in messages(user(), *items) if message["role"] == "tool"]
    return str(text)


def test_parallel_calls_are_one_assistant_message() -> None:
    found = messages(user(), assistant("x"), call("a"), call("b"), output("a", "1"), output("b", "2"))
    assert shape(found) == ["user", "assistant(a,b)", "tool a", "tool b"]
    assert found[1]["content"] == "x"


def test_outputs_follow_in_the_order_of_the_calls() -> None:
    found = messages(user(), call("a"), call("b"), output("b", "2"), output("a", "1"))
    assert shape(found) == ["user", "assistant(a,b)", "tool a", "tool b"]
    assert [message["content"] for message in found[2:]] == ["1", "2"]


def test_calls_one_after_another_are_messages_of_their_own() -> None:
    found = messages(user(), call("a"), output("a"), call("b"), output("b"), assistant("done"))
    assert shape(found) == ["user", "assistant(a)", "tool a", "assistant(b)", "tool b", "assistant"]


def test_text_between_call_and_output_joins_the_message_of_the_call() -> None:
    found = messages(user(), call("a"), assistant("Said after the call."), output("a"), assistant("x"))
    assert shape(found) == ["user", "assistant(a)", "tool a", "assistant"]
    assert found[1]["content"] == "Said after the call."


def test_a_call_alone_has_an_empty_text() -> None:
    assert messages(user(), call("a"), output("a"))[1]["content"] == ""


def test_an_open_call_keeps_its_message_open() -> None:
    found = messages(user(), call("a"), call("b"), output("a"), assistant("x"), call("c"), output("b"), output("c"))
    assert shape(found) == ["user", "assistant(a,b,c)", "tool a", "tool b", "tool c"]


def test_an_output_apart_from_its_call_is_moved_to_it() -> None:
    result = chat_request(user(), call("a"), user("wait"), output("a", "late"), user("go on"))
    assert shape(result.body["messages"]) == ["user", "assistant(a)", "tool a", "user", "user"]
    assert result.body["messages"][2]["content"] == "late"
    assert "content order adapted" in outcomes(result)


def test_a_question_that_is_repeated_before_the_output_stands_once() -> None:
    first = [user("What is the weather?"), call("a"), user("What is the weather?"), output("a")]
    result = chat_request(*first, call("b"), user("What is the weather?"), output("a"), output("b"))
    assert shape(result.body["messages"]) == ["user", "assistant(a)", "tool a", "assistant(b)", "tool b"]
    assert "content order adapted" in outcomes(result)
    assert shape(messages(*first, user("What is the weather?")))[-1] == "user"


def test_a_turn_that_is_repeated_before_its_outputs_stands_once() -> None:
    """Strands for TypeScript sends it again with `previous_response_id`, without ids of items and in JSON of its own."""
    ids = [{"id": f"{kind}_{7:032x}{number:04x}"} for number, kind in enumerate(("msg", "fc", "fc"))]
    made = [assistant("I look."), call("a", arguments='{"x": 1}'), call("b", arguments='{"x": 2}')]
    told = [user(), *(item | known for item, known in zip(made, ids, strict=True))]
    repeated = [user(), assistant("I look."), call("a", arguments='{"x":1}'), call("b", arguments='{"x":2}')]
    result = chat_request(*told, *repeated, output("a", "1"), output("b", "2"))
    assert shape(result.body["messages"]) == ["user", "assistant(a,b)", "tool a", "tool b"]
    assert [message["content"] for message in result.body["messages"][1:]] == ["I look.", "1", "2"]
    assert "content order adapted" in outcomes(result)
    others = chat_request(*told, call("a", arguments='{"x": 3}'), output("a", "1"), output("b", "2"), output("a", "3"))
    assert shape(others.body["messages"])[1] == "assistant(a,b,a_2)"


def test_thousands_of_calls_of_one_id_hold_nobody_up() -> None:
    begun = time.process_time()
    result = chat_request(user(), *[call("a", arguments=f'{{"x": {number}}}') for number in range(5_000)])
    assert time.process_time() - begun < 2
    assert len(result.body["messages"][1]["tool_calls"]) == 5_000


def test_a_call_without_output_gets_one() -> None:
    result = chat_request(user(), call("a"), call("b"), output("b"), user("again"))
    assert shape(result.body["messages"]) == ["user", "assistant(a,b)", "tool a", "tool b", "user"]
    told = "(The result of this call is missing. Whether it was carried out is not known.)"
    assert result.body["messages"][2]["content"] == told
    assert "item function_call adapted" in outcomes(result)


@pytest.mark.parametrize(
    "items",
    [[output("a")], [call("b"), output("b"), output("a")], [output("a"), call("a")]],
    ids=["alone", "another call", "before its call"],
)
def test_an_output_without_its_call_is_refused(items: list[Item]) -> None:
    error = refusal(user(), *items)
    position = next(index for index, item in enumerate(items, 1) if item == output("a"))
    assert error.param == f"input[{position}].call_id"
    assert error.message.endswith("with call_id a.")


def test_what_a_script_tells_meanwhile_reaches_the_model() -> None:
    def script(call_id: str) -> Item:
        return {"type": "custom_tool_call", "call_id": call_id, "name": "exec", "input": "notify('…')"}

    def told(call_id: str, text: str, **fields: str) -> Item:
        return {"type": "custom_tool_call_output", "call_id": call_id, "output": text, **fields}

    together = [script("a"), told("a", "runs"), told("a", "1 %", name="exec"), told("a", "2 %", name="exec")]
    result = chat_request(user(), *together)
    assert result.body["messages"][-1]["content"] == "runs\n1 %\n2 %"
    assert "content order adapted" in outcomes(result)
    later = chat_request(user(), *together, call("b"), output("b", "waited"), told("a", "3 %", name="exec"), told("a", "runs"))
    assert later.body["messages"][:3] == result.body["messages"]  # what the model has read stays
    assert later.body["messages"][-1]["content"] == "waited\n3 %"


def test_a_call_id_used_twice_is_numbered() -> None:
    result = chat_request(user(), call("a"), output("a", "1"), call("a"), output("a", "2"), call("a_2"), output("a_2", "3"))
    assert shape(result.body["messages"]) == [
        "user",
        *("assistant(a)", "tool a"),
        *("assistant(a_2)", "tool a_2"),
        *("assistant(a_2_2)", "tool a_2_2"),
    ]
    assert [message["content"] for message in result.body["messages"] if message["role"] == "tool"] == ["1", "2", "3"]
    assert result.call_ids == {"a", "a_2", "a_2_2"}
    assert "content call_id adapted" in outcomes(result)


def test_a_second_output_is_ignored_on_record() -> None:
    result = chat_request(user(), call("a"), output("a", "1"), output("a", "2"))
    assert result.body["messages"][-1]["content"] == "1"
    assert "item function_call_output ignored" in outcomes(result)


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[1].call_id"),
        ({"type": "function_call", "call_id": "", "name": "f", "arguments": "{}"}, "input[1].call_id"),
        ({"type": "function_call", "call_id": "a", "arguments": "{}"}, "input[1].name"),
        ({"type": "function_call", "call_id": "a", "name": "", "arguments": "{}"}, "input[1].name"),
        ({"type": "function_call", "call_id": "a", "name": "f", "arguments": 3}, "input[1].arguments"),
        ({"type": "function_call", "call_id": "a", "name": "f", "namespace": 3}, "input[1].namespace"),
        ({"type": "custom_tool_call", "call_id": "a", "name": "f"}, "input[1].input"),
        ({"type": "local_shell_call", "call_id": "a"}, "input[1].action"),
        ({"type": "shell_call", "call_id": "a", "action": []}, "input[1].action"),
        ({"type": "apply_patch_call", "call_id": "a"}, "input[1].operation"),
        ({"type": "function_call_output", "output": "x"}, "input[1].call_id"),
        ({"type": "local_shell_call_output", "output": "x"}, "input[1].id"),
        ({"type": "code_interpreter_call", "id": "a", "outputs": {}}, "input[1].outputs"),
        ({"type": "code_interpreter_call", "id": "a", "outputs": [3]}, "input[1].outputs[0]"),
    ],
)
def test_a_malformed_call_is_named(item: Item, param: str) -> None:
    assert refusal(user(), item).param == param


@pytest.mark.parametrize(("given", "param"), [(3, ""), ({}, ""), (["x"], "[0]"), ([{"type": "x"}], "[0].type")])
def test_a_malformed_output_is_named(given: Any, param: str) -> None:
    assert refusal(user(), call("a"), output("a", given)).param == f"input[2].output{param}"


@pytest.mark.parametrize("arguments", ['{"a": 1}', ' {"a" : 1} ', "{}"])
def test_good_arguments_stay_as_they_are(arguments: str) -> None:
    made = messages(user(), call("a", arguments=arguments), output("a"))[1]["tool_calls"][0]
    assert made["function"]["arguments"] == arguments


@pytest.mark.parametrize("arguments", ['{"city": "Par', "[1]", '"text"', "3", "x", "[" * 5000])
def test_broken_arguments_become_an_empty_object(arguments: str) -> None:
    result = chat_request(user(), call("a", arguments=arguments), output("a"))
    assert result.body["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert "content arguments adapted" in outcomes(result)


def test_line_breaks_in_the_strings_of_arguments_are_escaped() -> None:
    result = chat_request(user(), call("a", arguments='{"code": "a\n\tb"}'), output("a"))
    assert result.body["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"code": "a\\n\\tb"}'
    assert "content arguments adapted" in outcomes(result)


@pytest.mark.parametrize("arguments", ["", None])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    result = chat_request(user(), call("a", arguments=arguments), output("a"))
    assert result.body["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert "content arguments adapted" not in outcomes(result)


def test_arguments_as_an_object() -> None:
    assert only_call({**call("a"), "arguments": {"b": "é"}}, output("a")) == ("f", {"b": "é"})


def test_text_parts_of_an_output_are_joined() -> None:
    parts = [{"type": "input_text", "text": "Output:"}, {"type": "input_text", "text": "42"}]
    assert tool_text(call("a"), output("a", parts)) == "Output:\n42"
    assert tool_text(call("a"), output("a", [])) == ""


@pytest.mark.parametrize("given", [{}, {"output": None}, {"output": [None]}])
def test_an_output_without_text_is_an_empty_one(given: Item) -> None:
    """Clients keep such outputs in their histories: a refusal would end the session."""
    for kind, made in (
        ("function_call", call("a")),
        ("custom_tool_call", {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": None}),
        ("shell_call", {"type": "shell_call", "call_id": "a", "action": {"commands": ["ls"]}}),
        ("computer_call", {"type": "computer_call", "call_id": "a", "action": {"type": "screenshot"}}),
    ):
        if given != {"output": [None]} or kind in ("function_call", "custom_tool_call"):
            assert tool_text(made, {"type": f"{kind}_output", "call_id": "a", **given}) == ""


def test_images_of_outputs_follow_all_tool_messages() -> None:
    first = [{"type": "input_text", "text": "seen"}, image("data:image/png;base64,ONE")]
    result = chat_request(
        user(), call("a"), call("b"), output("a", first), output("b", [image("data:image/png;base64,TWO")]), assistant("x")
    )
    found = result.body["messages"]
    assert shape(found) == ["user", "assistant(a,b)", "tool a", "tool b", "user", "assistant"]
    assert found[2]["content"] == "seen"
    assert "next message" in found[3]["content"]
    assert [part.get("text") or part["image_url"]["url"] for part in found[4]["content"]] == [
        "Output of the call a (f):",
        "data:image/png;base64,ONE",
        "Output of the call b (f):",
        "data:image/png;base64,TWO",
    ]
    assert all("base64" not in str(message["content"]) for message in found if message["role"] == "tool")
    assert "content tool_output_media adapted" in outcomes(result)


def test_images_in_an_output_that_was_written_as_text_are_images() -> None:
    parts = [{"type": "input_text", "text": "seen"}, image("data:image/png;base64,ONE")]
    assert (
        chat_request(user(), call("a"), output("a", json.dumps(parts))).body
        == chat_request(user(), call("a"), output("a", parts)).body
    )
    custom = {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": ""}
    answer = {"type": "custom_tool_call_output", "call_id": "a", "output": json.dumps(parts)}
    assert chat_request(user(), custom, answer).body["messages"][2]["content"] == "seen"


@pytest.mark.parametrize(
    "written",
    [
        "[1, 2]",
        '[{"type": "input_text", "text": "\\"data:image/png;base64,ONE"}]',
        '[{"type": "input_image", "image_url": "data:image/png;base64,ONE"}, {"type": "row", "id": 1}]',
        '[{"type": "input_image", "image_url": {"url": "data:image/png;base64,ONE"}}]',
        '[{"type": ["input_image"], "image_url": "data:image/png;base64,ONE"}]',
        '[{"type": "input_image", "image_url": "data:image/png;base64,ONE"}',
        '[{"type": "input_image", "image_url": "data:image/png;base64,ONE", "detail": 1}]',
    ],
)
def test_any_other_output_stays_the_text_that_it_is(written: str) -> None:
    assert tool_text(call("a"), output("a", written)) == written


def test_custom_calls() -> None:
    made = {"type": "custom_tool_call", "call_id": "a", "name": "apply_patch", "input": "*** Begin\né"}
    answer = {"type": "custom_tool_call_output", "call_id": "a", "output": "Done"}
    assert only_call(made, answer) == ("apply_patch", {"input": "*** Begin\né"})
    assert tool_text(made, answer) == "Done"


def test_local_shell_calls() -> None:
    action = {"type": "exec", "command": ["ls"], "env": {}, "timeout_ms": 5, "user": None}
    made = {"type": "local_shell_call", "id": "lsh_1", "call_id": "a", "action": action, "status": "completed"}
    for answer in ({"id": "a"}, {"call_id": "a", "id": "lso_1"}):
        given = {"type": "local_shell_call_output", "output": "x", **answer}
        assert only_call(made, given) == ("local_shell", {"command": ["ls"], "env": {}, "timeout_ms": 5})
        assert tool_text(made, given) == "x"


def test_shell_calls() -> None:
    made = {"type": "shell_call", "call_id": "a", "action": {"commands": ["ls", "pwd"], "timeout_ms": None}}
    runs = [
        {"stdout": "f.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
        {"stdout": "", "stderr": "late", "outcome": {"type": "timeout"}},
    ]
    answer = {"type": "shell_call_output", "call_id": "a", "output": runs}
    assert only_call(made, answer) == ("shell", {"commands": ["ls", "pwd"]})
    assert tool_text(made, answer) == "exit code: 0\nf.txt\n\ntimed out\nstderr:\nlate"


def test_a_shell_output_without_outcome_is_named() -> None:
    made: Item = {"type": "shell_call", "call_id": "a", "action": {"commands": []}}
    answer = {"type": "shell_call_output", "call_id": "a", "output": [{"stdout": "x"}]}
    assert refusal(user(), made, answer).param == "input[2].output[0].outcome"


def test_apply_patch_calls() -> None:
    operation = {"type": "update_file", "path": "a.txt", "diff": "@@\n-a\n+b"}
    made = {"type": "apply_patch_call", "call_id": "a", "operation": operation, "status": "completed"}
    answer = {"type": "apply_patch_call_output", "call_id": "a", "status": "failed", "output": "no such file"}
    assert only_call(made, answer) == ("apply_patch", operation)
    assert tool_text(made, answer) == "failed\nno such file"


@pytest.mark.parametrize("arguments", [{"query": "add"}, '{"query": "add"}'])
def test_tool_search_calls_declare_what_was_found(arguments: Any) -> None:
    found = {"type": "namespace", "name": "mcp__tiny", "tools": [function("add", defer_loading=True)]}
    made = {"type": "tool_search_call", "call_id": "a", "execution": "client", "arguments": arguments}
    answer = {"type": "tool_search_output", "call_id": "a", "execution": "client", "tools": [found]}
    result = chat_request(user(), made, answer)
    assert [tool["function"]["name"] for tool in result.body["tools"]] == ["mcp__tiny__add"]
    assert only_call(made, answer) == ("tool_search", {"query": "add"})
    assert tool_text(made, answer) == "Tools found: mcp__tiny__add"


def test_tool_search_that_found_nothing() -> None:
    made = {"type": "tool_search_call", "call_id": "a", "arguments": None}
    assert tool_text(made, {"type": "tool_search_output", "call_id": "a", "tools": []}) == "No tools found."
    assert only_call(made) == ("tool_search", {})


def test_a_search_of_another_server_only_declares_tools() -> None:
    made: Item = {"type": "tool_search_call", "id": "x", "call_id": None, "execution": "server", "arguments": {}}
    result = chat_request(user(), made, {"type": "tool_search_output", "call_id": None, "tools": [function("f")]})
    assert len(result.body["messages"]) == 1
    assert list(result.tools) == ["f"]
    assert {"item tool_search_call ignored", "item tool_search_output adapted"} <= outcomes(result)


@pytest.mark.parametrize("without", [{}, {"call_id": None}])
def test_an_output_of_no_call_is_a_user_message(without: Item) -> None:
    """Codex Desktop has the messages of automations and of other threads in this form, and what it does not trust."""
    woken = {"type": "function_call_output", "id": "fco_1", "name": "automation_update", "namespace": "codex_app", **without}
    result = chat_request(user(), call("a"), output("a"), {**woken, "output": "<heartbeat>look</heartbeat>"}, user("go on"))
    assert shape(result.body["messages"]) == ["user", "assistant(a)", "tool a", "user", "user"]
    marked = '<tool_output namespace="codex_app" name="automation_update">\n<heartbeat>look</heartbeat>\n</tool_output>'
    assert result.body["messages"][3]["content"] == marked
    assert "item unpaired_output adapted" in outcomes(result)


def test_the_pictures_of_an_output_of_no_call_are_sent() -> None:
    parts = [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]
    found = messages({"type": "function_call_output", "name": "look", "output": parts})
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    text = {"type": "text", "text": '<tool_output name="look">\nlook\n</tool_output>'}
    assert found == [{"role": "user", "content": [text, picture]}]


def test_computer_calls_show_the_screenshot() -> None:
    made = {"type": "computer_call", "call_id": "a", "action": {"type": "click", "x": 1, "y": 2}}
    picture = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}
    found = messages(user(), made, {"type": "computer_call_output", "call_id": "a", "output": picture})
    assert shape(found) == ["user", "assistant(a)", "tool a", "user"]
    assert only_call(made)[1] == {"action": {"type": "click", "x": 1, "y": 2}}


def test_hosted_calls_with_a_result_are_shown_with_it() -> None:
    mcp = {
        "type": "mcp_call",
        "id": "mcp_1",
        "server_label": "deep",
        "name": "ask",
        "arguments": '{"q": 1}',
        "output": "answer",
    }
    python = {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "code": "1+1",
        "outputs": [{"type": "logs", "logs": "2"}, {"type": "image"}],
    }
    search = {
        "type": "file_search_call",
        "id": "fs_1",
        "queries": ["q"],
        "results": [{"filename": "a.txt", "text": "t", "score": 1}],
    }
    found = messages(user(), mcp, python, search, assistant("so"))
    assert shape(found) == [
        "user",
        *("assistant(mcp_1)", "tool mcp_1"),
        *("assistant(ci_1)", "tool ci_1"),
        *("assistant(fs_1)", "tool fs_1"),
        "assistant",
    ]
    assert [message["content"] for message in found if message["role"] == "tool"] == [
        "answer",
        "2",
        '{"filename": "a.txt", "text": "t"}',
    ]
    assert [message["tool_calls"][0]["function"]["name"] for message in found if "tool_calls" in message] == [
        "deep__ask",
        "code_interpreter",
        "file_search",
    ]


def test_hosted_calls_without_a_result() -> None:
    failed = {"type": "mcp_call", "id": "m", "server_label": "s", "name": "n", "arguments": "{}", "error": {"code": 1}}
    assert tool_text(failed) == 'Error: {"code": 1}'
    assert tool_text({**failed, "error": None}) == ""
    code = {"type": "code_interpreter_call", "id": "c", "code": None, "status": "completed"}
    assert tool_text({**code, "outputs": []}) == ""
    assert tool_text({**code, "outputs": None}) == RESULTS_NOT_KEPT  # the client has not asked for them
    result = chat_request(user(), {"type": "file_search_call", "id": "f", "queries": ["q"], "results": None})
    assert "item file_search_call ignored" in outcomes(result)


def test_a_second_output_of_a_call_is_left_out() -> None:
    result = chat_request(user(), call("a"), output("a", "1"), output("a", "2"))
    assert shape(result.body["messages"]) == ["user", "assistant(a)", "tool a"]
    assert result.body["messages"][2]["content"] == "1"
    assert "item function_call_output ignored" in outcomes(result)


def test_an_output_that_comes_when_the_model_has_gone_on_is_shown_there() -> None:
    result = chat_request(user(), call("a") | {"async": True}, assistant("x"), user("and?"), output("a", "late"))
    messages = result.body["messages"]
    assert shape(messages) == ["user", "assistant(a)", "tool a", "assistant", "user", "assistant(a_2)", "tool a_2"]
    assert messages[-1]["content"] == "late"
    assert "item async_call adapted" in outcomes(result)
