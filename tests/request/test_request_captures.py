"""Every captured request of the Codex CLI becomes a chat request that a strict server accepts."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from openai.types.responses import Response

from responses_gateway.request import Policy
from responses_gateway.wire.tools import ToolTarget
from tests.data_folder import BESIDE
from tests.judges import openapi_errors
from tests.request.builders import (
    Item,
    assistant,
    call,
    chat_request,
    outcomes,
    output,
    reasoning,
    refusal,
    response_with,
    user,
)

FOLDER = BESIDE / "codex" / "requests"
POLICY = Policy(compaction_trigger_prompt="Summarise the conversation so far.")
CHAINED = {"52-ws-first-turn", "53-ws-after-tool-call"}

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the captured Codex requests are not here")


@cache
def bodies() -> dict[str, str]:
    captures = {path.stem: json.loads(path.read_bytes()).get("body") for path in sorted(FOLDER.glob("*.json"))}
    return {name: json.dumps(body) for name, body in captures.items() if body}


def captured(start: str) -> Item:
    """Return the body of the capture whose name begins with `start`."""
    [body] = [body for name, body in bodies().items() if name.startswith(start)]
    found: Item = json.loads(body)
    return found


def translated(body: Item, policy: Policy = POLICY) -> Any:
    parameters = {key: value for key, value in body.items() if key != "input"}
    return chat_request(*body["input"], policy=policy, **parameters)


def roles(start: str) -> list[str]:
    return [message["role"] for message in translated(captured(start)).body["messages"]]


@pytest.mark.parametrize(
    "policy",
    [
        POLICY,
        Policy(
            system_messages="keep",
            late_developer="system",
            user_messages="merge",
            reasoning_field="both",
            compaction_trigger_prompt="x",
        ),
    ],
    ids=["default", "other"],
)
def test_every_capture_translates(policy: Policy) -> None:
    names = [name for name in bodies() if name not in CHAINED]
    assert len(names) > 35
    for name in names:
        result = translated(json.loads(bodies()[name]), policy)
        assert result.body["model"], name


def test_the_echo_of_every_capture_makes_a_valid_response() -> None:
    for name in bodies().keys() - CHAINED:
        response = response_with(translated(json.loads(bodies()[name])).echo)
        assert openapi_errors(response) == [], name
        Response.model_validate(response)


def declared(tools: list[Item], namespace: str | None = None) -> set[ToolTarget]:
    """Return the identities of the declared tools, read independently."""
    found: set[ToolTarget] = set()
    for tool in tools:
        if tool["type"] == "namespace":
            found |= declared(tool["tools"], tool["name"])
        elif tool["type"] in {"function", "custom"}:
            found.add(ToolTarget(tool["type"], tool["name"], namespace))
        elif tool["type"] == "tool_search":
            found.add(ToolTarget("tool_search", "tool_search"))
    return found


def test_every_tool_can_be_called_back_exactly_as_declared() -> None:
    for name in bodies().keys() - CHAINED:
        body = json.loads(bodies()[name])
        lists = [body.get("tools", []), *(item.get("tools", []) for item in body["input"])]
        expected = set().union(*(declared(tools) for tools in lists))
        result = translated(body)
        assert {target._replace(expects_ciphertext=False) for target in result.tools.values()} == expected, name
        assert {tool["function"]["name"] for tool in result.body.get("tools", [])} in (set(result.tools), set()), name


def test_a_chained_request_is_refused_until_responses_are_stored() -> None:
    body = captured("52-")
    parameters = {key: value for key, value in body.items() if key != "input"}
    assert refusal(*body["input"], **parameters).code == "previous_response_not_found"


@pytest.mark.parametrize(
    ("capture", "expected"),
    [
        ("01", "system user user"),
        ("03", "system user user assistant tool"),
        ("04", "system user user assistant tool tool"),
        ("05", "system user user assistant tool"),
        ("06", "system user user assistant tool assistant user"),
        ("08", "system user user assistant tool user"),
        ("20", "system user user assistant tool assistant tool"),
        ("24", "system user user"),
        ("35", "system user user assistant user"),
        ("93", "system user user"),
    ],
)
def test_the_shape_of_the_messages(capture: str, expected: str) -> None:
    assert roles(capture) == expected.split()


def test_reasoning_message_and_call_are_one_message() -> None:
    message = translated(captured("03")).body["messages"][3]
    assert (message["content"], message["reasoning"]) == ("I will run it.", "raw thought text")
    assert message["tool_calls"][0]["function"] == {"name": "exec_command", "arguments": '{"cmd": "echo x"}'}


def test_text_between_call_and_output() -> None:
    message = translated(captured("05")).body["messages"][3]
    assert message["content"] == "Said after the call."
    assert len(message["tool_calls"]) == 1


def test_instructions_of_old_clients() -> None:
    body = captured("93")
    [first, *_] = translated(body).body["messages"]
    assert first["content"].startswith(body["instructions"])


def test_the_title_request_sends_no_tool_fields() -> None:
    result = translated(captured("29"))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(result.body)
    assert result.body["response_format"]["json_schema"]["name"] == "codex_output_schema"


def test_tools_of_the_functions_namespace_keep_it() -> None:
    result = translated(captured("22"))
    assert result.tools["exec"] == ToolTarget("custom", "exec", "functions")
    [made] = [message for message in result.body["messages"] if "tool_calls" in message]
    assert made["tool_calls"][0]["function"]["name"] == "exec"


def test_remote_compaction_asks_for_a_summary_without_tools() -> None:
    result = translated(captured("33"))
    assert result.compacting
    assert result.body["messages"][-1]["content"] == POLICY.compaction_trigger_prompt
    assert "tools" not in result.body
    body = captured("33")
    refused = refusal(*body["input"], **{key: value for key, value in body.items() if key != "input"})
    assert refused.param == f"input[{len(body['input']) - 1}]"


def test_the_web_search_tool_is_on_record() -> None:
    assert "tool web_search ignored" in outcomes(translated(captured("10")))


def test_a_growing_conversation_keeps_its_beginning() -> None:
    """Byte for byte: tools and all earlier messages, so that the backend's prefix cache hits."""
    body = captured("03")
    picture = [{"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "high"}]
    turns: list[list[Item]] = [
        [],
        [reasoning("t"), call("a"), assistant("said"), output("a")],
        [call("b", "view_image"), call("c", arguments="{broken"), output("c"), output("b", picture)],
        [{"type": "message", "role": "developer", "content": "late"}, user("more")],
        [reasoning("u"), {"type": "custom_tool_call", "call_id": "d", "name": "patch", "input": "é\n"}],
        [{"type": "custom_tool_call_output", "call_id": "d", "output": "ok"}, assistant("done"), user("again")],
    ]
    previous: list[str] = []
    tools = None
    for turn in turns:
        body["input"] += turn
        if turn and turn[-1]["type"] == "custom_tool_call":
            continue  # a client never sends a call before its output
        result = translated(body).body
        rendered = [json.dumps(message, ensure_ascii=False) for message in result["messages"]]
        assert rendered[: len(previous)] == previous
        assert len(rendered) > len(previous)
        assert tools in (None, json.dumps(result["tools"]))
        previous = rendered
        tools = json.dumps(result["tools"])


def test_call_ids_are_known() -> None:
    assert translated(captured("04")).call_ids == {
        item["call_id"] for item in captured("04")["input"] if item["type"] == "function_call"
    }
