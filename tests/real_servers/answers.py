"""Checks of what the model says: its text, thoughts and calls must arrive as items, word for word."""

from __future__ import annotations

import json
from typing import Any

from tests.real_servers.conversation import Answer, Conversation, Wrong, scenario

_HELLO = "Hello! How can I help you today?"
_THOUGHT = "The user greets me. A short friendly reply is enough."
_LOOKING_UP = "I will look up both cities."
_AFTER_THOUGHT = "Good morning. What shall we build?"
_CITY = {"type": "string"}
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": _CITY, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        "required": ["city"],
    },
}
TIME: dict[str, Any] = {
    "type": "function",
    "name": "get_time",
    "description": "Current time in a timezone.",
    "parameters": {"type": "object", "properties": {"timezone": {"type": "string"}}, "required": ["timezone"]},
}
_PARIS = ("get_weather", {"city": "Paris", "unit": "celsius"})
_ROME_AND_LIMA = [
    ("get_weather", {"city": "Rome", "unit": "celsius"}),
    ("get_weather", {"city": "Lima", "unit": "fahrenheit"}),
]
_PERSON: dict[str, Any] = {
    "type": "json_schema",
    "name": "person",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "score": {"type": "integer"}},
        "required": ["name", "score"],
        "additionalProperties": False,
    },
}


def text(with_: Conversation) -> None:
    """Check that an answer without a thought is a message, streamed or not."""
    for stream in (True, False):
        _expect_text(with_.ask("hello", stream=stream), _HELLO)


def thought(with_: Conversation) -> None:
    """Check that a thought is a reasoning item before the message."""
    for stream in (True, False):
        answer = with_.ask("think", stream=stream)
        _expect_shape(answer, "reasoning", "message")
        _expect_same("thought", answer.thought, _THOUGHT)
        _expect_text(answer, _AFTER_THOUGHT)


def call(with_: Conversation) -> None:
    """Check that a thought is followed by a function call."""
    answer = with_.ask("weather", tools=[WEATHER])
    _expect_shape(answer, "reasoning", "function_call")
    _expect_same("call", answer.calls, [_PARIS])


def parallel_calls(with_: Conversation) -> None:
    """Check that a message is followed by two calls, in order; or what the server takes for a thought is."""
    answer = with_.ask("parallel", tools=[WEATHER])
    if with_.setting.takes_answers_for_thoughts and not answer.text:
        _expect_shape(answer, "reasoning", "function_call", "function_call")
        _expect_same("words", answer.thought, _LOOKING_UP)
    else:
        _expect_shape(answer, "message", "function_call", "function_call")
        _expect_text(answer, _LOOKING_UP)
    exact = len(_ROME_AND_LIMA) if with_.setting.exact_calls else 1
    _expect_same("calls", answer.calls[:exact], _ROME_AND_LIMA[:exact])


def arguments_first(with_: Conversation) -> None:
    """Check that a call whose JSON names the arguments first is right, or counted as a repair."""
    before = with_.gateway_metric('responses_gateway_repairs_total{kind="arguments_not_json"')
    answer = with_.ask("args_first", tools=[WEATHER])
    if len(answer.of("function_call")) != 1:
        raise Wrong(f"output: {answer.shape()}")
    try:
        arguments = json.loads(answer.of("function_call")[0]["arguments"])
    except ValueError:
        counted = with_.gateway_metric('responses_gateway_repairs_total{kind="arguments_not_json"') > before
        if not counted and answer.of("function_call")[0]["status"] == "completed":
            raise Wrong(f"a completed call, not counted: {answer.of('function_call')[0]['arguments'][:60]!r}") from None
    else:
        if not isinstance(arguments, dict):
            raise Wrong(f"arguments: {arguments!r}")


def reasoning_sent_back(with_: Conversation) -> None:
    """Check that the prompt of the next turn contains the reasoning that the client sends back."""
    first = with_.ask("weather", tools=[WEATHER])
    calls = first.of("function_call")
    if not first.of("reasoning") or len(calls) != 1:
        raise Wrong(f"nothing to send back: {first.shape()}")
    question = {"role": "user", "content": scenario("weather")}
    result = {"type": "function_call_output", "call_id": calls[0]["call_id"], "output": "18 degrees, sun"}
    with_reasoning = with_.ask([question, *first.items, result], tools=[WEATHER])
    without = with_.ask([question, calls[0], result], tools=[WEATHER])
    tokens = (with_reasoning.usage["input_tokens"], without.usage["input_tokens"])
    if tokens[0] <= tokens[1]:
        raise Wrong(f"{tokens[0]} prompt tokens with the reasoning, {tokens[1]} without")
    if with_.setting.exact and "18 °C" not in with_reasoning.text:
        raise Wrong(f"the second turn says {with_reasoning.text[:80]!r}")


def json_schema(with_: Conversation) -> None:
    """Check that `text.format` gives a message that is an object of the schema, and no JSON in a thought."""
    answer = with_.ask("think_json", text={"format": _PERSON}, max_output_tokens=400)
    try:
        value = json.loads(answer.text)
    except ValueError:
        raise Wrong(f"{answer.shape()} with the text {answer.text[:60]!r}") from None
    if not isinstance(value, dict) or set(value) != {"name", "score"}:
        raise Wrong(f"not an object of the schema: {answer.text[:60]!r}")
    if "{" in answer.thought:
        raise Wrong(f"JSON in the thought: {answer.thought[:60]!r}")


def logprobs(with_: Conversation) -> None:
    """Check that the tokens with log probabilities are those of the text."""
    answer = with_.ask("think", include=["message.output_text.logprobs"], top_logprobs=1)
    _expect_text(answer, _AFTER_THOUGHT)
    parts = [part for item in answer.of("message") for part in item["content"]]
    tokens = [entry["token"] for part in parts for entry in part.get("logprobs") or ()]
    if not tokens:
        raise Wrong("no logprobs")
    _expect_same("tokens", "".join(tokens), answer.text)


def forced_tool(with_: Conversation) -> None:
    """Check that `tool_choice` for one function gives a call of that function, whatever the model would call."""
    choice = {"type": "function", "name": "get_weather"}
    answer = with_.ask("think_text_tool", tools=[TIME, WEATHER], tool_choice=choice, max_output_tokens=400)
    names = [item["name"] for item in answer.of("function_call")]
    if not names or set(names) != {"get_weather"}:
        raise Wrong(f"calls of {', '.join(names) or 'no function'} ({answer.shape()})")


def expect_no_markup(answer: Answer) -> None:
    """Raise `Wrong` if the user sees the markers of the model's markup."""
    if answer.markup:
        raise Wrong(f"markup in the text of the message: {answer.markup}")


def _expect_shape(answer: Answer, *kinds: str) -> None:
    expect_no_markup(answer)
    if [item["type"] for item in answer.items] != list(kinds):
        raise Wrong(f"output: {answer.shape()} (text {answer.text[:60]!r}, thought {answer.thought[:60]!r})")


def _expect_text(answer: Answer, words: str) -> None:
    """Expect a message; where the server's parser takes every answer for a thought, the same words may be reasoning too."""
    expect_no_markup(answer)
    if answer.text != words or (answer.thought and answer.thought not in (words, _THOUGHT)):
        raise Wrong(f"output: {answer.shape()} (text {answer.text[:60]!r}, thought {answer.thought[:60]!r})")


def _expect_same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Wrong(f"{what}: {str(found)[:120]!r} instead of {str(expected)[:120]!r}")
