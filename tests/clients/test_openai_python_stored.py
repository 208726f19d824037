"""The official SDK and what is stored: every method that its user would call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.conversations import ConversationItem
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from responses_gateway.settings.keys import hash_of
from tests.server.running_gateway import ask, post, run, simulated


@asynccontextmanager
async def client(**settings: Any) -> AsyncIterator[AsyncOpenAI]:
    async with (
        simulated(store="memory", **settings) as served,
        AsyncOpenAI(base_url=f"{served.url}/v1", api_key="sk-test-of-the-gateway", max_retries=0) as sdk,
    ):
        yield sdk


def test_responses() -> None:
    async def test() -> None:
        async with client() as sdk:
            first = await sdk.responses.create(model="m", input="one")
            assert (await sdk.responses.retrieve(first.id)).model_dump() == first.model_dump()
            asked: Any = [{"role": "user", "content": "two"}, {"role": "developer", "content": "three"}]
            second = await sdk.responses.create(model="m", input=asked, previous_response_id=first.id)
            listed = [item async for item in sdk.responses.input_items.list(second.id, order="asc", limit=1)]
            assert [getattr(item, "role", item.type) for item in listed] == ["user", "developer"]
            counted = await sdk.responses.input_tokens.count(model="m", input="x", previous_response_id=second.id)
            alone = await sdk.responses.input_tokens.count(model="m", input="x")
            assert counted.input_tokens > alone.input_tokens
            await sdk.responses.delete(first.id)
            with pytest.raises(openai.NotFoundError):
                await sdk.responses.retrieve(first.id)
            with pytest.raises(openai.BadRequestError):
                await sdk.responses.create(model="m", input="x", previous_response_id=first.id)

    run(test())


def test_background() -> None:
    async def test() -> None:
        async with client() as sdk:
            queued = await sdk.responses.create(model="m", input="tokens: 60 tps: 300", background=True)
            assert queued.status == "queued"
            seen = [event async for event in await sdk.responses.retrieve(queued.id, stream=True)]
            assert seen[-1].type == "response.completed"
            rest = await sdk.responses.retrieve(queued.id, stream=True, starting_after=5)
            assert [event.sequence_number async for event in rest] == [event.sequence_number for event in seen[6:]]
            running = await sdk.responses.create(model="m", input="tokens: 5000 tps: 100", background=True)
            assert (await sdk.responses.cancel(running.id)).status == "cancelled"

    run(test())


def test_a_completion_window() -> None:
    async def test() -> None:
        keys = {"me": hash_of("sk-test-of-the-gateway")}
        async with client(api_keys=keys) as sdk:
            window: Any = {"completion_window": "8h", "continuation_id": "mine"}
            queued = await sdk.responses.create(model="m", input="hello", background=True, background_options=window)
            assert queued.status == "queued"
            seen = [event.type async for event in await sdk.responses.retrieve(queued.id, stream=True, starting_after=0)]
            assert (seen[0], seen[-1]) == ("response.queued", "response.completed")
            assert (await sdk.responses.retrieve(queued.id)).status == "completed"

    run(test())


def test_conversations() -> None:
    async def test() -> None:
        async with client() as sdk:
            conversation = await sdk.conversations.create(
                metadata={"topic": "x"}, items=[{"type": "message", "role": "user", "content": "hello"}]
            )
            response = await sdk.responses.create(model="m", input="two", conversation=conversation.id)
            assert response.conversation is not None
            assert response.conversation.id == conversation.id
            items = [item async for item in sdk.conversations.items.list(conversation.id, order="asc")]
            assert len(items) == 2 + len(response.output)
            added = await sdk.conversations.items.create(conversation.id, items=[{"role": "user", "content": "three"}])
            item = await sdk.conversations.items.retrieve(added.data[0].id or "", conversation_id=conversation.id)
            assert item.type == "message"
            await sdk.conversations.items.delete(item.id or "", conversation_id=conversation.id)
            assert (await sdk.conversations.update(conversation.id, metadata={"topic": "y"})).metadata == {"topic": "y"}
            assert (await sdk.conversations.delete(conversation.id)).deleted

    run(test())


# What a client may send, without what it may leave out.
SENT: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
    {"role": "developer", "content": [{"type": "input_text", "text": "d"}]},
    {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]},
    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "42"},
    {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}", "status": None},
    {
        "type": "function_call_output",
        "call_id": "c2",
        "output": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}],
    },
    {"type": "custom_tool_call", "call_id": "c3", "name": "g", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "c3", "output": "42"},
    {"type": "shell_call", "call_id": "c4", "action": {"commands": ["ls"]}},
]


def test_items_are_shown_whole() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            conversation = (await ask(served, "POST", "/v1/conversations", json={"items": SENT})).json["id"]
            response = (await post(served, input=SENT, stream=False)).json["id"]
            shown: list[tuple[str, Any]] = [
                (f"conversations/{conversation}/items", ConversationItem),
                (f"responses/{response}/input_items", ResponseItem),
            ]
            for path, model in shown:
                listed = (await ask(served, "GET", f"/v1/{path}?order=asc")).json["data"]
                assert len(listed) == len(SENT)
                for item in listed:
                    TypeAdapter(model).validate_python(item, strict=True)

    run(test())


def test_compaction() -> None:
    async def test() -> None:
        async with client() as sdk:
            compacted = await sdk.responses.compact(model="m", input=[{"role": "user", "content": "remember 7"}])
            assert [item.type for item in compacted.output] == ["compaction"]
            history = [item.model_dump(exclude_none=True) for item in compacted.output]
            response = await sdk.responses.create(model="m", input=[*history, {"role": "user", "content": "go on"}])  # type: ignore[list-item]
            assert response.status == "completed"

    run(test())
