"""A weak model: which mistakes it makes, how often, and what it says when it is asked again."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import aiohttp
import pytest

from responses_gateway.simulator import SimulatorOptions, WeakModel, create_app, serving
from responses_gateway.simulator.agent import agent
from responses_gateway.simulator.chat_request import ChatRequest
from responses_gateway.simulator.script import CallTool, Say, Script, Think
from responses_gateway.simulator.weak import DEFAULT_RATES, parse_rates, weakened, work_of
from tests.simulator.chat_client import Ask, post

PROPERTIES = {"cmd": {"type": "string"}, "yield_time_ms": {"type": "integer"}}
SHELL = {"type": "function", "function": {"name": "exec_command", "parameters": {"type": "object", "properties": PROPERTIES}}}
NUDGE = {"role": "user", "content": "Your last answer made no call. Continue the task."}
REFUSED = "failed to parse function arguments: invalid type: string"


def task(number: int = 0) -> dict[str, Any]:
    return {"role": "user", "content": f"scenario: agent. Task {number}."}


def called(number: int, arguments: str = "{}") -> dict[str, Any]:
    function = {"name": "exec_command", "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}]}


def result(number: int, text: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


def says(model: WeakModel, *messages: dict[str, Any], **fields: Any) -> Script:
    work = work_of(ChatRequest({"messages": list(messages), "tools": [SHELL], **fields}))
    return weakened(agent(work.request), work, model)


def only(fault: str) -> WeakModel:
    return WeakModel(7, {fault: 100})


def kinds(script: Script) -> list[type]:
    return [type(step) for step in script.steps]


def call_of(script: Script) -> CallTool:
    [call] = [step for step in script.steps if isinstance(step, CallTool)]
    return call


def good(*messages: dict[str, Any]) -> Script:
    return says(WeakModel(0, {}), *messages)


def test_each_fault_is_what_it_is_called() -> None:
    first = good(task())
    assert kinds(says(only("empty"), task())) == []
    assert kinds(says(only("reasoning_only"), task())) == [Think]
    assert kinds(says(only("announced"), task())) == [Think, Say]
    ended = says(only("finish_without_call"), task())
    assert (kinds(ended), ended.finish) == ([Think, Say], "tool_calls")
    [thought] = says(only("call_in_thought"), task()).steps
    assert isinstance(thought, Think)
    assert thought.text.endswith("</tool_call>")
    *_, text = says(only("malformed_call"), task()).steps
    assert isinstance(text, Say)
    assert text.text.startswith("<tool_call>")
    assert "</tool_call>" not in text.text
    assert call_of(first).arguments.startswith(call_of(says(only("cut"), task())).arguments)
    with pytest.raises(ValueError, match="Unterminated"):
        json.loads(call_of(says(only("cut"), task())).arguments)
    assert json.loads(call_of(says(only("stringified"), task())).arguments)["yield_time_ms"] == "10000"
    looped = says(only("text_loop"), task())
    assert looped.finish == "length"
    assert kinds(looped) == [Say]


def test_wrong_names_have_one_reading_or_none() -> None:
    names = {call_of(says(only("wrong_name"), task(number))).name for number in range(40)}
    assert names == {"functions.exec_command", "exec_command:0", "EXEC_COMMAND", "run_anything"}


def test_where_no_argument_is_a_number_a_list_or_everything_is_a_string() -> None:
    argv = {"command": {"type": "array", "items": {"type": "string"}}}
    for properties, expected in ((argv, list), ({"cmd": {"type": "string"}}, dict)):
        shell = {"type": "function", "function": {"name": "shell", "parameters": {"properties": properties}}}
        written = json.loads(call_of(says(only("stringified"), task(), tools=[shell])).arguments)
        stringified = written if expected is dict else written["command"]
        assert isinstance(stringified, str)
        assert isinstance(json.loads(stringified), expected)


def test_the_rates_are_those_of_the_answers() -> None:
    model = WeakModel(1)
    changed = sum(says(model, task(number)) != good(task(number)) for number in range(1000))
    assert changed == pytest.approx(10 * sum(DEFAULT_RATES.values()), abs=40)


def test_seed_and_conversation_decide() -> None:
    conversation = (task(3), called(0), result(0, "Wall time: 0.1 s"))
    later = (task(3), called(0), result(0, "Wall time: 0.7 s"))
    runs = [[says(WeakModel(seed), *messages) for seed in range(60)] for messages in (conversation, later)]
    assert runs[0] == runs[1]
    assert len({str(script) for script in runs[0]}) > 3


@pytest.mark.parametrize(
    "asked_again",
    [
        [{"role": "assistant", "content": "Now I look:"}, NUDGE],
        [called(0), result(0, REFUSED)],
        [called(0), result(0, "<tool_use_error>InputValidationError: …</tool_use_error>")],
        [{"role": "user", "content": "[Your previous response had no visible output. Please continue.]"}],
    ],
)
def test_half_of_the_second_answers_are_the_same_again(asked_again: list[dict[str, Any]]) -> None:
    same: Counter[bool] = Counter()
    for number in range(300):
        first = says(only("announced"), task(number))
        second = says(only("announced"), task(number), *asked_again)
        assert second in (first, good(task(number)))
        same[second == first] += 1
    assert same[True] == pytest.approx(150, abs=30)


def test_a_result_that_was_refused_is_no_step_of_the_work() -> None:
    refused = (task(), called(0), result(0, REFUSED), called(1, '{"cmd": "ls"}'), result(1))
    assert good(*refused) == good(task(), called(1), result(1))


def test_it_makes_no_mistakes_without_tools_or_where_they_may_not_be_used() -> None:
    for fields in ({"tools": []}, {"tool_choice": "none"}, {"response_format": {"type": "json_object"}}):
        assert kinds(says(only("empty"), task(), **fields)) != []


def test_what_needs_a_call_does_not_happen_in_the_report() -> None:
    done = [message for number in range(3) for message in (called(number, f'{{"cmd": "{number}"}}'), result(number))]
    assert says(only("announced"), task(), *done) == good(task(), *done)
    assert kinds(says(only("reasoning_only"), task(), *done)) == [Think]


def test_a_call_is_repeated_more_often_than_anybody_puts_up_with() -> None:
    messages = [task(), called(0, '{"cmd": "ls"}'), result(0)]
    repeats = 0
    while (call := call_of(says(only("repeated_call"), *messages))).arguments == '{"cmd": "ls"}':
        repeats += 1
        messages += [called(repeats, call.arguments), result(repeats)]
    assert repeats == 6
    assert says(only("repeated_call"), task()) == good(task())


def test_rates_are_parsed() -> None:
    assert parse_rates("empty=5, cut=0.5") == {"empty": 5, "cut": 0.5}
    for wrong in ("none=1", "empty", "empty=60,cut=41", "empty=-1"):
        with pytest.raises(ValueError, match=r"unknown fault|could not convert|percentages"):
            parse_rates(wrong)


def test_a_request_that_comes_again_is_answered_the_same_in_half_of_the_cases() -> None:
    async def play() -> list[list[str]]:
        answers = []
        options = SimulatorOptions(weak=only("announced"))
        async with serving(create_app(options)) as url, aiohttp.ClientSession() as session:
            for number in range(40):
                body = {"model": "m", "messages": [task(number)], "tools": [SHELL], "stream": True}
                answers.append([(await post(session, f"{url}/v1/chat/completions", body)).text() for _ in range(2)])
        return answers

    answers = asyncio.run(play())
    same = sum(first == second for first, second in answers)
    assert 10 < same < 30


def test_a_weak_model_over_http(ask: Ask) -> None:
    reply = ask("scenario: agent", options=SimulatorOptions(weak=only("finish_without_call")), tools=[SHELL])
    assert reply.finish_reason == "tool_calls"
    assert reply.calls == []
