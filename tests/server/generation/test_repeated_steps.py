"""Clients that send all steps of a task again with each one, though they continue the last response (LlamaIndex with
`track_previous_responses`, Strands with `stateful`): the model sees each step once."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.server.generation.replay import replay
from tests.server.fleet_of_simulators import WEATHER
from tests.server.hosted.model import Model, Turn, calls, model, says
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import post, run

Json = dict[str, Any]
Ask = Callable[..., Awaitable[Json]]
QUESTION = {"role": "user", "content": "What is the weather?"}


def step(text: str, city: str) -> Turn:
    """Return a turn of the model: a text and a call, of which each has the same id, as some servers have it."""
    said, made = says(text), calls(("get_weather", {"city": city}), thought="hm")
    assert isinstance(said, list)
    assert isinstance(made, list)
    return [made[0], *said[:-3], *made[1:]]


TURNS = [step("I look.", "Paris"), step("I look again.", "Paris"), step("And there.", "Oslo"), says("Mild.")]


async def play(ask: Ask, outputs: list[str]) -> Json:
    """Ask, and give the outputs of the calls one after the other, each time behind all that was said in this task."""
    said: list[Json] = [QUESTION]
    response = await ask(input="What is the weather?")
    for output in outputs:
        _, message, call = response["output"]
        arguments = json.dumps(json.loads(call["arguments"]), separators=(",", ":"))
        made = {"type": "function_call", "call_id": call["call_id"], "name": call["name"], "arguments": arguments}
        answer = {"type": "function_call_output", "call_id": call["call_id"], "output": output}
        said += [{"role": "assistant", "content": message["content"][0]["text"]}, made, answer]
        response = await ask(input=said, previous_response_id=response["id"])
    return response


def seen(talking: Model) -> list[str]:
    """Return what the model got last: who said what, and what was called."""
    messages = talking.requests[-1]["messages"]
    return [
        f"{message['role']}: {message['content']}"
        + "".join(" " + json.loads(call["function"]["arguments"])["city"] for call in message.get("tool_calls", ()))
        for message in messages
    ]


STEPS = ["assistant: I look. Paris", "tool: rain", "assistant: I look again. Paris", "tool: rain", "assistant: And there. Oslo"]


@pytest.mark.parametrize("over", ["http", "websocket"])
def test_each_step_reaches_the_model_once(over: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with model(*TURNS, *TURNS, store="memory", record=tmp_path) as (served, talking):

            async def over_http(**fields: Any) -> Json:
                final: Json = (await post(served, model="m", tools=[WEATHER], **fields)).final
                return final

            if over == "http":
                response = await play(over_http, ["rain", "rain", "sun"])
            else:
                async with connect(served) as socket:

                    async def on_socket(**fields: Any) -> Json:
                        return await socket.ask("", model="m", tools=[WEATHER], **fields)

                    response = await play(on_socket, ["rain", "rain", "sun"])
            assert response["output"][-1]["content"][0]["text"] == "Mild."
            assert seen(talking) == ["user: What is the weather?", *STEPS, "tool: sun"]
            if over == "http":
                await play(lambda **fields: over_http(**{"previous_response_id": response["id"], **fields}), ["rain"])
                again = ["assistant: Mild.", "user: What is the weather?", "assistant: I look. Paris", "tool: rain"]
                assert seen(talking) == ["user: What is the weather?", *STEPS, "tool: sun", *again]

    run(test())
    assert [replay(path).differences for path in tmp_path.glob("exchange-*.jsonl")] == [[]] * (6 if over == "http" else 4)


def made(call_id: str, city: str, output: str) -> list[Json]:
    """Return a call as a client writes it, and its output."""
    call = {"type": "function_call", "call_id": call_id, "name": "get_weather", "arguments": json.dumps({"city": city})}
    return [call, {"type": "function_call_output", "call_id": call_id, "output": output}]


def test_a_call_that_the_client_has_changed_or_made_itself_stays() -> None:
    async def test() -> None:
        async with model(*TURNS, store="memory") as (served, talking):

            async def ask(*items: Json, **fields: Any) -> Json:
                final: Json = (await post(served, model="m", tools=[WEATHER], input=list(items), **fields)).final
                return final

            first = await ask(QUESTION)
            second = await ask(*made(first["output"][-1]["call_id"], "Rome", "sun"), previous_response_id=first["id"])
            assert "Rome" in " ".join(seen(talking))
            assert "tool: sun" in seen(talking)
            output = made(second["output"][-1]["call_id"], "Paris", "hail")[1]
            third = await ask(*made("own", "Bonn", "fog"), output, previous_response_id=second["id"])
            assert {"tool: fog", "tool: hail"} <= set(seen(talking))
            await ask(*made("own", "Bonn", "snow"), previous_response_id=third["id"])
            assert "tool: snow" in seen(talking)

    run(test())
