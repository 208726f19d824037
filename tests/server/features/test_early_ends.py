"""A model that ends its turn too early is asked to go on, within the same response and within bounds: `continue_early_ends`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from responses_gateway.request.turns import GO_ON
from tests.judges import judge_message
from tests.server.features.agent_cases import CASES, CODEX, answer_of, calling, pieces, request_of, settings_of
from tests.server.hosted.model import DOCS, MCP, Turn, calls, model, says
from tests.server.running_gateway import Answer, Served, ask, gateway, post, run
from tests.server.scripted_backend import HEAD, Backend, Connection, backend, chunk

ENDS = [case for case in CASES.values() if case["topic"] in (1, 2)]
READ: dict[str, Any] = {"type": "function", "name": "read_file", "parameters": {"type": "object"}}
CALL = pieces(calling("read_file", '{"path": "a"}'), finish="tool_calls", usage=(20, 7))
THOUGHT = pieces({"reasoning": "I have to open it."}, usage=(10, 5))
EMPTY = pieces(usage=(10, 1))
ASKS = pieces({"content": "Shall I?"}, finish="tool_calls")
TASK: list[dict[str, Any]] = [
    {"role": "user", "content": "Make the tests pass."},
    {"type": "function_call", "call_id": "c1", "name": "read_file", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "1 failed"},
]
REQUEST: dict[str, Any] = {"input": TASK, "tools": [READ], "headers": CODEX}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 99,
    "tools": [{"name": "read_file", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": "Make the tests pass."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "1 failed"}]},
    ],
}


def early_ends(served: Served) -> Mapping[tuple[str, str, str], int]:
    """Return what was counted: kind, action, outcome."""
    served.parts.metrics.flush()
    found: Counter[tuple[str, str, str]] = Counter()
    for family in served.parts.metrics.registry.collect():
        for sample in family.samples:
            if sample.name == "responses_gateway_early_ends_total":
                labels = sample.labels
                found[labels["kind"], labels["action"], labels["outcome"]] += int(sample.value)
    return found


def types(answer: Answer) -> list[str]:
    """Return the types of the items of a response."""
    return [item["type"] for item in answer.final["output"]]


@pytest.mark.parametrize("setting", ["certain", "all"])
@pytest.mark.parametrize("case", ENDS, ids=[case["id"] for case in ENDS])
def test_a_case_is_continued_where_it_is_to_be(case: dict[str, Any], setting: str) -> None:
    name = case["tools"][0]["name"]
    wanted = case["want"]
    continued = wanted["on"]["action"] == "continue" and (setting == "all" or wanted["class"] != "announced")

    async def test() -> None:
        second = pieces(calling(name, '{"cmd": "ls"}'), finish="tool_calls")
        settings = settings_of(case)
        if settings:
            text = f'<tool_call>{{"name": "{name}", "arguments": {{"cmd": "ls"}}}}</tool_call>'
            second = pieces({"content": f"</think>{text}"})
        async with model(answer_of(case), second, continue_early_ends=setting, **settings) as (served, talking):
            answer = await post(served, request_of(case), headers=CODEX)
            assert len(talking.requests) == 1 + continued
            final = answer.final
            made = [item for item in final["output"] if item["type"] == "function_call"]
            assert [json.loads(call["arguments"]) for call in made] == ([{"cmd": "ls"}] if continued else [])
            assert final["status"] == ("completed" if continued else wanted["off"].get("status", "completed"))
            if continued:
                assert early_ends(served) == {(wanted["class"], "continue", "call"): 1}
                assert talking.requests[1]["messages"][-1] == {"role": "user", "content": GO_ON}
                kinds = [item["type"] for item in final["output"]]
                assert kinds[-1] == "function_call"

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_the_items_follow_and_the_usage_is_that_of_the_last_request(stream: bool) -> None:
    async def test() -> None:
        async with model(THOUGHT, CALL, continue_early_ends="certain") as (served, talking):
            answer = await post(served, REQUEST | {"stream": stream})
            final = answer.final if stream else answer.json
            assert [item["type"] for item in final["output"]] == ["reasoning", "function_call"]
            assert final["usage"]["input_tokens"] == 20
            assert final["usage"]["output_tokens"] == 7
            assert final["usage"]["output_tokens_details"]["reasoning_tokens"] == 0
            assert served.metric("tokens_total", model="simulator", kind="output") == 12
            first, second = talking.requests
            assert second["messages"][: len(first["messages"])] == first["messages"]
            assert second["messages"][-1] == {"role": "user", "content": GO_ON}
            assert {**second, "messages": 0} == {**first, "messages": 0}

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_messages_go_on_as_well(stream: bool) -> None:
    async def test() -> None:
        async with model(THOUGHT, CALL, continue_early_ends="certain") as (served, talking):
            answer = await ask(served, "POST", "/v1/messages", json={**MESSAGES, "stream": stream})
            assert len(talking.requests) == 2
            if stream:
                assert judge_message(answer.body) == []
                assert b"tool_use" in answer.body
            else:
                assert [block["type"] for block in answer.json["content"]] == ["tool_use"]  # it has not asked for thoughts
                assert answer.json["stop_reason"] == "tool_use"
                assert answer.json["usage"]["output_tokens"] == 7

    run(test())


@pytest.mark.parametrize(
    ("turns", "asked", "items", "counted"),
    [
        ([THOUGHT, says("It is done.")], 2, ["reasoning", "message"], {("reasoning_only", "continue", "text"): 1}),
        (
            [THOUGHT, THOUGHT, CALL],
            2,
            ["reasoning", "reasoning"],
            {("reasoning_only", "continue", "same"): 1, ("reasoning_only", "none", "none"): 1},
        ),
        (
            [THOUGHT, EMPTY, pieces({"reasoning": "Well."}), CALL],
            3,
            ["reasoning", "reasoning"],
            {
                ("reasoning_only", "continue", "gave_up"): 1,
                ("empty", "continue", "gave_up"): 1,
                ("reasoning_only", "none", "none"): 1,
            },
        ),
        ([EMPTY, EMPTY, CALL], 2, [], {("empty", "continue", "same"): 1, ("empty", "none", "none"): 1}),
        (
            [pieces({"content": "Shall I?"}, finish="tool_calls"), CALL],
            1,
            ["message"],
            {("finish_without_call", "none", "none"): 1},
        ),
        ([pieces({"reasoning": "So"}, finish="length"), CALL], 1, ["reasoning"], {}),
        ([CALL, CALL], 1, ["function_call"], {}),
    ],
)
def test_bounds(turns: list[Turn], asked: int, items: list[str], counted: dict[Any, int]) -> None:
    async def test() -> None:
        async with model(*turns, continue_early_ends="certain") as (served, talking):
            answer = await post(served, REQUEST)
            assert types(answer) == items
            assert len(talking.requests) == asked
            assert early_ends(served) == counted

    run(test())


@pytest.mark.parametrize("body", [{"tools": []}, {"tool_choice": "none"}, {"max_tool_calls": 0}])
def test_a_model_that_may_not_call_is_not_asked(body: dict[str, Any]) -> None:
    async def test() -> None:
        async with model(EMPTY, CALL, continue_early_ends="all") as (served, talking):
            answer = await post(served, REQUEST | body)
            if answer.status == 200:
                assert types(answer) == []
            assert len(talking.requests) <= 1

    run(test())


def test_a_first_thought_may_be_all_that_there_is_to_say() -> None:
    async def test() -> None:
        async with model(THOUGHT, CALL, continue_early_ends="all") as (served, talking):
            answer = await post(served, tools=[READ])
            assert types(answer) == ["reasoning", "message"]
            assert len(talking.requests) == 1

    run(test())


BROKEN = [chunk({"role": "assistant", "content": ""}), chunk({"content": "Now I"})]
FAILING: dict[str, tuple[Turn, list[str]]] = {
    "refused": (400, ["reasoning"]),
    "overloaded": (503, ["reasoning"]),
    "empty body": ([], ["reasoning"]),
    "broken": (BROKEN, ["reasoning", "message"]),
    "error": ([b'data: {"error": {"message": "no", "code": 500}}\n\n'], ["reasoning"]),
    "garbage": ([b"data: <html>\n\n"], ["reasoning"]),
    "aborted": (pieces(finish="abort"), ["reasoning"]),
    "cut": (pieces(finish="length"), ["reasoning"]),
    "filtered": (pieces(finish="content_filter"), ["reasoning"]),
}


@pytest.mark.parametrize("failure", FAILING)
@pytest.mark.parametrize("stream", [True, False])
def test_whatever_the_second_request_does_the_answer_ends_as_it_was(failure: str, stream: bool) -> None:
    second, items = FAILING[failure]

    async def test() -> None:
        async with model(THOUGHT, second, continue_early_ends="certain", connect_timeout=1) as (served, talking):
            answer = await post(served, REQUEST | {"stream": stream})
            final = answer.final if stream else answer.json
            assert final["status"] == "completed"
            assert final["error"] is None
            assert [item["type"] for item in final["output"]] == items
            assert final["usage"]["output_tokens"] == 5
            assert len(talking.requests) >= 2
            assert early_ends(served) == {("reasoning_only", "continue", "gave_up"): 1}

    run(test())


def test_a_backend_that_falls_silent_is_left() -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        if len(silent.requests) == 1:
            connection.send(*THOUGHT)
            connection.end()
        else:
            connection.send(chunk({"content": "Now"}))

    async def test() -> None:
        nonlocal silent
        async with backend(play) as silent, gateway(silent.url, continue_early_ends="certain", idle_timeout=0.3) as served:
            answer = await post(served, REQUEST)
            assert answer.final["status"] == "completed"
            assert types(answer) == ["reasoning", "message"]

    silent = Backend("")
    run(test())


def test_a_turn_of_the_users_has_six() -> None:
    async def test() -> None:
        metadata = {"x-codex-turn-metadata": json.dumps({"turn_id": "t1", "session_id": "s1", "thread_id": "s1"})}
        turns: list[Turn] = [THOUGHT, CALL] * 6
        async with model(*turns, THOUGHT, CALL, continue_early_ends="certain") as (served, talking):
            for number in range(7):
                answer = await post(served, REQUEST | {"client_metadata": metadata})
                expected = ["reasoning", "function_call"] if number < 6 else ["reasoning"]
                assert types(answer) == expected
            assert len(talking.requests) == 13

    run(test())


@pytest.mark.slow
def test_a_broken_call_is_made_again_and_handed_over_only_if_it_is_not() -> None:
    cut = pieces({"reasoning": "So."}, calling("read_file", '{"path": "a'), usage=(10, 5))

    async def test() -> None:
        for second, made in ((CALL, '{"path": "a"}'), (500, '{"path": "a'), (EMPTY, '{"path": "a')):
            async with model(cut, second, continue_early_ends="certain") as (served, talking):
                for headers in (CODEX, {}):
                    talking.requests.clear()
                    answer = await post(served, REQUEST | {"headers": headers})
                    whole = [item for item in answer.final["output"] if item["type"] == "function_call"]
                    assert [call["arguments"] for call in whole if call["status"] == "completed"] == [made]
                    assert answer.final["status"] == "completed"
                    assert len(talking.requests) >= 2
        async with model(cut, CALL) as (served, talking):
            answer = await post(served, REQUEST)
            assert answer.final["output"][1]["arguments"] == '{"path": "a'
            assert len(talking.requests) == 1

    run(test())


def test_with_hosted_tools() -> None:
    async def test() -> None:
        turns = [calls(("docs__echo", {"text": "x"})), THOUGHT, calls(("docs__echo", {"text": "y"})), EMPTY, says("Done.")]
        async with model(*turns, mcp_servers=DOCS, continue_early_ends="certain") as (served, talking):
            answer = await post(served, tools=[MCP])
            kinds = [kind for kind in types(answer) if kind != "mcp_list_tools"]
            assert kinds == ["mcp_call", "reasoning", "mcp_call", "message"]
            assert len(talking.requests) == 5
            assert answer.final["usage"]["output_tokens"] == 15  # of the turns that were not early ends

    run(test())
