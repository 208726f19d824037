"""What the model said in the turns of a response reads the same later: each chat request begins with all of the one before."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway import Translator
from responses_gateway.request import Policy, translate
from responses_gateway.request.tools.hosted_tools import HostedTools, OfferedTool
from responses_gateway.request.turns import GO_ON, RunCall, with_approved, with_nudge, with_turn
from responses_gateway.stream.items.hosted import CallOutcome, HostedOptions
from responses_gateway.stream.options import StreamOptions
from responses_gateway.wire.hosted import KeptResult
from responses_gateway.wire.hosted_kinds import HOSTED_CALLS
from responses_gateway.wire.requests import parse_request
from tests.stream.stream_player import calls_to_run, wants_turn

TOKEN = "0123456789abcdef0123456789abcdef"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}
HOSTED = HostedTools(frozenset({"web_search"}), {"tools[1]": [OfferedTool("add", "", SCHEMA)]})
TOOLS = [
    {"type": "web_search"},
    {"type": "mcp", "server_label": "docs"},
    {"type": "function", "name": "clock", "parameters": SCHEMA},
    {"type": "function", "name": "weather", "parameters": SCHEMA, "async": True},
]
POLICY = Policy()

# A turn of the model: its thought, its text, and the tools that it calls at once.
turns = st.lists(
    st.tuples(
        st.sampled_from(["", "Hm."]),
        st.sampled_from(["", "Let me see."]),
        st.lists(st.sampled_from(["web_search", "docs__add", "weather"]), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=4,
)
last_turns = st.lists(st.sampled_from(["web_search", "docs__add", "weather", "clock"]), max_size=3)


def body_of(items: list[Any], results: dict[str, KeptResult]) -> dict[str, Any]:
    asked = parse_request({"model": "m", "input": items, "tools": TOOLS})
    return translate(asked, POLICY, hosted=HOSTED, results=results).body


def stream(thought: str, text: str, names: list[str]) -> bytes:
    """Return a turn as a backend streams it."""
    deltas: list[dict[str, Any]] = [{"reasoning": thought}, {"content": text}]
    for index, name in enumerate(names):
        arguments = '{"queries":["x"]}' if name == "web_search" else '{ "a":1 }'
        function = {"name": name, "arguments": arguments}
        deltas.append({"tool_calls": [{"index": index, "id": f"c{index}", "type": "function", "function": function}]})
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls" if names else "stop"})
    chunks = (json.dumps({"id": "x", "object": "chat.completion.chunk", "choices": [choice]}) for choice in choices)
    return b"".join(b"data: %b\n\n" % chunk.encode() for chunk in [*chunks, "[DONE]"])


@given(turns, last_turns)
def test_each_request_begins_with_the_one_before_it(earlier: list[tuple[str, str, list[str]]], last: list[str]) -> None:
    question = {"type": "message", "role": "user", "content": "Hi"}
    first = translate(parse_request({"model": "m", "input": [question], "tools": TOOLS}), POLICY, hosted=HOSTED)
    options = StreamOptions(f"resp_{TOKEN}", "m", tools=first.tools, hosted=HostedOptions())
    translator = Translator(options, lambda: 0.0)
    translator.start()
    body = first.body
    results: dict[str, KeptResult] = {}
    count = 0
    for thought, text, names in [*earlier, ("Done.", "Well.", last)]:
        translator.feed(stream(thought, text, names))
        translator.finish()
        while found := calls_to_run(translator):
            count += 1
            item = {"output": f"result {count}"} if found[0].target.kind == "mcp" else {}
            began = len(translator.writer.done)
            translator.finish_call(CallOutcome(item))
            done = msgspec.json.decode(translator.writer.done[began])
            results[done["id"]] = KeptResult(found[0].arguments, f"result {count}")
        if not wants_turn(translator):
            break
        said: list[Any] = []
        for done in map(msgspec.json.decode, translator.writer.done[translator.lifecycle.turn.first_item :]):
            if done["type"] in HOSTED_CALLS:
                kept = results[done["id"]]
                name = "web_search" if done["type"] == "web_search_call" else "docs__add"
                said.append(RunCall(done["id"], name, kept.arguments, kept.text))
            else:
                said.append(done)
        body = with_turn(body, said, POLICY)
        translator.next_turn(None)
    output = [msgspec.json.decode(item) for item in translator.response.output]
    made = [item for item in output if item["type"] == "function_call" and "async" not in item]
    answers = [{"type": "function_call_output", "call_id": item["call_id"], "output": "noon"} for item in made]
    of_searches = {key: value for key, value in results.items() if key.startswith("ws_")}
    later = body_of([question, *output, *answers, question], of_searches)["messages"]
    assert later[: len(body["messages"])] == body["messages"]
    # The turn that the client has to answer is one message, too.
    behind = later[len(body["messages"]) :]
    assert [message["role"] for message in behind].count("assistant") == (not last or "clock" in last)
    told = [message["tool_call_id"] for message in behind if message["role"] == "tool"]
    assert told == [call["id"] for message in behind for call in message.get("tool_calls", ())]


def test_an_approved_call_of_a_history_that_was_summarised_is_shown_behind_the_summary() -> None:
    body = {"messages": [{"role": "user", "content": "The summary."}]}
    _, said, told = with_approved(body, [RunCall("mcpr_1", "docs__add", '{"a": 1}', "3")], POLICY)["messages"]
    assert said["tool_calls"][0]["function"] == {"name": "docs__add", "arguments": '{"a": 1}'}
    assert (told["tool_call_id"], told["content"]) == ("mcpr_1", "3")


@pytest.mark.parametrize("body", [{"tools": [{}]}, {}])
def test_the_model_answers_where_the_approved_calls_were_the_last(body: dict[str, Any]) -> None:
    asked = {"messages": [{"role": "tool", "tool_call_id": "mcpr_1", "content": ""}], **body}
    following = with_approved(asked, [RunCall("mcpr_1", "docs__add", "{}", "3")], POLICY, may_call=False)
    assert following["messages"][0]["content"] == "3"
    assert following.get("tool_choice") == ("none" if body else None)


APPROVAL = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "docs", "name": "add", "arguments": "{}"}
MADE = {"type": "mcp_call", "id": "mcp_1", "server_label": "docs", "name": "add", "arguments": "{}", "output": "3"}


def decided(approve: bool) -> dict[str, Any]:
    return {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": approve}


@pytest.mark.parametrize(
    ("items", "to_run", "told"),
    [
        ([decided(True)], ["mcpr_1"], "It was not run yet."),
        ([decided(True), decided(False)], [], "did not approve"),
        ([decided(False), decided(True)], ["mcpr_1"], "It was not run yet."),
        ([decided(True), {**MADE, "approval_request_id": "mcpr_1"}, decided(True)], [], "3"),
        ([decided(True), {**MADE, "approval_request_id": "mcpr_1"}, decided(False)], [], "3"),
        ([MADE], [], "3"),
    ],
)
def test_the_last_decision_counts_until_the_call_was_made(items: list[Any], to_run: list[str], told: str) -> None:
    result = translate(parse_request({"model": "m", "input": [APPROVAL, *items], "tools": TOOLS}), POLICY, hosted=HOSTED)
    assert [call.request_id for call in result.approved] == to_run
    (message,) = [message for message in result.body["messages"] if message["role"] == "tool"]
    assert told in message["content"]


SIGNED = {"extra_content": {"google": {"thought_signature": "U2ln"}}}


def test_details_go_back_in_the_order_in_which_they_came() -> None:
    signed = [{"type": "reasoning.text", "text": text, "index": at, "signature": "U2"} for at, text in enumerate("ab")]
    thoughts = [{"type": "reasoning", "summary": [], "reasoning_details": [detail]} for detail in reversed(signed)]
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    body = translate(parse_request({"model": "m", "input": [thoughts[0], call, thoughts[1]]}), POLICY).body
    assert [message["reasoning_details"] for message in body["messages"] if "reasoning_details" in message] == [signed]


@pytest.mark.parametrize(
    "items",
    [
        [{**APPROVAL, **SIGNED}, decided(True)],
        [{**APPROVAL, **SIGNED}, decided(False)],
        [{**APPROVAL, **SIGNED}, decided(True), {**MADE, "approval_request_id": "mcpr_1"}],
        [{**MADE, **SIGNED}],
        [{"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "q"}, **SIGNED}],
    ],
)
def test_what_the_server_wants_back_with_a_call_goes_back(items: list[Any]) -> None:
    kept = {"ws_1": KeptResult('{"query":"q"}', "found")}
    request = parse_request({"model": "m", "input": items, "tools": TOOLS})
    body = translate(request, POLICY, hosted=HOSTED, results=kept).body
    (call,) = [call for message in body["messages"] for call in message.get("tool_calls", [])]
    assert call["extra_content"] == SIGNED["extra_content"]


def test_calls_of_further_turns_are_numbered_on_where_the_template_reads_their_ids() -> None:
    policy = Policy(call_ids="numbered")
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
    for turn in range(2):
        body = with_turn(body, [RunCall(f"ws_{turn}", "web_search", "{}", "found")], policy)
    assert [message.get("tool_call_id") for message in body["messages"][1:]] == [
        None, "functions.web_search:0", None, "functions.web_search:1",
    ]  # fmt: skip
    waiting = with_turn(body, [RunCall("mcpr_1", "pay", "{}", "")], policy)
    done = with_approved(waiting, [RunCall("mcpr_1", "pay", "{}", "paid")], policy)
    assert done["messages"][-1] == {"role": "tool", "tool_call_id": "mcpr_1", "content": "paid"}


def test_a_turn_that_ended_early_is_followed_by_one_user_message_and_the_same_tools() -> None:
    body = {**body_of([{"role": "user", "content": "Do it."}], {}), "tool_choice": "required"}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I will."}]}
    call = {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{"}
    following = with_nudge(body, [said, call], POLICY)
    assert [message["role"] for message in following["messages"]] == ["user", "assistant", "user"]
    assert following["messages"][-1]["content"] == GO_ON
    assert following["tools"] == body["tools"]
    assert following["tool_choice"] == "required"
    assert "tool_choice" not in with_nudge({"messages": body["messages"]}, [said], POLICY)
