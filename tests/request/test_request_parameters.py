"""Parameters: what is sent, what is only echoed, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.request import Policy, translate
from responses_gateway.request.parameters.parameters import PARAMETERS, RESERVED, SAMPLING
from responses_gateway.request.tools.hosted_tools import HostedTools
from responses_gateway.wire.requests import INCLUDABLE, ResponsesRequest, parse_request
from tests.judges import openapi_errors
from tests.request.builders import chat_request, function, outcomes, refusal, response_with

FORMAT = {
    "type": "json_schema",
    "name": "weather",
    "description": "d",
    "strict": True,
    "schema": {"type": "object", "properties": {}},
}


def sent(policy: Policy | None = None, **parameters: Any) -> dict[str, Any]:
    """Return the fields that these parameters add to the chat request."""
    body = chat_request(policy=policy, **parameters).body
    return {key: value for key, value in body.items() if key not in {"model", "messages", "stream", "stream_options"}}


def test_a_plain_request_sends_nothing_else() -> None:
    assert sent() == {}
    assert outcomes(chat_request()) == set()


def test_every_parameter_is_in_the_table() -> None:
    covered = {parameter.name.split(".")[0] for parameter in PARAMETERS}
    assert set(ResponsesRequest.model_fields) <= covered
    assert not RESERVED & set(SAMPLING)


def test_sampling_parameters_are_sent() -> None:
    given: dict[str, Any] = {"temperature": 0.0, "top_p": 0.5, "presence_penalty": 1.0, "frequency_penalty": -1.0, "user": "u"}
    assert sent(**given) == given


def test_sampling_parameters_of_other_servers_are_sent() -> None:
    given: dict[str, Any] = {
        "top_k": 20,
        "min_p": 0.1,
        "seed": 7,
        "stop": ["x"],
        "chat_template_kwargs": {"enable_thinking": True},
    }
    result = chat_request(**given)
    assert {key: result.body[key] for key in given} == given
    assert "parameter top_k preserved" in outcomes(result)


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_the_name_of_the_token_limit(field: Any) -> None:
    assert sent(Policy(max_tokens_field=field), max_output_tokens=16) == {field: 16}


@pytest.mark.parametrize(
    ("effort", "expected", "outcome"),
    [
        ("minimal", {"reasoning_effort": "minimal"}, "preserved"),
        ("high", {"reasoning_effort": "high"}, "preserved"),
        ("xhigh", {"reasoning_effort": "high"}, "adapted"),
        ("max", {"reasoning_effort": "high"}, "adapted"),
        ("bogus", {}, "ignored"),
        ("none", {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": False}}, "adapted"),
    ],
)
def test_efforts_are_mapped(effort: str, expected: dict[str, Any], outcome: str) -> None:
    result = chat_request(reasoning={"effort": effort})
    assert sent(reasoning={"effort": effort}) == expected
    assert outcomes(result) == {f"parameter reasoning.effort {outcome}"}
    assert result.echo["reasoning"]["effort"] == (None if outcome == "ignored" else effort)


def test_the_client_decides_about_thinking_in_the_template() -> None:
    variables = {"enable_thinking": True, "x": 1}
    fields = sent(reasoning={"effort": "none"}, chat_template_kwargs=variables)
    assert fields["chat_template_kwargs"] == variables
    assert refusal(reasoning={"effort": "none"}, chat_template_kwargs=3).param == "chat_template_kwargs"


def test_efforts_may_be_passed_or_dropped() -> None:
    assert sent(Policy(reasoning_effort="pass"), reasoning={"effort": "low"}) == {"reasoning_effort": "low"}
    assert (
        chat_request(policy=Policy(reasoning_effort="pass"), reasoning={"effort": "none"}).echo["reasoning"]["effort"] == "none"
    )
    dropped = chat_request(policy=Policy(reasoning_effort="drop"), reasoning={"effort": "low"})
    assert "reasoning_effort" not in dropped.body
    assert dropped.echo["reasoning"]["effort"] is None


@pytest.mark.parametrize(
    ("reasoning", "expected"),
    [
        (None, False),
        ({}, False),
        ({"summary": "none"}, False),
        ({"summary": "auto"}, True),
        ({"generate_summary": "concise"}, True),
    ],
)
def test_summaries(reasoning: Any, expected: bool) -> None:
    result = chat_request(reasoning=reasoning)
    assert result.summary is expected
    assert ("parameter reasoning.summary adapted" in outcomes(result)) is expected


def test_a_json_schema() -> None:
    assert sent(text={"format": FORMAT}) == {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "weather", "description": "d", "schema": FORMAT["schema"], "strict": True},
        }
    }
    bare = sent(text={"format": {"type": "json_schema", "schema": {}}})
    assert bare["response_format"]["json_schema"] == {"name": "response", "schema": {}}


def test_other_formats() -> None:
    assert sent(text={"format": {"type": "json_object"}}) == {"response_format": {"type": "json_object"}}
    assert sent(text={"format": {"type": "text"}}) == {}
    assert sent(text={}) == {}


@pytest.mark.parametrize(
    ("layout", "param"),
    [
        ({}, "type"),
        ({"type": "grammar"}, "type"),
        ({"type": "json_schema", "name": "x"}, "schema"),
        ({"type": "json_schema", "name": "x", "schema": []}, "schema"),
        ({"type": "json_schema", "name": "a b", "schema": {}}, "name"),
        ({"type": "json_schema", "name": 3, "schema": {}}, "name"),
        ({"type": "json_schema", "strict": "yes", "schema": {}}, "strict"),
        ({"type": "json_schema", "description": 3, "schema": {}}, "description"),
    ],
)
def test_a_malformed_format_is_named(layout: Any, param: str) -> None:
    assert refusal(text={"format": layout}).param == f"text.format.{param}"


def test_what_cannot_be_included_is_refused() -> None:
    error = refusal(include=["reasoning.encrypted_content", "reasoning.everything"])
    assert (error.param, error.code) == ("include[1]", "invalid_value")
    assert "Supported values are: 'code_interpreter_call.outputs', " in error.message
    assert not [line for line in outcomes(chat_request(include=list(INCLUDABLE))) if "rejected" in line]


def test_what_codex_asks_for_to_replay_outputs_is_left_out() -> None:
    result = chat_request(include=["reasoning.encrypted_content", "output.encrypted_content"])
    assert "parameter include ignored" in outcomes(result)


def test_log_probabilities() -> None:
    result = chat_request(include=["message.output_text.logprobs", "reasoning.encrypted_content"], top_logprobs=3)
    assert (result.body["logprobs"], result.body["top_logprobs"], result.logprobs) == (True, 3, True)
    assert {"parameter include preserved", "parameter include ignored"} <= outcomes(result)
    bare = chat_request(include=["message.output_text.logprobs"])
    assert "top_logprobs" not in bare.body
    unasked = chat_request(top_logprobs=3)
    assert not {"logprobs", "top_logprobs"} & set(unasked.body)
    assert "parameter top_logprobs ignored" in outcomes(unasked)


def test_what_is_included_of_hosted_tools_that_are_run() -> None:
    body = {"model": "m", "input": "hi", "tools": [{"type": "web_search"}], "include": ["web_search_call.action.sources"]}
    request = parse_request(body)
    assert "parameter include preserved" in outcomes(translate(request, hosted=HostedTools(frozenset({"web_search"}))))
    assert "parameter include ignored" in outcomes(translate(request, hosted=HostedTools(frozenset({"file_search"}))))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("service_tier", "flex"),
        ("truncation", "auto"),
        ("prompt_cache_key", "k"),
        ("prompt_cache_retention", "24h"),
        ("prompt_cache_options", {"mode": "explicit"}),
        ("safety_identifier", "s"),
        ("client_metadata", {"a": "b"}),
        ("context_management", [{"type": "compaction"}]),
        ("moderation", {"model": "x"}),
    ],
)
def test_ignored_parameters_may_be_forwarded(name: str, value: Any) -> None:
    ignored = chat_request(**{name: value})
    assert outcomes(ignored) == {f"parameter {name} ignored"}
    forwarded = chat_request(policy=Policy(forward=frozenset({name})), **{name: value})
    assert forwarded.body[name] == value
    assert outcomes(forwarded) == {f"parameter {name} preserved"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("service_tier", "auto"),
        ("truncation", "disabled"),
        ("background", False),
        ("store", False),
        ("stream_options", {"include_obfuscation": False}),
        ("metadata", {}),
    ],
)
def test_parameters_that_ask_for_nothing_are_no_loss(name: str, value: Any) -> None:
    assert outcomes(chat_request(**{name: value})) == set()


def test_verbosity() -> None:
    assert outcomes(chat_request(text={"verbosity": "low"})) == {"parameter text.verbosity ignored"}
    assert sent(Policy(forward=frozenset({"text.verbosity"})), text={"verbosity": "low"}) == {"verbosity": "low"}


def test_unknown_parameters() -> None:
    given: dict[str, Any] = {"colour": "red", "nothing": None, "messages": [], "n": 2}
    ignored = chat_request(**given)
    assert outcomes(ignored) == {"parameter unknown ignored"}
    assert any("colour, messages, n" in loss.reason for loss in ignored.losses)
    assert sent(Policy(forward=frozenset({"*"})), **given) == {"colour": "red"}
    assert sent(Policy(forward=frozenset({"colour"})), **given) == {"colour": "red"}


def test_stream_options_are_always_the_gateways() -> None:
    result = chat_request(
        policy=Policy(forward=frozenset({"stream_options"})), stream_options={"include_obfuscation": True}, stream=False
    )
    assert result.body["stream"] is True
    assert result.body["stream_options"] == {"include_usage": True}
    assert outcomes(result) == {"parameter stream_options ignored"}


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_not_found"),
        ({"conversation": "conv_1"}, "unsupported_parameter"),
        ({"conversation": {"id": "conv_1"}}, "unsupported_parameter"),
        ({"prompt": {"id": "pmpt_1"}}, "unsupported_parameter"),
        ({"background": True}, "unsupported_parameter"),
    ],
)
def test_what_needs_a_store_is_refused(parameters: dict[str, Any], code: str) -> None:
    error = refusal(**parameters)
    assert (error.param, error.code) == (next(iter(parameters)), code)


def test_storing() -> None:
    assert chat_request().echo["store"] is False
    assert outcomes(chat_request(store=True)) == {"parameter store ignored"}
    keeps = Policy(stores_responses=True)
    assert chat_request(policy=keeps).echo["store"] is True
    assert chat_request(policy=keeps, store=False).echo["store"] is False
    assert outcomes(chat_request(policy=keeps, store=True)) == {"parameter store preserved"}


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"tools": [function(), {"type": "function", "name": "bare"}], "tool_choice": {"type": "function", "name": "bare"}},
        {
            "tools": [function()],
            "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}]},
            "metadata": {"a": "b"},
        },
        {"text": {"format": FORMAT, "verbosity": "low"}, "reasoning": {"effort": "high", "summary": "auto"}},
        {"text": {"format": {"type": "json_schema", "schema": {}}}, "service_tier": "flex", "truncation": "auto"},
        {"text": {"format": {"type": "json_object"}}, "temperature": 0, "top_logprobs": 2, "max_output_tokens": 16},
        {"safety_identifier": "s", "prompt_cache_key": "k", "instructions": "i", "max_tool_calls": 2},
    ],
)
def test_the_echo_makes_a_valid_response_object(parameters: dict[str, Any]) -> None:
    assert openapi_errors(response_with(chat_request(**parameters).echo)) == []


def test_the_echo_says_what_was_used() -> None:
    echo = chat_request(service_tier="flex", user="u", tools=[{"type": "web_search"}], metadata={"a": "b"}).echo
    assert (echo["service_tier"], echo["user"], echo["metadata"]) == ("default", "u", {"a": "b"})
    assert echo["tools"] == [{"type": "web_search"}]
    forwarded = chat_request(service_tier="flex", policy=Policy(forward=frozenset({"service_tier"}))).echo
    assert forwarded["service_tier"] == "flex"
    assert "user" not in chat_request().echo


def test_the_echo_fills_in_defaults() -> None:
    choice = {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}]}
    echo = chat_request(tools=[{"type": "function", "name": "f"}], tool_choice=choice, text={"format": FORMAT}).echo
    assert echo["tool_choice"] == {**choice, "mode": "auto"}
    assert echo["tools"] == [{"type": "function", "name": "f", "description": None, "parameters": None, "strict": None}]
    assert echo["text"] == {"format": FORMAT}
    assert chat_request(text={"format": {"type": "text"}}).echo["text"] == {"format": {"type": "text"}}


TIERS = Policy(service_tier_priorities={"flex": 10, "priority": -10, "default": 0})


@pytest.mark.parametrize(
    ("tier", "fields", "echoed"),
    [
        ("flex", {"priority": 10}, "flex"),
        ("priority", {"priority": -10}, "priority"),
        ("default", {"priority": 0}, "default"),
        ("scale", {}, "default"),
        ("auto", {}, "default"),
        (None, {}, "default"),
    ],
)
def test_a_service_tier_becomes_a_priority(tier: str | None, fields: dict[str, Any], echoed: str) -> None:
    assert sent(TIERS, service_tier=tier) == fields
    result = chat_request(policy=TIERS, service_tier=tier)
    assert result.echo["service_tier"] == echoed
    assert ("parameter service_tier adapted" in outcomes(result)) == bool(fields)


def test_a_priority_of_the_client_goes_before_that_of_its_tier() -> None:
    assert sent(TIERS, service_tier="flex", priority=3) == {"priority": 3}


@pytest.mark.parametrize(
    ("options", "priority"),
    [
        ({"completion_window": "2h", "continuation_id": "c"}, 20),
        ({"completion_window": "8h"}, None),
        ({"completion_window": "soonest"}, None),
    ],
)
def test_options_of_background_responses_are_echoed(options: dict[str, Any], priority: int | None) -> None:
    policy = Policy(stores_responses=True, service_tier_priorities={"2h": 20})
    result = chat_request(background_options=options, background=True, policy=policy)
    assert result.echo["background_options"] == options
    assert "background_options" not in result.body
    assert result.body.get("priority") == priority
    assert outcomes(result) == {"parameter background preserved", "parameter background_options preserved"}


def test_options_of_tools_are_echoed() -> None:
    [tool] = chat_request(tools=[function("f", **{"async": True})]).echo["tools"]
    assert tool["async"] is True
