"""A JSON schema in the prompt is followed, as frameworks ask for JSON where there is no structured output."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from responses_gateway.simulator.chat_request import ChatRequest
from responses_gateway.simulator.scenarios import SCENARIOS, choose
from responses_gateway.simulator.script import Say

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def asked(text: str, role: str = "system", **fields: Any) -> dict[str, Any] | None:
    messages = [{"role": role, "content": text}, {"role": "user", "content": "Paris?"}]
    return ChatRequest({"messages": messages, **fields}).schema


@pytest.mark.parametrize("role", ["system", "developer", "user"])
@pytest.mark.parametrize(
    "text",
    [
        f"Answer in JSON:\n```json\n{json.dumps(SCHEMA, indent=2)}\n```",
        f"The schema is {json.dumps(SCHEMA)}, without a preamble.",
        f'An example: {{"name": "Rome"}}. The schema: {json.dumps(SCHEMA)}',
    ],
)
def test_a_schema_in_the_prompt_is_found(text: str, role: str) -> None:
    assert asked(text, role) == SCHEMA


@pytest.mark.parametrize(
    "text",
    ["Answer briefly.", 'Use {"type": "object"}.', 'Broken: {"type": "object", "properties": {', '{"properties"' * 1000],
)
def test_other_text_is_none(text: str) -> None:
    assert asked(text) is None


def test_with_tools_a_schema_in_the_prompt_is_an_example() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
    assert asked(json.dumps(SCHEMA), tools=[tool]) is None


def test_the_prompt_says_what_a_json_object_is_to_contain() -> None:
    assert asked(json.dumps(SCHEMA), response_format={"type": "json_object"}) == SCHEMA


_TYPED = "(must be formatted as a valid Python "
MARKED = (
    "[[ ## question ## ]]\nParis?\n\nRespond with the corresponding output fields, starting with the field `[[ ## name ## ]]`, "
    f"then `[[ ## inhabitants ## ]]` {_TYPED}int), then `[[ ## size ## ]]` {_TYPED}Literal['small', 'large']), then "
    f"`[[ ## rivers ## ]]` {_TYPED}list[str]), and then ending with the marker for `[[ ## completed ## ]]`."
)
AS_JSON = f"Respond with a JSON object in the following order of fields: `name`, then `inhabitants` {_TYPED}int)."


def test_fields_that_the_prompt_asks_for_by_name_follow_their_markers() -> None:
    request = ChatRequest({"messages": [{"role": "user", "content": MARKED}]})
    assert choose(request) == "fields"
    (say,) = [step for step in SCENARIOS["fields"](request).steps if isinstance(step, Say)]
    values = re.findall(r"\[\[ ## (\w+) ## \]\]\n?([^\n]*)", say.text)
    assert values == [("name", "Ada"), ("inhabitants", "3"), ("size", "small"), ("rivers", '["example"]'), ("completed", "")]


def test_fields_of_a_json_object_that_the_prompt_asks_for_by_name() -> None:
    schema = asked(AS_JSON, "user", response_format={"type": "json_object"})
    assert schema is not None
    assert schema["properties"] == {"name": {"type": "string"}, "inhabitants": {"type": "integer"}}
    assert schema["required"] == ["name", "inhabitants"]
