"""What a user of the OpenAI Agents SDK does with hosted tools. Prints one JSON object: the name of each deed, and what the user
got of it.

Runs in an environment of its own, with the base URL of the gateway as its first argument.
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
    CodeInterpreterTool,
    FileSearchTool,
    HostedMCPTool,
    ModelSettings,
    Runner,
    SQLiteSession,
    WebSearchTool,
    function_tool,
    set_default_openai_client,
    set_tracing_disabled,
)

client = openai.AsyncOpenAI(base_url=sys.argv[1], api_key="sk-test", max_retries=0)
set_default_openai_client(client)
set_tracing_disabled(True)  # traces would go to OpenAI

SEARCH = 'call web_search {"queries": ["tower"]}'
ADD = 'call docs__add {"a": 1, "b": 2}'
MANUALS = 'call file_search {"queries": ["tower"]}'
CODE = 'call python {"code": "print(6 * 7)"}'
WEB = WebSearchTool(search_context_size="low", user_location={"type": "approximate", "city": "Paris"})
FILES = FileSearchTool(vector_store_ids=["vs_manuals"], max_num_results=2, include_search_results=True)
PYTHON = CodeInterpreterTool(tool_config={"type": "code_interpreter", "container": {"type": "auto"}})


@function_tool
def get_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"22 degrees in {city}"


def mcp(require_approval: str, **options: Any) -> HostedMCPTool:
    config = {"type": "mcp", "server_label": "docs", "require_approval": require_approval}
    return HostedMCPTool(tool_config=config, **options)


def agent(*tools: Any, **settings: Any) -> Agent[None]:
    return Agent(name="Assistant", model="qwen3", tools=list(tools), model_settings=ModelSettings(**settings))


async def streamed(*arguments: Any, **options: Any) -> Any:
    result = Runner.run_streamed(*arguments, **options)
    names = [event.name async for event in result.stream_events() if event.type == "run_item_stream_event"]
    return result, names


def raw(result: Any, kind: str) -> list[Any]:
    """Return the items of a type, as they were in the response."""
    return [item.raw_item for item in result.new_items if getattr(item.raw_item, "type", None) == kind]


async def web_search() -> Any:
    result, names = await streamed(agent(WEB), SEARCH)
    [call] = raw(result, "web_search_call")
    [message] = raw(result, "message")
    [citation] = message.content[0].annotations
    return {"names": names, "text": result.final_output, "query": call.action.query, "title": citation.title}


async def web_sources() -> Any:
    result = await Runner.run(agent(WEB, response_include=["web_search_call.action.sources"]), SEARCH)
    return [source.url for source in raw(result, "web_search_call")[0].action.sources]


async def file_search() -> Any:
    result = await Runner.run(agent(FILES), MANUALS)
    [call] = raw(result, "file_search_call")
    [message] = raw(result, "message")
    names = [annotation.filename for annotation in message.content[0].annotations]
    return {"found": [[found.filename, found.text, found.score] for found in call.results], "cited": names}


async def code_interpreter() -> Any:
    settings = {"response_include": ["code_interpreter_call.outputs"]}
    result = await Runner.run(agent(PYTHON, **settings), CODE)
    [call] = raw(result, "code_interpreter_call")
    return {"code": call.code, "logs": call.outputs[0].logs, "container": call.container_id}


async def mcp_tools() -> Any:
    result, names = await streamed(agent(mcp("never")), ADD)
    [listed] = raw(result, "mcp_list_tools")
    [call] = raw(result, "mcp_call")
    return {
        "names": names,
        "tools": [tool.name for tool in listed.tools],
        "output": call.output,
        "text": result.final_output,
    }


async def approval(*, approve: bool) -> Any:
    """Decide by callback, with the whole history and with the id of the previous response, streamed and not."""
    asked: list[Any] = []

    def decide(request: Any) -> Any:
        asked.append([request.data.name, json.loads(request.data.arguments)])
        return {"approve": approve, "reason": "as you like"}

    asking = agent(mcp("always", on_approval_request=decide))
    results = [
        await Runner.run(asking, ADD),
        await Runner.run(asking, ADD, auto_previous_response_id=True),
        (await streamed(asking, ADD))[0],
    ]
    outputs = [[call.output for call in raw(result, "mcp_call")] for result in results]
    return {"asked": asked, "outputs": outputs, "texts": [result.final_output for result in results]}


async def approved() -> Any:
    return await approval(approve=True)


async def refused() -> Any:
    return await approval(approve=False)


async def interruption() -> Any:
    """Decide while the run is interrupted, then ask again with the history in which the approval is answered."""
    asking = agent(mcp("always"))
    result = await Runner.run(asking, ADD)
    state = result.to_state()
    for interrupted in result.interruptions:
        state.approve(interrupted)
    resumed = await Runner.run(asking, state)
    again = await Runner.run(asking, [*resumed.to_input_list(), {"role": "user", "content": "Thanks"}])
    return {"interruptions": len(result.interruptions), "text": resumed.final_output, "again": again.final_output}


async def all_tools() -> Any:
    """Call all tools in one turn, one of them the client's own, and go on in a session."""
    weather = 'call get_weather {"city": "Paris"}'
    session = SQLiteSession("hosted")
    everything = agent(WEB, FILES, PYTHON, mcp("never"), get_weather)
    first = await Runner.run(everything, "\n".join([SEARCH, MANUALS, CODE, ADD, weather]), session=session)
    second = await Runner.run(everything, "Thanks", session=session)
    kinds = [item.raw_item["type"] if isinstance(item.raw_item, dict) else item.raw_item.type for item in first.new_items]
    return {"kinds": kinds, "text": first.final_output, "again": second.final_output}


DEEDS: list[Callable[[], Awaitable[Any]]] = [
    web_search, web_sources, file_search, code_interpreter, mcp_tools, approved, refused, interruption, all_tools,
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
