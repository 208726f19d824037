"""Parameters and tools of the Messages API as fields of the chat request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from responses_gateway.request import Policy
from responses_gateway.request.messages import read_messages
from responses_gateway.request.tools.hosted_tools import HostedTools
from responses_gateway.wire.messages import error_of, parse_messages
from tests.request.messages_bodies import (
    TOOL,
    Fields,
    assistant,
    body_of,
    call,
    chat_of,
    losses_of,
    reading_of,
    refusal_of,
    result,
    text,
    translated,
    user,
)

STRICT = Policy(strict=True)
SEARCH: Fields = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
FETCH: Fields = {"type": "web_fetch_20260318", "name": "web_fetch"}
CAN_SEARCH = HostedTools(frozenset({"web_search"}))
TITLE: Fields = {"type": "object", "properties": {"title": {"type": "string"}}}


def tool(name: str, **fields: Any) -> Fields:
    return {**TOOL, "name": name, **fields}


def names_of(chat: Fields) -> list[str]:
    return [found["function"]["name"] for found in chat.get("tools", [])]


def test_sampling_and_limits_are_sent() -> None:
    found = chat_of(max_tokens=7, temperature=0.5, top_p=0.9, top_k=20, stop_sequences=["</block>", ""])
    assert {
        "max_completion_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 20,
        "stop": ["</block>"],
    }.items() <= found.items()
    assert chat_of(policy=Policy(max_tokens_field="max_tokens"))["max_tokens"] == 100


OFF = {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": False}}


@pytest.mark.parametrize(
    ("fields", "sent", "shown"),
    [
        ({}, OFF, "hidden"),  # titles have no `thinking`, and few tokens
        ({"output_config": {"effort": "high"}}, OFF, "hidden"),
        ({"thinking": {"type": "disabled"}}, OFF, "hidden"),
        ({"thinking": {"type": "adaptive", "display": "updates"}}, {}, "shown"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, {"reasoning_effort": "high"}, "shown"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"reasoning_effort": "low"}, "shown"),
        ({"thinking": {"type": "enabled", "budget_tokens": 4096}}, {"reasoning_effort": "medium"}, "shown"),
        ({"thinking": {"type": "enabled", "budget_tokens": 31999}}, {"reasoning_effort": "high"}, "shown"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 31999}, "output_config": {"effort": "low"}},
            {"reasoning_effort": "low"},
            "shown",
        ),
        ({"thinking": {"type": "between_tools", "display": "omitted"}}, {}, "empty"),
    ],
)
def test_how_much_the_model_thinks(fields: Fields, sent: Fields, shown: str) -> None:
    found = chat_of(**fields)
    assert {name: found[name] for name in OFF if name in found} == sent
    assert reading_of(body_of(**fields)).thinking == shown


def test_where_thinking_cannot_be_turned_off_it_is_not_shown_and_strict_lets_it_pass() -> None:
    drop = Policy(reasoning_effort="drop", strict=True)
    assert "reasoning_effort" not in chat_of(policy=drop)
    assert "parameter thinking ignored" in losses_of(policy=drop)
    assert reading_of(body_of(), drop).thinking == "hidden"


def test_what_the_client_did_not_ask_for_is_no_loss() -> None:
    assert losses_of() == set()
    assert losses_of(thinking={"type": "disabled"}) == {"parameter thinking adapted"}
    assert losses_of(output_config={"effort": "high"}) == {"parameter thinking adapted"}


def test_a_model_that_always_thinks_is_asked_for_little_of_it() -> None:
    """Send no effort of `none`: vLLM refuses it for gpt-oss, so that no request without `thinking` would be answered."""
    body = body_of(model="openai/gpt-oss-120b")
    reading = reading_of(body)
    assert (reading.thinking, translated(body).body["reasoning_effort"]) == ("hidden", "low")
    assert "parameter thinking adapted" in losses_of(model="gpt-oss-20b")
    alias = read_messages(
        parse_messages(json.dumps(body_of(model="claude-x")).encode()), "claude-x", Policy(), (), "gpt-oss-20b"
    )
    assert alias.request.reasoning is not None
    assert alias.request.reasoning.effort == "low"


@pytest.mark.parametrize("place", [{"output_config": {"format": {"type": "json_schema", "schema": TITLE}}},
                                   {"output_format": {"type": "json_schema", "schema": TITLE}}])  # fmt: skip
def test_a_schema_is_kept_to(place: Fields) -> None:
    layout = chat_of(**place, tools=[])["response_format"]
    assert layout["type"] == "json_schema"
    assert layout["json_schema"]["schema"] == TITLE
    assert layout["json_schema"]["strict"] is True


def test_tools_are_functions_without_the_name_of_their_schema() -> None:
    found = chat_of(tools=[tool("Bash", strict=True, cache_control={"type": "ephemeral"}, eager_input_streaming=True)])
    schema = {"type": "object", "properties": {}}
    assert found["tools"] == [
        {"type": "function", "function": {"name": "Bash", "description": "Runs.", "parameters": schema, "strict": True}}
    ]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "Bash"}, {"tool_choice": {"type": "function", "function": {"name": "Bash"}}}),
        ({"type": "auto", "disable_parallel_tool_use": True}, {"tool_choice": "auto", "parallel_tool_calls": False}),
    ],
)
def test_which_tools_may_be_called(choice: Fields, sent: Fields) -> None:
    found = chat_of(tools=[TOOL], tool_choice=choice)
    assert {name: found[name] for name in ("tool_choice", "parallel_tool_calls") if name in found} == sent


def test_a_choice_without_tools_is_dropped() -> None:
    assert "parameter tool_choice ignored" in losses_of(tool_choice={"type": "any"})
    assert refusal_of(tool_choice={"type": "any"}, policy=STRICT).param == "tool_choice"


def test_deferred_tools_are_offered_last_once_the_conversation_names_them() -> None:
    """Keep what stands before them: the beginning of the prompt."""
    placeholder = tool("DeferredToolPlaceholder", defer_loading=True)
    tools = [
        tool("Agent"),
        tool("WebFetch", defer_loading=True),
        tool("WebSearch", defer_loading=True),
        tool("Zip"),
        placeholder,
    ]
    assert names_of(chat_of(tools=tools)) == ["Agent", "Zip"]
    named = [{"type": "tool_reference", "tool_name": name} for name in ("WebSearch", "Gone", "DeferredToolPlaceholder")]
    found = chat_of(user("x"), assistant(call("a", "ToolSearch")), user(result("a", named)), tools=tools)
    assert names_of(found) == ["Agent", "Zip", "WebSearch"]
    assert "WebSearch" in found["messages"][-1]["content"]
    assert "tool defer_loading adapted" in losses_of(tools=tools)


def test_a_web_search_is_run_by_the_gateway() -> None:
    limited = {**SEARCH, "allowed_domains": ["a.org"], "user_location": {"type": "approximate", "city": "Bonn"}}
    fetch = {**FETCH, "blocked_domains": ["b.org"]}
    body = body_of(tools=[limited, fetch], tool_choice={"type": "tool", "name": "web_search"})
    request = reading_of(body, None, {"web_search"}).request
    assert request.tools == [
        {
            "type": "web_search",
            "filters": {"allowed_domains": ["a.org"]},
            "user_location": {"type": "approximate", "city": "Bonn"},
            "max_uses": 3,
        },
        {"type": "web_fetch", "filters": {"blocked_domains": ["b.org"]}},
    ]
    assert request.tool_choice == {"type": "web_search"}


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        ([SEARCH, TOOL], ["web_search", "Bash"]),
        ([FETCH], ["open_page", "find_in_page"]),
        ([SEARCH, FETCH], ["web_search", "open_page", "find_in_page"]),
        ([FETCH, TOOL, SEARCH, SEARCH], ["open_page", "find_in_page", "Bash", "web_search"]),
    ],
)
def test_a_search_finds_pages_and_only_a_fetch_reads_them(tools: list[Fields], names: list[str]) -> None:
    found = translated(body_of(tools=tools), hosted=CAN_SEARCH)
    assert names_of(found.body) == names
    forced = translated(body_of(tools=tools, tool_choice={"type": "tool", "name": tools[0]["name"]}), hosted=CAN_SEARCH)
    assert forced.body["tool_choice"]["function"]["name"] == names[0]
    losses = reading_of(body_of(tools=tools), None, CAN_SEARCH.kinds).losses
    assert [loss.outcome for loss in losses if loss.name == "declared_again"] == ["ignored"] * (tools.count(SEARCH) - 1)


@pytest.mark.parametrize("declared", [SEARCH, FETCH])
def test_a_search_that_nobody_runs_is_left_out_beside_others_and_refused_alone(declared: Fields) -> None:
    error = refusal_of(tools=[declared])
    assert error.param == "tools[0].type"
    assert declared["type"] in error.message
    assert "web_search_url" in error.message
    assert names_of(chat_of(tools=[TOOL, declared])) == ["Bash"]
    assert losses_of(tools=[TOOL, declared]) == {f"tool {declared['name']} ignored"}
    strict = refusal_of(tools=[TOOL, declared], policy=STRICT)
    assert (strict.param, "web_search_url" in strict.message) == ("tools[1].type", True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"mcp_servers": [{"name": "x", "type": "url", "url": "https://x"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"compaction": {"type": "enabled"}}, "compaction"),
        ({"thread": {"type": "create"}}, "thread"),
        ({"thread": {"type": "continue", "previous_message_id": "msg_1"}}, "thread"),
        ({"context_management": {"edits": "compact_20260112"}}, "context_management.edits"),
        ({"context_management": {"edits": [{"type": 1}]}}, "context_management.edits[0].type"),
        ({"tools": [{"name": "Bash"}]}, "tools[0].input_schema"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tools": ["Bash"]}, "tools[0]"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "Gone"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {}}, "thinking.type"),
        ({"output_config": {"effort": 1}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"output_format": {"type": "json_schema"}}, "output_format.schema"),
        ({"metadata": {"user_id": 1}}, "metadata.user_id"),
        ({"system": [{"type": "image"}]}, "system[0].type"),
        ({"messages": []}, "messages"),
    ],
)
def test_what_cannot_be_done_is_refused_by_the_name_of_the_field(fields: Fields, param: str) -> None:
    error = refusal_of(**fields)
    assert error.param == param
    assert param in error_of(error)[2]


def test_limits_of_the_translation_name_fields_of_this_api() -> None:
    assert refusal_of(user("a"), user("b"), policy=Policy(max_input_items=1)).param == "messages"
    called = [assistant(call("a"), call("b")), user(result("a"), result("b"))]
    assert refusal_of(*called, policy=Policy(max_input_items=3)).param == "messages"
    assert refusal_of(tools=[TOOL, tool("b")], policy=Policy(max_tools=1)).param == "tools"
    many = Policy(strict=True, reasoning_effort="drop")
    assert (
        refusal_of(thinking={"type": "adaptive"}, output_config={"effort": "low"}, policy=many).param == "output_config.effort"
    )


MACHINERY: Fields = {
    "safeguards": [{"type": "dangerous_tool_use"}],
    "service_tier": "auto",
    "speed": "fast",
    "cache_control": {"type": "ephemeral"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "metadata": {"user_id": "u"},
}


def test_what_concerns_anthropic_alone_is_noted_and_strict_lets_it_pass() -> None:
    losses = losses_of(policy=STRICT, **MACHINERY)
    assert losses >= {f"parameter {name} ignored" for name in MACHINERY if name != "metadata"}
    assert "parameter metadata adapted" in losses
    assert reading_of(body_of(**MACHINERY)).user == "u"


def test_a_conversation_that_is_not_compacted_is_sent_whole_and_strict_refuses_that() -> None:
    edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 100000}}
    asked: Fields = {"context_management": {"edits": [{"type": "clear_thinking_20251015"}, edit]}}
    assert chat_of(**asked) == chat_of()
    assert "parameter context_management ignored" in losses_of(**asked)
    assert refusal_of(policy=STRICT, **asked).param == "context_management"


def test_fields_that_are_not_known_are_noted_and_strict_refuses_them() -> None:
    assert "parameter unknown ignored" in losses_of(new_beta=True)
    assert "new_beta" not in chat_of(new_beta=True)
    assert refusal_of(new_beta=True, policy=STRICT).param == "new_beta"
    assert "parameter output_config ignored" in losses_of(output_config={"task_budget": 1})


def test_losses_have_the_names_of_this_api() -> None:
    losses = losses_of(user("x"), assistant(call("a")), output_config={"effort": "xhigh"}, thinking={"type": "adaptive"})
    assert losses == {"parameter thinking adapted", "content tool_use adapted"}
    assert not any(name.startswith("item ") for name in losses_of(user(text("x")), assistant(call("a")), user(result("a"))))
