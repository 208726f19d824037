"""What a user of the OpenAI SDK's session helper does with lanes of a WebSocket. Prints one JSON object: the name of each deed,
and what the user got of it."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import openai
from openai.lib.responses_websocket import (
    AsyncResponsesWebSocketSession,
    ResponsesWebSocketAccumulator,
    ResponsesWebSocketError,
    ResponsesWebSocketLimits,
)

LIMITS = ResponsesWebSocketLimits(
    max_lanes=40, max_events_per_lane=5000, max_events=20_000, max_bytes_per_lane=10**7, max_bytes=10**8
)
client = openai.AsyncOpenAI(base_url=sys.argv[1], api_key="sk-test", max_retries=0)


async def ask(lane: Any, text: str, **fields: Any) -> Any:
    await lane.send({"type": "response.create", "model": "qwen3", "input": text, "store": False, **fields})
    return await lane.get_final_response()


async def code_of(lane: Any, text: str, **fields: Any) -> Any:
    try:
        await ask(lane, text, **fields)
    except ResponsesWebSocketError as error:
        return error.event.error.code
    return "answered"


async def lanes(session: Any) -> Any:
    """A slow lane is answered after a fast one that was asked later."""
    ended = []

    async def run(name: str, text: str) -> None:
        ended.append((name, (await ask(session.lane(name), text)).output_text.split(" ")[0]))

    slow = asyncio.create_task(run("slow", "scenario: long tokens: 1000 tps: 200"))
    await asyncio.sleep(0)
    await asyncio.gather(slow, run("fast", "scenario: plain"), run("other", "scenario: plain"))
    default = await ask(session.default, "scenario: plain")
    return {"order": [name for name, _ in ended], "default": default.output_text}


async def forks(session: Any) -> Any:
    source = session.lane("source")
    first = await ask(source, "My name is Ada.")
    fork = session.lane("fork")
    second = await ask(fork, "scenario: plain", previous_response_id=first.id)
    missing = await code_of(fork, "scenario: plain", previous_response_id="resp_x")
    third = await ask(source, "scenario: plain", previous_response_id=first.id)
    refused = await code_of(source, "fault: overflow=vllm", previous_response_id=third.id)
    gone = await code_of(source, "scenario: plain", previous_response_id=third.id)
    return {"text": [second.output_text, third.output_text], "codes": [missing, refused, gone]}


async def warmed(session: Any) -> Any:
    lane = session.lane("warm")
    warm = await ask(lane, "scenario: plain", generate=False)
    answered = await ask(lane, "scenario: plain", previous_response_id=warm.id)
    return {"warm": warm.output, "text": answered.output_text}


async def steered(session: Any) -> Any:
    lane = session.lane("steered")
    thinking = "scenario: reasoning tokens: 400 tps: 400"
    await lane.send({"type": "response.create", "model": "qwen3", "input": thinking, "store": False})
    event = await lane.recv()
    response_id = event.response.id
    while event.type != "response.reasoning_text.delta":
        event = await lane.recv()
    await lane.send({"type": "response.steer", "previous_response_id": response_id, "input": "scenario: plain"})
    while event.type != "response.incomplete":
        event = await lane.recv()
    while (await lane.recv()).type != "response.created":  # the SDK's own rule: only that shows that a successor has begun
        pass
    successor = await lane.get_final_response()
    return {"reason": event.response.incomplete_details.reason, "text": successor.output_text,
            "continues": successor.previous_response_id == response_id}  # fmt: skip


async def snapshots(session: Any) -> Any:
    lane = session.lane("snapshots")
    accumulator = ResponsesWebSocketAccumulator()
    await lane.send({"type": "response.create", "model": "qwen3", "input": "scenario: demo", "store": False})
    event = None
    while event is None or event.type != "response.completed":
        event = await lane.recv()
        accumulator.add_event(event)
    return {"same": accumulator.get_final_response() == event.response}


async def main() -> None:
    results = {}
    options: Any = {"max_size": None}
    deeds: list[Callable[[Any], Awaitable[Any]]] = [lanes, forks, warmed, steered, snapshots]
    async with (
        client.responses.connect(websocket_connection_options=options) as connection,
        AsyncResponsesWebSocketSession(connection, limits=LIMITS) as session,
    ):
        for deed in deeds:
            try:
                results[deed.__name__] = await deed(session)
            except Exception:
                results[deed.__name__] = {"thrown": traceback.format_exc()}
    print(json.dumps(results))


asyncio.run(main())
