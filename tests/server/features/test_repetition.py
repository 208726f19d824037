"""A model that repeats itself is told, and a text that repeats itself is ended, where the settings say so."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.request.repeated_calls import NOTICE
from tests.judges import judge_message
from tests.server.features.agent_cases import CASES, CODEX, answer_of, pieces, request_of
from tests.server.hosted.model import model, says
from tests.server.running_gateway import ask, post, run

READ: dict[str, Any] = {"type": "function", "name": "read_file", "parameters": {"type": "object"}}
USER = {"role": "user", "content": "go"}


def ran(number: int, *, output: Any = "x = 1", name: str = "read_file", path: str = "a.py") -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "call_id": f"c{number}", "name": name, "arguments": f'{{"path": "{path}"}}'},
        {"type": "function_call_output", "call_id": f"c{number}", "output": output},
    ]


def together(*calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [USER, *(item for call in calls for item in call)]


async def notices(items: list[dict[str, Any]], **settings: Any) -> list[int]:
    """Return which of the messages of the chat request have a notice."""
    async with model(says("Well."), **{"repetition_notice": True, **settings}) as (served, talking):
        await post(served, input=items, tools=[READ], headers=CODEX)
        messages = talking.requests[0]["messages"]
        return [place for place, message in enumerate(messages) if NOTICE in str(message["content"])]


@pytest.mark.parametrize(
    ("items", "told"),
    [
        (together(*(ran(number) for number in range(4))), []),
        (together(*(ran(number) for number in range(5))), [10]),
        (together(*(ran(number) for number in range(9))), [10]),
        (together(*(ran(number, output=[{"type": "input_text", "text": "x"}]) for number in range(5))), [10]),
        (together(*(ran(number, output=f"x = {number}") for number in range(9))), []),
        (together(*(ran(number, path=f"{number}.py") for number in range(9))), []),
        (together(*(ran(number, name="write_stdin") for number in range(9))), []),
        (together(*(ran(number, name="TaskOutput") for number in range(9))), []),
        (together(*(ran(number, path="ab"[number % 2]) for number in range(12))), [18, 20]),
        (together(*(ran(number) for number in range(4)), [USER], ran(9)), []),
        (together(*(ran(number) for number in range(6)), *(ran(number, path=f"{number}") for number in range(6, 12))), []),
    ],
)
def test_the_model_is_told_once_behind_the_fifth_output(items: list[dict[str, Any]], told: list[int]) -> None:
    async def test() -> None:
        assert await notices(items) == told
        assert await notices(items, repetition_notice=False) == []

    run(test())


def test_a_case_of_identical_calls() -> None:
    case = CASES["L01"]

    async def test() -> None:
        async with model(answer_of(case), says("Well."), repetition_notice=True) as (served, talking):
            asked = request_of(case)
            answer = await post(served, asked, headers=CODEX)
            (made,) = answer.final["output"]
            assert made["arguments"] == '{"path":"a.py"}'
            output = {"type": "function_call_output", "call_id": made["call_id"], "output": "x = 1\n"}
            earlier = [{**item, "arguments": '{"path":"a.py"}'} if "arguments" in item else item for item in asked["input"]]
            await post(served, {**asked, "input": [*earlier, made, output]}, headers=CODEX)
            first, second = (str(request["messages"]).count(NOTICE[:40]) for request in talking.requests)
            assert (first, second) == (0, 1)
            assert NOTICE in talking.requests[1]["messages"][-1]["content"]
            assert served.metric("repeated_calls_total", model="simulator", action="noticed") == 1

    run(test())


def test_messages_get_it_too() -> None:
    async def test() -> None:
        async with model(says("Well."), repetition_notice=True) as (served, talking):
            messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
            for number in range(5):
                use = {"type": "tool_use", "id": f"toolu_{number}", "name": "read_file", "input": {"path": "a"}}
                messages.append({"role": "assistant", "content": [use]})
                result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "x"}
                messages.append({"role": "user", "content": [result]})
            tool = {"name": "read_file", "input_schema": {"type": "object"}}
            await ask(
                served, "POST", "/v1/messages", json={"model": "m", "max_tokens": 9, "messages": messages, "tools": [tool]}
            )
            assert NOTICE in talking.requests[0]["messages"][-1]["content"]

    run(test())


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("field", ["content", "reasoning"])
def test_a_loop_of_text_is_ended(on: bool, stream: bool, field: str) -> None:
    case = CASES["L04"]
    line = case["output"]["chunks"][1]["choices"][0]["delta"]["content"]
    answer = pieces(*[{field: line}] * 120, finish="length")

    async def test() -> None:
        async with model(answer, end_text_loops=on) as (served, _):
            response = await post(served, request_of(case) | {"stream": stream}, headers=CODEX)
            final = response.final if stream else response.json
            assert final["status"] == "incomplete"
            assert final["incomplete_details"] == {"reason": "max_output_tokens"}
            (item,) = final["output"]
            copies = item["content"][0]["text"].count(line.strip())
            assert (20 <= copies < 100) if on else copies == 120
            assert served.metric("turn_outcomes_total", model="simulator", outcome="length") == 1
            assert served.metric("repairs_total", kind="text_loop_ended") == on

    run(test())


def test_messages_end_it_as_at_a_limit() -> None:
    answer = pieces(*[{"content": "again and again "}] * 400)

    async def test() -> None:
        async with model(answer, end_text_loops=True) as (served, _):
            asked = {"model": "m", "max_tokens": 999, "messages": [{"role": "user", "content": "hi"}], "stream": True}
            response = await ask(served, "POST", "/v1/messages", json=asked)
            assert judge_message(response.body) == []
            assert b'"stop_reason":"max_tokens"' in response.body
            assert response.body.count(b"again and") < 400

    run(test())
