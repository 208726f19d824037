"""Which fields of a chat request are the gateway's own: whatever no client has asked for."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.request import Policy
from responses_gateway.request.messages import read_messages
from responses_gateway.request.translation import translate
from responses_gateway.request.turns import RunCall, with_turn
from responses_gateway.wire.added_fields import ALWAYS_ADDED, AddedField
from responses_gateway.wire.messages import parse_messages
from tests.request.builders import chat_request, user

TIERS = {"priority": -1}


def more(policy: Policy | None = None, **parameters: Any) -> dict[str, AddedField]:
    """Return the gateway's own fields of a request, beside those that every request may have."""
    added = chat_request(user(), policy=policy, **parameters).added
    assert added.keys() >= ALWAYS_ADDED.keys()
    return {path: field for path, field in added.items() if ALWAYS_ADDED.get(path) != field}


def test_a_plain_request_has_what_all_have() -> None:
    assert chat_request(user()).added is ALWAYS_ADDED


@pytest.mark.parametrize(
    ("parameters", "policy", "paths"),
    [
        ({"reasoning": {"effort": "high"}}, Policy(strict=True), set()),
        ({"reasoning": {"effort": "high"}}, Policy(), {"reasoning_effort=high"}),
        ({"reasoning": {"effort": "high"}}, Policy(reasoning_effort="drop"), set()),
        ({"reasoning": {"effort": "none"}}, Policy(), {"reasoning_effort=none", "chat_template_kwargs"}),
        (
            {"reasoning": {"effort": "none"}, "chat_template_kwargs": {}},
            Policy(),
            {"reasoning_effort=none", "chat_template_kwargs"},
        ),
        (
            {"reasoning": {"effort": "none"}, "chat_template_kwargs": {"x": 1}},
            Policy(),
            {"reasoning_effort=none", "chat_template_kwargs.enable_thinking"},
        ),
        (
            {"reasoning": {"effort": "none"}, "chat_template_kwargs": {"enable_thinking": True}},
            Policy(),
            {"reasoning_effort=none"},
        ),
        ({"chat_template_kwargs": "x"}, Policy(), set()),
        ({"max_output_tokens": 5}, Policy(default_max_output_tokens=9), set()),
        ({}, Policy(default_max_output_tokens=9), {"max_tokens", "max_completion_tokens"}),
        ({"service_tier": "priority"}, Policy(service_tier_priorities=TIERS), {"priority"}),
        ({"service_tier": "priority", "priority": 3}, Policy(service_tier_priorities=TIERS), set()),
    ],
)
def test_what_no_client_asked_for_is_the_gateways(parameters: dict[str, Any], policy: Policy, paths: set[str]) -> None:
    assert more(policy, **parameters).keys() == paths


@pytest.mark.parametrize(
    ("fields", "own"),
    [
        (b"", True),
        (b',"thinking":{"type":"disabled"}', True),
        (b',"thinking":{"type":"enabled","budget_tokens":1024}', True),
        (b',"thinking":{"type":"adaptive"},"output_config":{"effort":"high"}', False),
        (b',"output_config":{"effort":"high"}', True),  # what is sent is that the model is not to think
    ],
)
def test_an_effort_that_stands_for_something_else_is_the_gateways(fields: bytes, own: bool) -> None:
    body = b'{"model":"m","max_tokens":5000,"messages":[{"role":"user","content":"hi"}]' + fields + b"}"
    reading = read_messages(parse_messages(body), "m", Policy())
    added = translate(reading.request, reading.policy).added
    assert ("reasoning_effort" in added) is own
    assert ("reasoning_effort=high" in added) is not own, "a hint, of which each value is a matter of its own"
    assert "response_format.json_schema.strict" in added


def test_a_further_turn_alternates_with_what_came_before() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
    said = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}]
    call = RunCall("c1", "f", "{}", "found")
    following = with_turn(body, [*said, call], Policy(user_messages="alternate"))
    assert [message["role"] for message in following["messages"]] == ["user", "assistant", "tool"]
    assert following == with_turn(body, [*said, call], Policy())
