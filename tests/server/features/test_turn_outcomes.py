"""What the turns of a model with tools come to is counted, and logged, whatever becomes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from tests.log_lines import log_lines
from tests.server.features.agent_cases import CASES, CODEX, answer_of, calling, pieces, request_of, settings_of
from tests.server.hosted.model import model
from tests.server.running_gateway import Served, ask, post, run

ENDS = [case for case in CASES.values() if case["topic"] in (1, 2)]
READ: dict[str, Any] = {"type": "function", "name": "read_file", "parameters": {"type": "object"}}


def outcomes(served: Served) -> Mapping[str, int]:
    """Return what was counted, of all models."""
    served.parts.metrics.flush()
    found: Counter[str] = Counter()
    for family in served.parts.metrics.registry.collect():
        for sample in family.samples:
            if sample.name == "responses_gateway_turn_outcomes_total":
                found[sample.labels["outcome"]] += int(sample.value)
    return found


@pytest.mark.parametrize("case", ENDS, ids=[case["id"] for case in ENDS])
def test_a_case_is_counted_and_changes_nothing(case: dict[str, Any]) -> None:
    async def test() -> None:
        async with model(answer_of(case), access_log=True, **settings_of(case)) as (served, talking):
            answer = await post(served, request_of(case), headers=CODEX)
            assert len(talking.requests) == 1
            off = case["want"]["off"]
            if "items" in off:
                assert [item["type"] for item in answer.final["output"]] == off["items"]
            assert answer.final["status"] == off.get("status", "completed")
            assert outcomes(served) == {case["want"]["class"]: 1}

    with log_lines() as written:
        run(test())
        (line,) = written("response")
    assert line["turn_outcome"] == case["want"]["class"]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (pieces(calling("read_file", '{"path": "a"}'), finish="tool_calls"), "call"),
        (pieces(calling("read_file", '{"path": "a"'), finish="tool_calls"), "malformed_call"),
        (pieces({"content": "It is done."}), "final"),
        (pieces(), "empty"),
        (pieces({"content": " \n"}), "empty"),
        (pieces(finish="tool_calls"), "finish_without_call"),
        (pieces({"content": "Now <tool_call>"}), "malformed_call"),
        (pieces({"reasoning": 'So: <tool_call>{"name": "read_file", "arguments": {}}</tool_call>'}), "call_in_thought"),
        (pieces({"reasoning": 'I write `<tool_call>{"name": "read_file"}</tool_call>`.'}), "reasoning_only"),
        (pieces({"content": "I wri"}, finish="length"), "length"),
    ],
)
def test_answers_are_told_apart_at_both_doors(answer: list[bytes], outcome: str) -> None:
    async def test() -> None:
        async with model(answer) as (served, _):
            await post(served, tools=[READ])
            tool = {"name": "read_file", "input_schema": {"type": "object"}}
            asked = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}], "tools": [tool]}
            await ask(served, "POST", "/v1/messages", json=asked)
            assert outcomes(served) == {outcome: 2}

    run(test())


@pytest.mark.parametrize(
    ("text", "announced"),
    [
        ("The key is missing. Let me open parser.py to fix it:", True),
        ("The key is missing. **Now I will run `make test`.**", True),
        ("OK. Let me check `a.b.py` now.", True),
        ("Let me know if I am to run it.", False),
        ("I will run it once you have merged the change.", False),
        ("I ran it. Now I will run it again. Shall I?", False),
        ("Next:\n\n- run it\n- I will read the log:", False),
        ("x" * 500 + ":", False),
    ],
)
def test_a_step_is_announced_only_in_the_middle_of_the_work(text: str, announced: bool) -> None:
    async def test() -> None:
        async with model(pieces({"content": text})) as (served, _):
            await post(served, tools=[READ], input=[{"role": "user", "content": "go"}, *ran(1, "x")])
            await post(served, tools=[READ])
            assert outcomes(served) == ({"announced": 1, "final": 1} if announced else {"final": 2})

    run(test())


def test_requests_without_tools_and_answers_that_broke_are_not_counted() -> None:
    async def test() -> None:
        async with model(pieces(), pieces({"content": "x"}, finish="content_filter"), 500) as (served, _):
            await post(served)
            await post(served, tools=[READ])
            await post(served, tools=[READ])
            assert outcomes(served) == {}

    run(test())


def ran(number: int, output: str, name: str = "read_file", path: str = "a") -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "call_id": f"c{number}", "name": name, "arguments": f'{{"path": "{path}"}}'},
        {"type": "function_call_output", "call_id": f"c{number}", "output": output},
    ]


@pytest.mark.parametrize(
    ("items", "counted", "polled"),
    [
        (ran(1, "x"), 0, 0),
        (ran(1, "x") + ran(2, "x"), 1, 0),
        (ran(1, "x") + ran(2, "y"), 0, 0),
        (ran(1, "x") + ran(2, "x", path="b"), 0, 0),
        (ran(1, "x") + ran(2, "z", path="b") + ran(3, "x"), 1, 0),
        (ran(1, "") + ran(2, "", name="write_stdin") + ran(3, "", name="write_stdin"), 0, 1),
        ([*ran(1, "x"), {"role": "user", "content": "again"}, *ran(2, "x")], 0, 0),
    ],
)
def test_a_call_with_the_same_output_once_more_is_counted(items: list[dict[str, Any]], counted: int, polled: int) -> None:
    async def test() -> None:
        async with model(pieces({"content": "Well."})) as (served, _):
            await post(served, tools=[READ], input=[{"role": "user", "content": "go"}, *items])
            assert served.metric("repeated_calls_total", model="simulator", action="counted") == counted
            assert served.metric("repeated_calls_total", model="simulator", action="polled") == polled

    run(test())
