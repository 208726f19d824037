"""`/v1/messages` as its clients see it: answers, errors, counts and lists, in front of a simulated backend."""

from __future__ import annotations

from typing import Any

from tests.server.running_gateway import Answer, Event, Served, ask, events_of, run, simulated

PATH = "/v1/messages"
QUESTION: dict[str, Any] = {"model": "simulator", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}


async def send(served: Served, body: dict[str, Any] | None = None, path: str = PATH, **headers: str) -> Answer:
    """Send a message, and read the whole answer."""
    return await ask(served, "POST", path, json={**QUESTION, **(body or {})}, headers=headers)


def text_of(events: list[Event]) -> str:
    """Return the text of a stream."""
    return "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")


def test_a_text_is_streamed_and_is_the_same_as_a_whole() -> None:
    async def test() -> None:
        async with simulated() as served:
            streamed = await send(served, {"stream": True})
            whole = await send(served)
            events = events_of(streamed.body)
            assert streamed.status == whole.status == 200
            assert [event["type"] for event in (events[0], *events[-3:])] == [
                "message_start", "content_block_stop", "message_delta", "message_stop",
            ]  # fmt: skip
            assert whole.json["content"][-1] == {"type": "text", "text": text_of(events)}
            assert whole.json["stop_reason"] == events[-2]["delta"]["stop_reason"] == "end_turn"
            assert whole.json["model"] == "simulator"
            assert streamed.headers["request-id"] != whole.headers["request-id"]

    run(test())
