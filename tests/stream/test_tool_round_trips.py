"""Every tool that a real Codex declares, in any of its versions: offered to the model, called, handed back as exactly the item
that Codex runs, and shown to the model in the next turn as the call that it made."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, NamedTuple

import pytest

from responses_gateway.request import ChatRequest, Policy, translate
from responses_gateway.simulator.schema import example
from responses_gateway.stream.options import CODEX
from responses_gateway.wire.requests import parse_request
from tests.data_folder import BESIDE
from tests.stream.stream_player import ECHO, call, finish, play

Item = dict[str, Any]

FOLDER = BESIDE / "codex" / "requests"
POLICY = Policy(compaction_trigger_prompt="Summarise.")
PATCH = '*** Begin Patch\n*** Add File: a "b"\n+\\n is no line feed, é\n*** End Patch'

pytestmark = [
    pytest.mark.skipif(not FOLDER.exists(), reason="the captured Codex requests are not here"),
    pytest.mark.untraced,  # because other tests run the same lines
]


class Declared(NamedTuple):
    """A tool as the client declared it."""

    kind: str
    name: str
    namespace: str | None

    @property
    def identity(self) -> Item:
        """What names the tool in a call of it."""
        if self.kind == "tool_search":
            return {"type": "tool_search_call", "execution": "client"}
        kind = "custom_tool_call" if self.kind == "custom" else "function_call"
        space = {} if self.namespace is None else {"namespace": self.namespace}
        return {"type": kind, "name": self.name, **space}


def declared(tools: list[Item], namespace: str | None = None) -> list[Declared]:
    found: list[Declared] = []
    for tool in tools:
        if tool["type"] == "namespace":
            found += declared(tool["tools"], tool["name"])
        elif tool["type"] in ("function", "custom", "tool_search"):
            found.append(Declared(tool["type"], tool.get("name", ""), namespace))
    return found


@cache
def requests() -> dict[str, str]:
    """Return the bodies with tools, by the beginning of the capture's name; one that continues another is of no use alone."""
    found = {}
    for path in sorted(FOLDER.glob("*.json")):
        body = json.loads(path.read_bytes()).get("body")
        if body and isinstance(body.get("input"), list) and not body.get("previous_response_id") and lists_of(body):
            found[path.name[:2]] = json.dumps(body)
    return found


def lists_of(body: Item) -> list[Item]:
    """Return all tools of a request, from wherever they are declared."""
    return [tool for place in (body, *body["input"]) for tool in place.get("tools") or []]


def planned(body: Item) -> ChatRequest:
    return translate(parse_request({**body, "store": False}), POLICY)


def arguments_for(tool: Declared, function: Item) -> str:
    if tool.kind == "custom":
        return json.dumps({"input": PATCH})
    return json.dumps(example(function["parameters"]))


@pytest.mark.slow
def test_every_tool_makes_the_round_trip(subtests: pytest.Subtests) -> None:
    for capture, body in requests().items():
        with subtests.test(capture):
            make_round_trips(json.loads(body))


def make_round_trips(body: Item) -> None:
    """Offer and call all tools of a request."""
    plan = planned(body)
    offered = {tool["function"]["name"]: tool["function"] for tool in plan.body.get("tools", [])}
    if not offered:
        assert plan.compacting
        return
    by_identity = {json.dumps(tool.identity): tool for tool in declared(lists_of(body))}
    assert len(offered) == len(by_identity)
    for chat_name, function in offered.items():
        target = plan.tools[chat_name]
        tool = Declared(target.kind, "" if target.kind == "tool_search" else target.name, target.namespace)
        by_identity.pop(json.dumps(tool.identity))  # each declared tool is offered under one name
        item = called(plan, chat_name, arguments_for(tool, function))
        assert {name: item[name] for name in tool.identity} == tool.identity
        others = {"id", "call_id", "status", "input" if tool.kind == "custom" else "arguments"}
        if target.expects_ciphertext:
            others.add("encrypted_function_args")
        assert set(item) - set(tool.identity) == others
        assert item["status"] == "completed"
        shown_again(body, item, chat_name, arguments_for(tool, function))
    assert by_identity == {}


def called(plan: ChatRequest, chat_name: str, arguments: str) -> Item:
    """Return the item for a call, as the client of the capture gets it."""
    played = play(
        call(0, "call_1", chat_name, arguments),
        finish("tool_calls"),
        tools=plan.tools,
        allowed=plan.allowed,
        grammars=plan.grammars,
        client=CODEX,
        echo=ECHO,
    )
    [item] = played.response["output"]
    found: Item = item
    if found["type"] == "custom_tool_call":
        assert found["input"] == PATCH
    else:
        value = found["arguments"]
        assert isinstance(value, dict) is (found["type"] == "tool_search_call")
        assert (json.dumps(value) if isinstance(value, dict) else value) == arguments
    return found


def shown_again(body: Item, item: Item, chat_name: str, arguments: str) -> None:
    """Return the next request, in which the item comes back with the tool's output."""
    answer: Item = {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "It went well."}
    if item["type"] == "tool_search_call":
        answer = {
            "type": "tool_search_output",
            "call_id": item["call_id"],
            "execution": "client",
            "status": "completed",
            "tools": [],
        }
    [*_, made, told] = planned({**body, "input": [*body["input"], item, answer]}).body["messages"]
    [again] = made["tool_calls"][-1:]
    assert again["function"]["name"] == chat_name
    assert json.loads(again["function"]["arguments"]) == json.loads(arguments)
    assert told["role"] == "tool"
    assert told["tool_call_id"] == again["id"]


def test_all_families_and_the_old_versions_are_among_them() -> None:
    kinds = {(tool.kind, tool.namespace) for body in requests().values() for tool in declared(lists_of(json.loads(body)))}
    assert {
        ("function", None),
        ("function", "mcp__tiny"),
        ("function", "mcp__tiny__"),
        ("function", "multi_agent_v1"),
        ("function", "collaboration"),
        ("custom", None),
        ("custom", "functions"),
        ("tool_search", None),
    } <= kinds
    assert {"21", "23", "90", "91", "92", "93"} <= set(requests())
