"""Which scenario is chosen, and its answer."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from responses_gateway.simulator.chat_request import ChatRequest, spoken_text
from responses_gateway.simulator.scenarios import SCENARIOS, choose
from responses_gateway.simulator.schema import example
from responses_gateway.simulator.script import CallTool, Say
from tests.data_folder import BESIDE
from tests.simulator.chat_client import WEATHER, Ask

CODEX = BESIDE / "codex" / "requests"

SHELL = {"type": "function", "function": {"name": "exec_command", "parameters": {"properties": {"cmd": {"type": "string"}}}}}
TITLE_SCHEMA = {"type": "object", "properties": {"title": {"type": "string", "maxLength": 36}}, "required": ["title"]}


def chat_request(*texts: str, **fields: Any) -> ChatRequest:
    return ChatRequest({"messages": [{"role": "user", "content": text} for text in texts], **fields})


def response_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def function(name: str, **properties: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


def test_the_answer_quotes_what_the_user_wrote_and_no_context_of_the_client(ask: Ask) -> None:
    behind = "<system_message>\n# Environment\nYou have been invoked …\n</system_message>"
    reminder = "<system-reminder>a reminder</system-reminder>"
    for text in (f"Say hello\n{behind}", f"{reminder}Say hello\n{behind}\n{reminder}", "Say hello"):
        assert ask(text).text().strip().startswith("You said “Say hello”."), text
    assert spoken_text({"content": "a </system_message>"}) == ""


@pytest.mark.parametrize(
    ("asked", "scenario"),
    [
        (chat_request("hello"), "default"),
        (chat_request("Please write a file for me", tools=[SHELL]), "agent"),
        (chat_request("Please write a file for me"), "default"),
        (chat_request("What is the weather?", tools=[WEATHER]), "tool"),
        (chat_request("hello", tools=[WEATHER], tool_choice="required"), "tool"),
        (chat_request("You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff."), "compaction"),
        (chat_request("Another language model started to solve this problem. Summary: …"), "continued"),
        (chat_request("fill it in", response_format=response_format({"type": "object"})), "schema"),
        (chat_request("title for: scenario: agent", response_format=response_format(TITLE_SCHEMA)), "title"),
        (chat_request([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]), "image"),  # type: ignore[arg-type]
    ],
)
def test_a_scenario_is_found_without_being_named(asked: ChatRequest, scenario: str) -> None:
    assert choose(asked) == scenario


def test_the_message_the_model_name_or_a_header_names_a_scenario(ask: Ask) -> None:
    plain = "A plain answer"
    assert ask("Hello! scenario: plain please").text().strip().startswith(plain)
    assert ask("Hello!", model="sim-plain").text().strip().startswith(plain)
    assert ask("Hello!", headers={"x-simulator": "scenario: plain"}).text().strip().startswith(plain)
    assert "simulated model" in ask("Hello!").text()


def test_an_unknown_name_is_refused(ask: Ask) -> None:
    for reply in (
        ask("scenario: nonsense"),
        ask("hi", model="sim-nonsense"),
        ask("dialect: nonsense"),
    ):
        assert reply.status == 400
        assert "nonsense" in reply.json["error"]["message"]


def test_a_title_request_ignores_directives_in_the_message_that_it_quotes(ask: Ask) -> None:
    reply = ask("Title for: scenario: agent fault: status=500", response_format=response_format(TITLE_SCHEMA))
    assert json.loads(reply.text()) == {"title": "Simulated conversation"}


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_scenario_has_an_answer_with_and_without_tools(ask: Ask, name: str) -> None:
    for tools in ({}, {"tools": [SHELL, WEATHER]}):
        reply = ask(f"scenario: {name}", **tools)
        assert reply.status == 200
        assert reply.finish_reason in ("stop", "tool_calls")
        assert reply.payloads[-1] == b"[DONE]"


def test_context_in_tags_is_left_out_of_the_question() -> None:
    asked = chat_request(
        "Fix it. scenario: agent",
        "<environment_context>\n  <cwd>/workspace</cwd>\n</environment_context>",
        "# AGENTS.md instructions for /workspace\n\n<INSTRUCTIONS>\nBe kind.\n</INSTRUCTIONS>",
    )
    assert asked.question == "Fix it. scenario: agent"
    joined = {"content": "<environment_context>x</environment_context>\n\n<image name=[Image #1]>\n</image>\nWhat is this?"}
    assert spoken_text(joined) == "What is this?"
    task = '<agent_message author="/root">\nscenario: plain\n</agent_message>'
    assert chat_request("scenario: subagent", task).question == task  # what another agent says counts


@pytest.mark.skipif(not CODEX.exists(), reason="no captured Codex requests beside the checkout")
def test_the_last_words_in_captured_codex_requests() -> None:
    def question(name: str) -> str:
        items = json.loads((CODEX / name).read_text(encoding="utf-8"))["body"]["input"]
        messages = [{"role": item["role"], "content": item["content"]} for item in items if item["type"] == "message"]
        return ChatRequest({"messages": messages}).question

    assert question("06-resume.json") == "second"
    assert question("26-sub-agent-parent-after-wait.json") == "hello"
    assert question("16-agents-md.json") == "hello"


def test_tool_results_that_carry_images_do_not_end_the_turn() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    asked = ChatRequest(
        {
            "messages": [
                {"role": "user", "content": "look at it"},
                {"role": "tool", "content": "see below"},
                {"role": "user", "content": [{"type": "text", "text": "Output of the tool:"}, image]},
            ]
        }
    )
    assert asked.question == "look at it"
    assert asked.tool_results == ["see below"]


def test_images_are_counted_and_typed(ask: Ask) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    reply = ask([{"role": "user", "content": [{"type": "text", "text": "scenario: image"}, part, part]}])
    assert reply.text().strip() == "I received 2 image part(s): image/png, image/png."


def test_a_tool_call_and_the_answer_with_its_result(ask: Ask) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "What's the weather in Paris?"}]
    first = ask(messages, tools=[WEATHER])
    assert json.loads(first.calls[0]["arguments"]) == {"city": "Paris", "unit": "celsius"}
    messages.append({"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": first.calls[0]}]})
    messages.append({"role": "tool", "tool_call_id": "c", "content": "Sunny, 21 °C"})
    second = ask(messages, tools=[WEATHER])
    assert second.finish_reason == "stop"
    assert "Sunny, 21 °C" in second.text()


def test_parallel_calls_come_one_by_one_where_they_must(ask: Ask) -> None:
    assert len(ask("scenario: parallel", tools=[SHELL]).calls) == 2
    assert len(ask("scenario: parallel", tools=[SHELL], parallel_tool_calls=False).calls) == 1


def test_no_calls_where_tool_choice_says_none(ask: Ask) -> None:
    reply = ask("scenario: tool", tools=[WEATHER], tool_choice="none")
    assert (reply.calls, reply.finish_reason) == ([], "stop")


def test_a_named_tool_is_called(ask: Ask) -> None:
    choice = {"type": "function", "function": {"name": "exec_command"}}
    assert ask("hi", tools=[WEATHER, SHELL], tool_choice=choice).calls[0]["name"] == "exec_command"


def test_mcp_finds_a_namespaced_tool_or_searches_for_one(ask: Ask) -> None:
    add = function("mcp__tiny__add", a={"type": "integer"}, b={"type": "integer"})
    agents = function("multi_agent_v1__spawn_agent", message={"type": "string"})
    (call,) = ask("scenario: mcp", tools=[SHELL, agents, add]).calls
    assert (call["name"], json.loads(call["arguments"])) == ("mcp__tiny__add", {"a": 3, "b": 3})
    (search,) = ask("scenario: mcp", tools=[agents, function("tool_search", query={"type": "string"})]).calls
    assert search["name"] == "tool_search"


def test_subagent_spawns_waits_and_reports() -> None:
    spawn = function("multi_agent_v1__spawn_agent", message={"type": "string"})
    wait = function("multi_agent_v1__wait_agent", targets={"type": "array"}, timeout_ms={"type": "number"})
    messages: list[dict[str, Any]] = [{"role": "user", "content": "scenario: subagent"}]
    asked = ChatRequest({"messages": messages, "tools": [spawn, wait]})
    (spawning,) = [step for step in SCENARIOS["subagent"](asked).steps if isinstance(step, CallTool)]
    assert "scenario: plain" in json.loads(spawning.arguments)["message"]
    messages.append({"role": "tool", "content": '{"agent_id":"a-1","nickname":"Ada"}'})
    (waiting,) = [step for step in SCENARIOS["subagent"](asked).steps if isinstance(step, CallTool)]
    assert json.loads(waiting.arguments)["targets"] == ["a-1"]
    messages.append({"role": "tool", "content": "child says hi"})
    assert any(isinstance(step, Say) and "child says hi" in step.text for step in SCENARIOS["subagent"](asked).steps)


def test_long_answers_have_as_many_tokens_as_asked_for(ask: Ask) -> None:
    reply = ask("go", model="sim-long+tokens=300", stream_options={"include_usage": True})
    assert reply.chunks[-1]["usage"]["completion_tokens"] == 301  # and the end token


SCHEMAS: list[dict[str, Any]] = [
    TITLE_SCHEMA,
    {"type": "object", "properties": {"n": {"type": "integer", "minimum": 10}, "x": {"type": "number", "maximum": -1}}},
    {"type": "object", "required": ["a"], "properties": {"a": {"anyOf": [{"type": "null"}, {"type": "array", "minItems": 2}]}}},
    {"type": "array", "items": {"enum": ["red", "blue"]}, "minItems": 3},
    {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}},
    {"allOf": [{"type": "object", "required": ["a"]}, {"properties": {"a": {"const": 7}}}]},
    {"type": ["string", "null"], "minLength": 12, "maxLength": 14},
    {"type": "object", "required": ["when"], "properties": {"when": {"type": "string", "format": "date-time"}}},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
def test_made_up_values_fit_their_schema(ask: Ask, schema: dict[str, Any]) -> None:
    jsonschema.validate(example(schema), schema)
    reply = ask("fill it in, scenario: schema", response_format=response_format(schema))
    jsonschema.validate(json.loads(reply.text()), schema)


@pytest.mark.parametrize("wrong", [{"properties": 7}, {"required": "abc"}, {"required": [1]}])
def test_an_invalid_schema_is_refused(ask: Ask, wrong: dict[str, Any]) -> None:
    reply = ask("fill it in, scenario: schema", response_format=response_format({"type": "object", **wrong}))
    assert reply.status == 400
    assert "Invalid JSON schema" in reply.json["error"]["message"]
