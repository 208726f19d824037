"""What a user of the OpenAI Agents SDK does. Prints one JSON object: the name of each deed, and what the user got of it.

Runs in an environment of its own, with the base URL of the gateway as its argument.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import openai
from agents import (
    Agent,
    ModelSettings,
    OpenAIConversationsSession,
    Runner,
    function_tool,
    set_default_openai_client,
    set_tracing_disabled,
)
from openai.types.shared import Reasoning
from pydantic import BaseModel

client = openai.AsyncOpenAI(base_url=sys.argv[1], api_key="sk-test", max_retries=0)
set_default_openai_client(client)
set_tracing_disabled(True)  # traces would go to OpenAI


class City(BaseModel):
    name: str
    population: int


@function_tool
def get_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"22 degrees in {city}"


def agent(**options: Any) -> Agent[None]:
    return Agent(name="Assistant", instructions="Be brief.", **{"model": "qwen3", **options})


async def whole() -> Any:
    result = await Runner.run(agent(), "scenario: plain")
    return {"text": result.final_output, "total": result.context_wrapper.usage.total_tokens}


async def stream() -> Any:
    result = Runner.run_streamed(agent(tools=[get_weather]), "scenario: demo")
    kinds = []
    text = ""
    items = []
    async for event in result.stream_events():
        kinds.append(event.type)
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += event.data.delta
        if event.type == "run_item_stream_event":
            items.append(event.name)
    return {"kinds": sorted(set(kinds)), "text": text, "items": items, "final": result.final_output}


async def reasoning() -> Any:
    settings = ModelSettings(reasoning=Reasoning(summary="auto", effort="low"))
    result = await Runner.run(agent(model_settings=settings), "scenario: reasoning")
    [thought] = [item.raw_item for item in result.new_items if item.type == "reasoning_item"]
    return {"content": thought.content[0].text, "summary": thought.summary[0].text, "text": result.final_output}


async def tool() -> Any:
    result = await Runner.run(agent(tools=[get_weather]), "scenario: tool")
    return {"items": [item.type for item in result.new_items], "text": result.final_output}


async def parallel_tools() -> Any:
    result = await Runner.run(agent(tools=[get_weather]), "scenario: parallel")
    return {"calls": sum(item.type == "tool_call_item" for item in result.new_items), "text": result.final_output}


async def history() -> Any:
    """Send a second turn with the items of the first."""
    first = await Runner.run(agent(tools=[get_weather]), "scenario: tool")
    turns = [*first.to_input_list(), {"role": "user", "content": "scenario: plain"}]
    return {"text": (await Runner.run(agent(), turns)).final_output}


async def previous_response() -> Any:
    first = await Runner.run(agent(tools=[get_weather]), "scenario: tool Ada", auto_previous_response_id=True)
    second = await Runner.run(agent(), "scenario: plain again", previous_response_id=first.last_response_id)
    return {"first": first.final_output, "text": second.final_output}


async def session() -> Any:
    kept = OpenAIConversationsSession(openai_client=client)
    await Runner.run(agent(tools=[get_weather]), "scenario: tool", session=kept)
    result = await Runner.run(agent(), "scenario: plain", session=kept)
    return {"text": result.final_output, "items": len(await kept.get_items())}


async def structured() -> Any:
    result = await Runner.run(agent(output_type=City), "Which city?")
    return {"parsed": result.final_output.model_dump()}


async def handoff() -> Any:
    other = Agent(name="Weatherman", instructions="You know the weather.", model="qwen3")
    result = await Runner.run(agent(handoffs=[other]), "scenario: tool")
    return {"last": result.last_agent.name, "text": result.final_output}


async def agent_as_tool() -> Any:
    inner = Agent(name="Inner", instructions="Say hello.", model="qwen3")
    tools = [inner.as_tool(tool_name="ask_inner", tool_description="Asks the inner agent.")]
    return {"text": (await Runner.run(agent(tools=tools), "scenario: tool")).final_output}


async def refused() -> Any:
    try:
        await Runner.run(agent(), "fault: overflow=vllm")
    except openai.BadRequestError as error:
        return {"status": error.status_code, "code": error.code}


async def failed_stream() -> Any:
    result = Runner.run_streamed(agent(), "fault: drop=text")
    try:
        async for _ in result.stream_events():
            pass
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


DEEDS: list[Callable[[], Awaitable[Any]]] = [
    whole, stream, reasoning, tool, parallel_tools, history, previous_response, session, structured, handoff, agent_as_tool,
    refused, failed_stream,
]  # fmt: skip


async def main() -> None:
    results: dict[str, Any] = {}
    for deed in DEEDS:
        try:
            results[deed.__name__] = await deed()
        except Exception:
            results[deed.__name__] = {"thrown": traceback.format_exc()}
    print(json.dumps(results))
    await client.close()


asyncio.run(main())
