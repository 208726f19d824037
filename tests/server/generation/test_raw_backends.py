"""The gateway in front of servers that parse nothing: the official SDK gets the items that a parsing server would have sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from openai import AsyncOpenAI

from responses_gateway.cli import main
from responses_gateway.simulator import DIALECTS, RECEIVED, SimulatorOptions, create_app, serving
from tests.server import scripted_backend
from tests.server.running_gateway import Served, assert_error, gateway, post, run
from tests.server.scripted_backend import Connection, backend, streaming, text_stream

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
# Kind of server -> parsers for it. What the simulated model says begins with its own `<think>`, or with none.
RAW = {
    "vllm-raw": {"reasoning_parser": "qwen3", "tool_call_parser": "hermes", "opened_thinking": "no"},
    "vllm-raw-xml": {"reasoning_parser": "qwen3", "tool_call_parser": "qwen3_coder", "opened_thinking": "no"},
    "sglang-raw": {"reasoning_parser": "qwen3", "tool_call_parser": "hermes", "opened_thinking": "no"},
}
AUTO = {"reasoning_parser": "auto", "tool_call_parser": "auto"}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'


@asynccontextmanager
async def served(dialect: str, **settings: Any) -> AsyncIterator[tuple[Served, web.Application]]:
    """Serve the gateway and the simulator behind it."""
    simulator = create_app(SimulatorOptions(dialect=DIALECTS[dialect]))
    async with serving(simulator) as url, gateway(url, **settings) as running:
        yield running, simulator


def received(simulator: web.Application) -> dict[str, Any]:
    """Return the body of the last chat request."""
    body: dict[str, Any] = simulator[RECEIVED][-1]["body"]
    return body


@asynccontextmanager
async def sdk(running: Served) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{running.url}/v1", api_key="sk-test", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("dialect", RAW)
@pytest.mark.parametrize("parsers", ["named", "auto"])
def test_a_call_and_its_result(dialect: str, parsers: str) -> None:
    async def test() -> None:
        settings = RAW[dialect] if parsers == "named" else AUTO
        async with served(dialect, **settings) as (running, simulator), sdk(running) as client:
            question: Any = {"role": "user", "content": "scenario: demo"}
            async with client.responses.stream(model="simulator", input=[question], tools=[WEATHER]) as stream:
                kinds = [event.type async for event in stream]
                first = await stream.get_final_response()
            assert [item.type for item in first.output] == ["reasoning", "message", "function_call"]
            assert "response.reasoning_text.delta" in kinds
            assert "response.function_call_arguments.delta" in kinds
            call = first.output[-1]
            assert call.type == "function_call"
            assert (call.name, set(json.loads(call.arguments))) == ("get_weather", {"city"})
            assert "<" not in first.output_text

            result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "22 degrees"}
            history: Any = [question, *first.output, result]
            second = await client.responses.create(model="simulator", input=history, tools=[WEATHER])
            assert "22 degrees" in second.output_text
            assert [message["role"] for message in received(simulator)["messages"]][-3:] == ["user", "assistant", "tool"]

    run(test())


@pytest.mark.parametrize("dialect", RAW)
def test_parallel_calls(dialect: str) -> None:
    async def test() -> None:
        async with served(dialect, **RAW[dialect]) as (running, _):
            question = {"input": "scenario: parallel", "tools": [WEATHER]}
            answer = await post(running, question)
            calls = [item for item in answer.final["output"] if item["type"] == "function_call"]
            assert [json.loads(call["arguments"])["city"] for call in calls] == ["Rome", "Lima"]
            one = await post(running, question, parallel_tool_calls=False)
            assert [item["type"] for item in one.final["output"]].count("function_call") == 1

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_reasoning_and_text_without_tools(stream: bool) -> None:
    async def test() -> None:
        async with served("vllm-raw", **RAW["vllm-raw"]) as (running, _):
            answer = await post(running, {"input": "scenario: reasoning", "stream": stream})
            response = answer.final if stream else answer.json
            assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
            assert "think>" not in json.dumps(response["output"])

    run(test())


def test_what_the_backend_is_asked() -> None:
    """Ask a backend without parsers: it refuses tools with a choice, and shows them to the model with "none"."""

    async def test() -> None:
        async with served("vllm-raw", **RAW["vllm-raw"]) as (running, simulator):
            asked = {"tools": [WEATHER], "tool_choice": "auto", "parallel_tool_calls": True}
            answer = await post(running, asked)
            body = received(simulator)
            assert [tool["function"]["name"] for tool in body["tools"]] == ["get_weather"]
            assert body["tool_choice"] == "none"
            assert body.keys().isdisjoint({"parallel_tool_calls", "skip_special_tokens", "spaces_between_special_tokens"})
            assert (answer.final["tool_choice"], answer.final["parallel_tool_calls"]) == ("auto", True)
            await post(running)
            assert received(simulator).keys().isdisjoint({"tools", "tool_choice"})

    run(test())


@pytest.mark.parametrize(
    ("settings", "model", "asks"),
    [
        ({"reasoning_parser": "kimi_k2", "tool_call_parser": "kimi_k2"}, "m", True),
        ({"reasoning_parser": "mistral"}, "m", True),
        ({"tool_call_parser": "hermes"}, "m", False),
        (AUTO, "Qwen/Qwen3-8B", False),
        (AUTO, "moonshotai/Kimi-K2-Instruct", True),
        (AUTO, "my-own", True),  # it could be any family
        ({}, "moonshotai/Kimi-K2-Instruct", False),
    ],
)
def test_special_tokens_are_asked_for_where_they_are_markup(settings: dict[str, Any], model: str, asks: bool) -> None:
    async def test() -> None:
        async with served("vllm-raw", **settings) as (running, simulator):
            await post(running, model=model)
            expected = {"skip_special_tokens": False, "spaces_between_special_tokens": False} if asks else {}
            assert {key: value for key, value in received(simulator).items() if "special" in key} == expected

    run(test())


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}])
def test_a_call_cannot_be_forced_and_that_is_on_record(choice: Any) -> None:
    async def test() -> None:
        async with served("vllm-raw", **RAW["vllm-raw"]) as (running, simulator):
            answer = await post(running, tools=[WEATHER], tool_choice=choice)
            assert answer.status == 200
            assert "tool_choice" in answer.headers["x-responses-gateway-losses"]
            assert received(simulator)["tool_choice"] == "none"
        async with served("vllm-raw", strict=True, **RAW["vllm-raw"]) as (running, simulator):
            message = assert_error(await post(running, tools=[WEATHER], tool_choice=choice), 400)
            assert "cannot force" in message
            assert not simulator[RECEIVED]

    run(test())


@pytest.mark.slow
def test_an_invalid_escape_keeps_its_backslash() -> None:
    """Arguments in a string, as some models write them, hold a pattern whose backslash is not escaped; cut at every place."""
    call = r"""<tool_call>{"name": "grep", "arguments": "{\"p\": \"a\d+\"}"}</tool_call>"""
    tool = {"type": "function", "name": "grep", "parameters": {"type": "object", "properties": {"p": {"type": "string"}}}}
    at = 1

    async def play(connection: Connection) -> None:
        await streaming(*text_stream(call[:at], call[at:]))(connection)

    async def test() -> None:
        nonlocal at
        async with backend(play) as raw, gateway(raw.url, **RAW["vllm-raw"]) as running:
            for at in range(1, len(call)):  # noqa: B007
                answer = await post(running, tools=[tool])
                [item] = answer.final["output"]
                assert json.loads(item["arguments"]) == {"p": r"a\d+"}

    run(test())


def test_a_choice_against_tools_holds_whatever_the_model_says() -> None:
    async def test() -> None:
        async with backend(streaming(*text_stream("Look. ", CALL))) as raw, gateway(raw.url, **RAW["vllm-raw"]) as running:
            answer = await post(running, tools=[WEATHER], tool_choice="none")
            assert [item["type"] for item in answer.final["output"]] == ["message"]
            assert running.metric("repairs_total", kind="call_suppressed") == 1

    run(test())


def test_without_tools_nothing_is_a_call() -> None:
    async def test() -> None:
        async with backend(streaming(*text_stream("Look: ", CALL))) as raw, gateway(raw.url, **RAW["vllm-raw"]) as running:
            answer = await post(running)
            assert [item["content"][0]["text"] for item in answer.final["output"]] == [f"Look: {CALL}"]

    run(test())


def test_thinking_that_the_request_turns_off() -> None:
    """Assume that thinking is open as usual for the model, unless the chat template is told not to think."""

    async def test() -> None:
        settings = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
        async with backend(streaming(*text_stream("Hello."))) as raw, gateway(raw.url, **settings) as running:
            thinks = await post(running)
            assert [item["type"] for item in thinks.final["output"]] == ["reasoning", "message"]  # so that the user sees it
            not_now = await post(running, reasoning={"effort": "none"})
            assert [item["type"] for item in not_now.final["output"]] == ["message"]

    run(test())


def test_rescue() -> None:
    async def test() -> None:
        leak = [scripted_backend.chunk({"reasoning": "Hm."}), *text_stream("Look.\n", CALL)]
        async with backend(streaming(*leak)) as parsing, gateway(parsing.url, rescue=True) as running:
            answer = await post(running, tools=[WEATHER])
            assert [item["type"] for item in answer.final["output"]] == ["reasoning", "message", "function_call"]
            assert running.metric("repairs_total", kind="call_rescued") == 1
            asked = json.loads(parsing.requests[-1].partition(b"\r\n\r\n")[2])
            assert "tool_choice" not in asked  # the backend parses: it is asked as always

    run(test())


CITY = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("thought", "finish", "cities"),
    [
        (f"I look.\n{CITY}", "stop", ["Oslo"]),
        (f"{CITY} or rather both:\n{CITY}\n{CALL}\n", "stop", ["Oslo", "Rome"]),
        (f"<think>I look.</think>\n{CITY}", "stop", ["Oslo"]),  # which is not said a second time
        (f"I could write {CALL}, but wait.", "stop", []),
        (f"Like `{CALL}`", "stop", []),
        (f"```\n{CALL}\n```", "stop", []),
        (CALL.replace("get_weather", "other"), "stop", []),
        (CITY[:-30], "stop", []),
        (CALL, "length", []),
    ],
)
def test_calls_at_the_end_of_a_thought_are_rescued(thought: str, finish: str, cities: list[str]) -> None:
    """llama.cpp leaves them there, where the model has not ended its thought."""

    async def test() -> None:
        pieces = [scripted_backend.chunk({"reasoning_content": thought[at : at + 7]}) for at in range(0, len(thought), 7)]
        answer = streaming(*pieces, scripted_backend.chunk({}, finish), b"data: [DONE]\n\n")
        async with backend(answer) as parsing, gateway(parsing.url, rescue=True) as running:
            for stream in (True, False):
                whole = await post(running, tools=[WEATHER], stream=stream)
                output = (whole.final if stream else whole.json)["output"]
                assert output[0]["content"][0]["text"] == thought.rstrip()
                calls = [json.loads(item["arguments"]) for item in output if item["type"] == "function_call"]
                assert calls == [{"city": city} for city in cities]
        async with backend(answer) as parsing, gateway(parsing.url) as running:
            assert not [item for item in (await post(running, tools=[WEATHER])).final["output"] if "arguments" in item]

    run(test())


@pytest.mark.slow
def test_a_call_in_a_thought_is_none_beside_another_one() -> None:
    async def test() -> None:
        own = scripted_backend.call('{"city": "Rome"}', id="call-1")
        answer = [scripted_backend.chunk(delta) for delta in ({"reasoning": CALL}, own, {"reasoning": CITY})]
        async with (
            backend(streaming(*answer, scripted_backend.chunk({}, "tool_calls"))) as parsing,
            gateway(parsing.url, rescue=True) as running,
        ):
            output = (await post(running, tools=[WEATHER])).final["output"]
            assert [item["type"] for item in output] == ["reasoning", "function_call", "reasoning"]

    run(test())


# ---- a choice for each model -------------------------------------------------------------------------------------------


def test_each_model_has_its_own() -> None:
    models = {
        "Qwen/*": {"reasoning_parser": "qwen3", "tool_call_parser": "hermes", "opened_thinking": "no"},
        "*-thinking": {"reasoning_parser": "qwen3", "opened_thinking": "yes"},
        "*": {"rescue": False},
    }

    async def test() -> None:
        stream = text_stream("Hm.</think>Look.\n", CALL)
        async with backend(streaming(*stream)) as raw, gateway(raw.url, models=models, rescue=True) as running:

            async def kinds(model: str) -> tuple[list[str], bool]:
                answer = await post(running, tools=[WEATHER], model=model)
                asked = json.loads(raw.requests[-1].partition(b"\r\n\r\n")[2])
                return [item["type"] for item in answer.final["output"]], asked.get("tool_choice") == "none"

            assert await kinds("qwen/Qwen3-8B") == (["message", "function_call"], True)
            assert await kinds("Qwen/Qwen3-4B-Thinking") == (["message", "function_call"], True)  # the first that fits
            assert await kinds("my-thinking") == (["reasoning", "message"], False)
            assert await kinds("other") == (["message"], False)

    run(test())


# ---- names that are none -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ["--reasoning-parser", "qwen4"],
            "--reasoning-parser: there is no parser qwen4 (did you mean qwen3?); choose one of: auto, none, ",
        ),
        (
            ["--tool-call-parser", "hermes2"],
            "--tool-call-parser: there is no parser hermes2 (did you mean hermes?); choose one of: auto, ",
        ),
    ],
)
def test_a_wrong_name_is_said_at_the_start(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--backend", "http://127.0.0.1:9", *flags]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"responses-gateway: {said}")
    assert "seed_oss" in shown


def test_a_wrong_name_for_some_models_is_said_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("backend: http://127.0.0.1:9\nmodels:\n  qwen*:\n    tool_call_parser: hermse\n", encoding="utf-8")
    assert main(["serve", "--config", str(file)]) == 2
    said = f"responses-gateway: {file}: models: qwen*: tool_call_parser: there is no parser hermse (did you mean hermes?)"
    assert capsys.readouterr().err.startswith(said)
