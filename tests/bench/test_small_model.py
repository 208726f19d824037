"""What is counted of the small model's answers, and when its server enforces schemas. The model itself is not run here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench.small_model import prompts  # noqa: E402
from bench.small_model.__main__ import figures_of  # noqa: E402
from bench.small_model.enforcer import forwarded  # noqa: E402


def test_schemas_are_enforced_where_a_tool_is_strict() -> None:
    function = {"name": "add", "parameters": {"type": "object"}}
    plain = {"messages": [], "tools": [{"type": "function", "function": function}], "tool_choice": "none"}
    strict = {"messages": [], "tools": [{"type": "function", "function": {**function, "strict": True}}]}
    assert forwarded({"messages": []}) == {"messages": []}
    assert forwarded(strict) == strict
    assert forwarded(plain) == {"messages": [], "chat_template_kwargs": {"declared_tools": plain["tools"]}}


@pytest.mark.parametrize(
    ("item", "figures"),
    [
        ({"type": "function_call", "name": "add", "arguments": '{"a": 1, "b": 2}'}, {"calls": 1}),
        ({"type": "function_call", "name": "add", "arguments": '{"a": 1}'}, {"calls": 1, "refused": 1}),
        ({"type": "function_call", "name": "add", "arguments": '{"a": 1'}, {"calls": 1, "refused": 1}),
        ({"type": "function_call", "name": "sum", "arguments": "{}"}, {"calls": 1, "refused": 1}),
        ({"type": "message", "content": [{"text": "It is 3."}]}, {}),
        ({"type": "message", "content": [{"text": "<tool_call>"}]}, {"answers with markup in their text": 1}),
        ({"type": "message", "content": [{"text": "Well: " + "I will look again. " * 150}]}, {"that end in a loop": 1}),
        ({"type": "message", "content": [{"text": "I will look again. " * 50}]}, {}),
    ],
)
def test_what_is_counted_of_an_answer(item: dict[str, Any], figures: dict[str, int]) -> None:
    assert +figures_of({"output": [item]}) == figures


def test_each_question_comes_behind_calls_that_are_valid() -> None:
    items = prompts.conversation(prompts.QUESTIONS[0])
    calls = [item for item in items if item.get("type") == "function_call"]
    assert len(prompts.QUESTIONS) == len(set(prompts.QUESTIONS)) == 40
    assert items[-1]["content"] == prompts.QUESTIONS[0]
    assert figures_of({"output": calls}) == {"calls": len(calls), "refused": 0}
    assert all(json.loads(call["arguments"]) for call in calls)
