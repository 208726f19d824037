"""The loss report: each entry once, in a header of limited length, and as a refusal in strict mode."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.request import Loss, Policy, header_value, support
from tests.request.builders import Item, chat_request, function, refusal, user

STRICT = Policy(strict=True)


def test_each_loss_is_reported_once() -> None:
    result = chat_request(user(), user(), tools=[{"type": "web_search"}, {"type": "web_search"}])
    assert len(result.losses) == len(set(result.losses))
    assert [loss.name for loss in result.losses] == ["web_search", "message"]


def test_the_header_names_what_was_ignored_or_adapted() -> None:
    losses = [
        Loss("tool", "function", "preserved"),
        Loss("tool", "web_search", "ignored", "a"),
        Loss("tool", "web_search", "ignored", "b"),
        Loss("parameter", "service_tier", "ignored"),
        Loss("item", "custom_tool_call", "adapted"),
    ]
    assert header_value(losses) == 'ignored="tool:web_search parameter:service_tier", adapted="item:custom_tool_call"'
    assert header_value(losses[:1]) == ""


@pytest.mark.parametrize("limit", [60, 100, 512])
def test_the_header_is_bounded(limit: int) -> None:
    value = header_value(support(), limit)
    assert len(value) <= limit
    assert value.isascii()
    assert value.isprintable()
    assert "more=" in value


def test_reports_name_only_what_the_table_knows() -> None:
    assert len({(loss.kind, loss.name, loss.outcome) for loss in support()}) == len(support())
    assert all(loss.name.isascii() for loss in support())


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"tools": [function(), {"type": "web_search"}]}, "tools[1]"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"reasoning": {"effort": "bogus"}}, "reasoning.effort"),
        ({"store": True}, "store"),
        ({"moderation": {"model": "x"}}, "moderation"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_strict_mode_refuses_what_would_be_lost(parameters: dict[str, Any], param: str) -> None:
    assert refusal(policy=STRICT, **parameters).param == param


@pytest.mark.parametrize("item", [{"type": "compaction", "encrypted_content": "x"}, {"type": "acme:thing"}])
def test_strict_mode_refuses_items_that_would_be_lost(item: Item) -> None:
    assert refusal(user(), item, policy=STRICT).param == "input[1]"


def test_strict_mode_lets_hints_pass() -> None:
    result = chat_request(
        user(),
        {"type": "reasoning", "summary": [], "encrypted_content": "x"},
        policy=STRICT,
        service_tier="flex",
        prompt_cache_key="k",
        client_metadata={"a": "b"},
        include=["reasoning.encrypted_content"],
        truncation="auto",
        top_logprobs=2,
    )
    assert {loss.outcome for loss in result.losses} == {"preserved", "ignored"}
