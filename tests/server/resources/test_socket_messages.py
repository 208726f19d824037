"""Messages over a WebSocket that ask for no response are answered at once, whatever else is going on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from responses_gateway.simulator import COUNTERS, RECEIVED, create_app, serving
from tests.server.resources.test_websocket_resource import ENDLESS, Event, Socket, connect
from tests.server.running_gateway import TERMINALS, gateway, post, run, simulated, until


async def say(socket: Socket, **message: Any) -> None:
    await socket.raw.send_str(json.dumps(message))


async def next_of(socket: Socket, kind: str) -> Event:
    """Return the next event of a type; fail at the end of a response."""
    event = await socket.next()
    while event["type"] != kind:
        assert event["type"] not in TERMINALS, event
        event = await socket.next()
    return event


def test_an_unknown_message_does_not_wait_for_the_running_response() -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served, connect(served) as socket:
            await socket.send(ENDLESS, stream_id="one")
            await until(lambda: backend[COUNTERS].running, "the backend is at work")
            await say(socket, type="response.inject", response_id="resp_1", input=[], stream_id="two")
            error = await next_of(socket, "error")
            assert (error["status"], error["error"]["code"], error["stream_id"]) == (400, "invalid_value", "two")
            await say(socket, type="response.steer", previous_response_id="resp_foreign", input="x" * 600_000)
            assert (await next_of(socket, "response.steer.failed"))["error"]["code"] == "response_not_found"
            assert backend[COUNTERS].running
            await say(socket, type="response.cancel", padding="x" * 1000)
            await next_of(socket, "response.failed")
            assert (await socket.ask())["status"] == "completed"

    run(test())


@pytest.mark.parametrize(
    "message",
    ['{"type": "response.create", "model": ', "[1]", "no JSON", '{"type": "response.create", "input": ' + "[" * 5000,
     '{"type": "response.create", "input": "' + "x" * 600_000],
    ids=["cut", "list", "text", "deep", "large"],
)  # fmt: skip
def test_a_message_that_cannot_be_read_does_not_wait_for_the_running_response(message: str) -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served, connect(served) as socket:
            await socket.send(ENDLESS, stream_id="one")
            await until(lambda: backend[COUNTERS].running, "the backend is at work")
            await socket.raw.send_str(message)
            error = await next_of(socket, "error")
            assert (error["status"], error["error"]["code"], "stream_id" in error) == (400, "invalid_json", False)
            assert backend[COUNTERS].running
            await say(socket, type="response.cancel")
            await next_of(socket, "response.failed")
            assert (await socket.ask())["status"] == "completed"

    run(test())


@pytest.mark.parametrize(
    ("fields", "code"), [({}, "missing_required_parameter"), ({"previous_response_id": 3}, "invalid_type")]
)
def test_a_steer_that_names_no_response_is_told_so(fields: Any, code: str) -> None:
    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            await say(socket, type="response.steer", input="on", stream_id="two", **fields)
            error = await socket.next()
            assert (error["type"], error["status"], error["stream_id"]) == ("error", 400, "two")
            assert (error["error"]["param"], error["error"]["code"]) == ("previous_response_id", code)

    run(test())


@pytest.mark.parametrize(
    "message",
    [
        '{"model": "simulator", "input": "scenario: plain", "store": false, "type": "response.create"}',
        '{"type": "response.cr\\u0065ate", "model": "simulator", "input": "scenario: plain", "store": false}',
    ],
    ids=["type last", "escaped"],
)
def test_a_request_is_known_however_it_is_written(message: str) -> None:
    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            await socket.raw.send_str(message)
            assert (await socket.rest())[-1]["type"] == "response.completed"
            await socket.raw.send_str("[1]")
            assert (await socket.next())["error"]["code"] == "invalid_json"

    run(test())


@pytest.mark.parametrize("fields", [{}, {"stream": False}, {"stream": False, "background": True}], ids=str)
def test_a_prompt_is_warmed_over_http(fields: Any) -> None:
    """`prewarm` has the backend read the prompt, the history included; what follows goes to the same prompt."""

    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url, store="memory") as served:
            first = (await post(served, store=True)).final
            prewarm = {
                "prompt_cache_options": {"prewarm": True},
                "previous_response_id": first["id"],
                "input": "scenario: long",
            }
            answer = await post(served, **prewarm, **fields)
            await until(lambda: len(backend[RECEIVED]) == 2 and not backend[COUNTERS].running, "the prompt was read")
            body = backend[RECEIVED][-1]["body"]
            assert (len(body["messages"]), body["max_completion_tokens"]) == (3, 1)
            if "background" not in fields:
                warm = answer.json if fields else answer.final
                assert (warm["status"], warm["output"], warm["incomplete_details"]) == ("completed", [], None)
                assert warm["usage"]["output_tokens"] <= 1

    run(test())


def test_a_prompt_that_a_backend_refuses_can_be_continued() -> None:
    """Templates refuse a prompt that has no user message yet; the missing usage tells that nothing was read."""

    async def test() -> None:
        async with simulated(invariant_sampling=1.0) as served, connect(served) as socket:
            cold = await socket.ask("fault: status=400", generate=False)
            assert (cold["status"], cold["output"], cold["usage"]) == ("completed", [], None)
            assert (await socket.ask(previous_response_id=cold["id"]))["status"] == "completed"
            prewarm = {"prompt_cache_options": {"prewarm": True}, "input": "fault: status=400"}
            assert (await post(served, **prewarm)).status == 400

    run(test())


def test_thousands_of_messages_in_one_read_let_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn of the loop lasts longer than it takes to answer one of them, where none may last longer than nothing."""
    monkeypatch.setattr("responses_gateway.server.resources.websocket.SLICE", 0.0)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            counting = asyncio.create_task(count())
            for _ in range(2000):
                await socket.raw.send_str("{}")
            errors = [await socket.next() for _ in range(2000)]
            counting.cancel()
            assert {error["type"] for error in errors} == {"error"}
            assert turns > 2000

    run(test())
