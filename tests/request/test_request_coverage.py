"""The translation knows every parameter, item, tool and content part that the official SDK can send."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import pytest
from openai.types.responses import (
    EasyInputMessageParam,
    ResponseInputContentParam,
    ResponseInputItemParam,
    ToolParam,
)
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from openai.types.shared_params import Reasoning
from typing_extensions import get_type_hints

from responses_gateway.request import Policy, support
from responses_gateway.wire.requests import ReasoningConfig, ResponsesRequest
from tests.request.builders import Item, call, chat_request, function, messages, outcomes, output, refusal, user

KNOWN = {(loss.kind, loss.name) for loss in support()}


def types_of(union: Any) -> set[str]:
    """Return the values of `type` in a union of typed dicts."""
    found: set[str] = set()
    for member in get_args(union) or (union,):
        hint = get_type_hints(member)["type"]
        while get_origin(hint) is not Literal:
            hint = get_args(hint)[0]
        found.update(get_args(hint))
    return found


def test_every_parameter_is_known() -> None:
    assert set(get_type_hints(ResponseCreateParamsStreaming)) <= set(ResponsesRequest.model_fields)
    assert set(get_type_hints(Reasoning)) <= set(ReasoningConfig.model_fields)


def test_every_item_is_known() -> None:
    assert types_of(EasyInputMessageParam) == {"message"}
    assert {kind for kind in types_of(ResponseInputItemParam) if ("item", kind) not in KNOWN} == set()


def test_every_tool_is_known() -> None:
    for kind in types_of(ToolParam):
        tool = {"type": kind, "name": "t", "tools": []}
        assert "tool unknown ignored" not in outcomes(chat_request(tools=[tool])), kind


def test_every_part_is_known() -> None:
    assert {kind for kind in types_of(ResponseInputContentParam) if ("content", kind) not in KNOWN} == set()


def test_a_program_is_shown_with_the_calls_it_made() -> None:
    items: list[Item] = [
        {"type": "program", "id": "p", "call_id": "p1", "code": "f()", "fingerprint": "x"},
        {**call("a"), "caller": {"type": "program", "caller_id": "p1"}},
        output("a", "42"),
        {"type": "program_output", "id": "o", "call_id": "p1", "result": "43", "status": "completed"},
    ]
    _, made, *answers = messages(user(), *items)
    assert [entry["function"] for entry in made["tool_calls"]] == [
        {"name": "program", "arguments": '{"code": "f()"}'},
        {"name": "f", "arguments": "{}"},
    ]
    assert [(answer["tool_call_id"], answer["content"]) for answer in answers] == [("p1", "43"), ("a", "42")]
    assert refusal(user(), {"type": "program", "call_id": "p1"}).param == "input[1].code"
    assert refusal(user(), items[3]).param == "input[1].call_id"


SCHEMA = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}


def update(**fields: Any) -> Item:
    return {"type": "configuration_update", **fields}


def test_a_configuration_update_goes_before_the_parameters() -> None:
    result = chat_request(
        user(),
        update(reasoning={"effort": "high"}, text={"format": SCHEMA}),
        update(reasoning={"effort": "low"}),
        reasoning={"effort": "medium", "summary": "auto"},
        text={"verbosity": "low"},
    )
    assert result.body["reasoning_effort"] == "low"
    assert result.body["response_format"]["json_schema"]["name"] == "n"
    assert result.echo["reasoning"] == {"effort": "low", "summary": "auto"}
    assert result.echo["text"]["format"]["name"] == "n"
    assert len(result.body["messages"]) == 1
    assert "item configuration_update preserved" in outcomes(result)


def test_a_configuration_update_may_take_back() -> None:
    items = (user(), update(reasoning={"effort": "high"}, text={"format": SCHEMA}))
    back = update(reasoning={"effort": None}, text={"format": {"type": "text"}})
    assert {"reasoning_effort", "response_format"} <= set(chat_request(*items).body)
    assert not {"reasoning_effort", "response_format"} & set(chat_request(*items, back).body)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning": 3}, "reasoning"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"text": {}}, "text.format"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
    ],
)
def test_a_malformed_configuration_update_is_named(fields: Item, param: str) -> None:
    assert refusal(user(), update(**fields)).param == f"input[1].{param}"


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        ({"defer_loading": True}, "tool defer_loading adapted"),
        ({"async": True}, "tool async adapted"),
        ({"output_schema": {"type": "object"}}, "tool output_schema ignored"),
        ({"allowed_callers": ["programmatic"]}, "tool allowed_callers ignored"),
    ],
)
def test_what_a_tool_asks_for_in_vain_is_on_record(options: Item, outcome: str) -> None:
    assert outcome in outcomes(chat_request(tools=[function("f", **options)]))
    assert outcome in outcomes(chat_request(tools=[{"type": "custom", "name": "c", **options}]))
    nothing = {"defer_loading": False, "async": None, "output_schema": None, "allowed_callers": ["direct", "programmatic"]}
    assert outcomes(chat_request(tools=[function("f", **nothing)])) == {"tool function preserved"}


def test_tools_that_a_search_has_found_are_not_deferred() -> None:
    items = [
        {"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {}},
        {"type": "tool_search_output", "call_id": "s", "tools": [function("f", defer_loading=True)]},
    ]
    assert "tool defer_loading adapted" not in outcomes(chat_request(user(), *items))


def test_a_tool_declared_in_two_ways_is_on_record() -> None:
    assert "tool declared_again ignored" not in outcomes(chat_request(tools=[function("f"), function("f")]))
    tools = [function("f"), function("f", description="another")]
    result = chat_request(tools=tools)
    assert [tool["function"]["description"] for tool in result.body["tools"]] == ["d"]
    assert "tool declared_again ignored" in outcomes(result)
    assert refusal(tools=tools, policy=Policy(strict=True)).param == "tools[1]"


@pytest.mark.parametrize("key", ["strict", "defer_loading", "async"])
def test_flags_of_a_tool_are_booleans(key: str) -> None:
    assert refusal(tools=[function("f", **{key: "yes"})]).param == f"tools[0].{key}"


@pytest.mark.parametrize(
    ("part", "outcome"),
    [
        ({"type": "input_text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}}, "prompt_cache_breakpoint"),
        ({"type": "input_file", "file_data": "x", "detail": "high"}, "file_detail"),
    ],
)
def test_what_a_part_asks_for_in_vain_is_on_record(part: Item, outcome: str) -> None:
    assert f"content {outcome} ignored" in outcomes(chat_request({"role": "user", "content": [part]}))


def test_the_phase_of_a_message_is_on_record() -> None:
    said = {"role": "assistant", "content": "Wait.", "phase": "commentary"}
    assert "content phase ignored" in outcomes(chat_request(user(), said))


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"access_programs": {"cyber": "standard"}}, "access_programs"),
        ({"image": {"context_compression": "enabled"}}, "image"),
        ({"reasoning": {"context": "current_turn"}}, "reasoning.context"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"reasoning": {"colour": "red"}}, "unknown"),
        ({"text": {"colour": "red"}}, "unknown"),
    ],
)
def test_parameters_that_nobody_here_can_carry_are_on_record(parameters: Item, name: str) -> None:
    assert outcomes(chat_request(**parameters)) == {f"parameter {name} ignored"}


def test_strict_mode_names_what_is_inside_a_parameter() -> None:
    strict = Policy(strict=True)
    assert refusal(reasoning={"mode": "pro"}, policy=strict).param == "reasoning.mode"
    assert refusal(text={"colour": "red"}, policy=strict).param == "text.colour"
    assert outcomes(chat_request(reasoning={"mode": "standard", "context": "all_turns"}, policy=strict)) == set()


def test_words_that_would_break_the_response_are_refused() -> None:
    assert refusal(reasoning={"summary": "long"}).param == "reasoning.summary"
    assert refusal(text={"verbosity": "huge"}).param == "text.verbosity"
    assert chat_request(reasoning={"summary": "none"}).echo["reasoning"]["summary"] is None


@pytest.mark.parametrize(
    "item",
    [
        {"type": "mcp_call", "id": "", "name": "n", "server_label": "s", "arguments": "{}"},
        {"type": "code_interpreter_call", "id": "", "outputs": []},
        {"type": "file_search_call", "id": "", "results": [{"text": "x"}]},
    ],
)
def test_a_hosted_call_without_an_id_is_named(item: Item) -> None:
    assert refusal(user(), item).param == "input[1].id"


def test_a_namespace_among_the_allowed_tools_is_all_of_it() -> None:
    tools = [{"type": "namespace", "name": "n", "tools": [function("a"), function("b")]}, function("c")]
    result = chat_request(tools=tools, tool_choice={"type": "allowed_tools", "tools": [{"type": "namespace", "name": "n"}]})
    assert [tool["function"]["name"] for tool in result.body["tools"]] == ["n__a", "n__b"]
    assert result.allowed == frozenset({"n__a", "n__b"})
    choice = {"type": "allowed_tools", "tools": [{"type": "namespace", "name": "x"}]}
    assert refusal(tools=tools, tool_choice=choice).param == "tool_choice.tools[0].name"


def moderation(**modes: str) -> Item:
    return {"model": "m", "policy": {side: {"mode": mode} for side, mode in modes.items()}}


@pytest.mark.parametrize(
    ("parameters", "param", "code"),
    [
        ({"moderation": moderation(input="block")}, "moderation.policy.input.mode", "unsupported_value"),
        ({"moderation": moderation(input="score", output="block")}, "moderation.policy.output.mode", "unsupported_value"),
        ({"moderation": moderation(output="hide")}, "moderation.policy.output.mode", "invalid_value"),
        ({"moderation": {"model": "m", "policy": "block"}}, "moderation.policy", "invalid_type"),
        ({"multi_agent": {"enabled": True}}, "multi_agent", "unsupported_value"),
        ({"multi_agent": {"enabled": "yes"}}, "multi_agent.enabled", "invalid_type"),
        ({"background_options": {"completion_window": "2h"}}, "background_options.completion_window", "invalid_value"),
        ({"background_options": {"completion_window": "1h"}}, "background_options.completion_window", "invalid_value"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [], "async": True}]}, "tools[0].async", "unknown_parameter"),
        ({"tools": [{"type": "shell", "async": True}]}, "tools[0].async", "unknown_parameter"),
        ({"tools": [{"type": "web_search", "async": True}]}, "tools[0].async", "unknown_parameter"),
        ({"prompt_cache_options": {"prewarm": 1}}, "prompt_cache_options.prewarm", "invalid_type"),
    ],
)
def test_what_a_client_relies_on_is_refused(parameters: Item, param: str, code: str) -> None:
    refused = refusal(user(), **parameters)
    assert (refused.status, refused.param, refused.code) == (400, param, code)


def test_scores_that_nobody_makes_are_an_error_in_the_response() -> None:
    result = chat_request(moderation=moderation(input="score"))
    assert outcomes(result) == {"parameter moderation ignored"}
    assert {side: score["type"] for side, score in result.echo["moderation"].items()} == {"input": "error", "output": "error"}
    forwarded = chat_request(moderation=moderation(output="block"), policy=Policy(forward=frozenset({"moderation"})))
    assert forwarded.body["moderation"] == moderation(output="block")
    assert "moderation" not in forwarded.echo
    guarded = chat_request(moderation=moderation(output="block"), policy=Policy(moderates=True))
    assert outcomes(guarded) == {"parameter moderation adapted"}
    assert "moderation" not in {*guarded.body, *guarded.echo}
    assert outcomes(chat_request(multi_agent={"enabled": False})) == set()


@pytest.mark.parametrize("asked", [{"generate": False}, {"prompt_cache_options": {"prewarm": True}}])
def test_a_prompt_that_is_only_to_be_read_is_sent_whole(asked: Item) -> None:
    parameters: Item = {"tools": [function("f")], "max_output_tokens": 500, "min_tokens": 9}
    whole = chat_request(user(), **parameters)
    warming = chat_request(user(), **parameters, **asked)
    assert {name for name in whole.body if whole.body[name] != warming.body.get(name)} == {
        "max_completion_tokens",
        "min_tokens",
    }
    assert warming.body["max_completion_tokens"] == 1
    assert warming.warming
    assert not whole.warming


def test_an_output_without_a_call_is_refused_in_the_words_of_the_api() -> None:
    assert refusal(user(), output("call_9")).message == "No tool call found for function call output with call_id call_9."
