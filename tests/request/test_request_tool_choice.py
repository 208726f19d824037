"""`tool_choice`, `parallel_tool_calls` and `max_tool_calls`: what is sent, and which calls are allowed."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.request import Policy
from tests.request.builders import chat_request, function, outcomes, refusal

TOOLS = [
    function("f"),
    function("g"),
    {"type": "custom", "name": "patch"},
    {"type": "shell"},
    {"type": "namespace", "name": "ns", "tools": [function("h"), function("f")]},
    {"type": "web_search"},
]
NAMES = ["f", "g", "patch", "shell", "ns__h", "ns__f"]


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def test_no_choice() -> None:
    result = chat_request(tools=TOOLS)
    assert "tool_choice" not in result.body
    assert (result.allowed, result.max_calls) == (None, None)


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_modes_are_passed(choice: str) -> None:
    result = chat_request(tools=TOOLS, tool_choice=choice)
    assert result.body["tool_choice"] == choice
    assert result.allowed is None


def test_none_allows_no_call() -> None:
    result = chat_request(tools=TOOLS, tool_choice="none")
    assert result.body["tool_choice"] == "none"
    assert [tool["function"]["name"] for tool in result.body["tools"]] == NAMES
    assert result.allowed == frozenset()


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ({"type": "function", "name": "f"}, "f"),
        ({"type": "function", "name": "f", "namespace": "ns"}, "ns__f"),
        ({"type": "function", "name": "h"}, "ns__h"),
        ({"type": "custom", "name": "patch"}, "patch"),
        ({"type": "shell"}, "shell"),
    ],
)
def test_a_tool_by_name(choice: dict[str, Any], name: str) -> None:
    result = chat_request(tools=TOOLS, tool_choice=choice)
    assert result.body["tool_choice"] == named(name)
    assert result.allowed == frozenset({name})
    assert len(result.body["tools"]) == len(NAMES)


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ("sometimes", "tool_choice"),
        ({}, "tool_choice.type"),
        ({"type": "function"}, "tool_choice.name"),
        ({"type": "function", "name": "x"}, "tool_choice.name"),
        ({"type": "function", "name": "patch"}, "tool_choice.name"),
        ({"type": "function", "name": "f", "namespace": "x"}, "tool_choice.name"),
        ({"type": "apply_patch"}, "tool_choice.type"),
        ({"type": "file_search"}, "tool_choice.type"),
        ({"type": "acme"}, "tool_choice.type"),
        ({"type": "allowed_tools"}, "tool_choice.tools"),
        ({"type": "allowed_tools", "tools": []}, "tool_choice.tools"),
        ({"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}] * 129}, "tool_choice.tools"),
        ({"type": "allowed_tools", "tools": [{"type": "function", "name": "x"}]}, "tool_choice.tools[0].name"),
        ({"type": "allowed_tools", "tools": ["f"]}, "tool_choice.tools[0]"),
        ({"type": "allowed_tools", "mode": "x", "tools": [{"type": "function", "name": "f"}]}, "tool_choice.mode"),
        ({"type": "allowed_tools", "mode": 3, "tools": [{"type": "function", "name": "f"}]}, "tool_choice.mode"),
    ],
)
def test_a_choice_of_what_is_not_there_is_refused(choice: Any, param: str) -> None:
    error = refusal(tools=[function("f"), function("x2"), *TOOLS[2:]], tool_choice=choice)
    assert error.param == param


def test_a_name_in_two_namespaces_needs_its_namespace() -> None:
    tools = [{"type": "namespace", "name": name, "tools": [function("t")]} for name in ("a", "b")]
    assert refusal(tools=tools, tool_choice={"type": "function", "name": "t"}).param == "tool_choice.name"


@pytest.mark.parametrize("mode", [None, "auto", "required"])
def test_allowed_tools_are_the_only_ones_sent_and_let_through(mode: str | None) -> None:
    allowed = [{"type": "function", "name": "g"}, {"type": "custom", "name": "patch"}, {"type": "web_search"}]
    result = chat_request(tools=TOOLS, tool_choice={"type": "allowed_tools", "mode": mode, "tools": allowed})
    assert [tool["function"]["name"] for tool in result.body["tools"]] == ["g", "patch"]
    assert result.body["tool_choice"] == (mode or "auto")
    assert result.allowed == frozenset({"g", "patch"})
    assert list(result.tools) == NAMES
    assert "parameter tool_choice ignored" in outcomes(result)


def test_no_allowed_tools_left() -> None:
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]}
    result = chat_request(tools=TOOLS, tool_choice=choice)
    assert "tools" not in result.body
    assert result.allowed == frozenset()


def test_allowed_tools_may_also_forbid_all() -> None:
    choice = {"type": "allowed_tools", "mode": "none", "tools": [{"type": "function", "name": "f"}]}
    assert chat_request(tools=TOOLS, tool_choice=choice).allowed == frozenset()


@pytest.mark.parametrize("kind", ["web_search", "web_search_preview"])
def test_a_hosted_tool_cannot_be_forced(kind: str) -> None:
    result = chat_request(tools=TOOLS, tool_choice={"type": kind})
    assert "tool_choice" not in result.body
    assert result.allowed is None
    assert "parameter tool_choice ignored" in outcomes(result)


def test_required_without_tools_is_on_record() -> None:
    result = chat_request(tools=[{"type": "web_search"}], tool_choice="required")
    assert "tool_choice" not in result.body
    assert "parameter tool_choice ignored" in outcomes(result)
    assert refusal(tool_choice="required", policy=Policy(strict=True)).param == "tool_choice"


@pytest.mark.parametrize(
    ("parallel", "most", "expected"),
    [(None, None, (None, True)), (True, 3, (3, True)), (False, None, (None, False)), (False, 3, (3, False))],
)
def test_the_number_of_calls(parallel: Any, most: Any, expected: Any) -> None:
    result = chat_request(tools=TOOLS, parallel_tool_calls=parallel, max_tool_calls=most)
    assert (result.max_calls, result.parallel_calls) == expected
    assert result.body.get("parallel_tool_calls") is parallel
    assert "max_tool_calls" not in result.body


def test_a_named_tool_for_servers_that_know_strings_alone() -> None:
    result = chat_request(
        policy=Policy(named_tool_choice="required"), tools=TOOLS, tool_choice={"type": "function", "name": "g"}
    )
    assert result.body["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in result.body["tools"]] == ["g"]
    assert result.allowed == {"g"}
    assert result.echo["tool_choice"] == {"type": "function", "name": "g"}
    other = chat_request(policy=Policy(named_tool_choice="required"), tools=TOOLS, tool_choice="required")
    assert (other.body["tool_choice"], len(other.body["tools"])) == ("required", len(NAMES))
