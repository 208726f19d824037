"""What a user of LangChain does. Prints one JSON object: the name of each deed, and what the user got of it.

Runs in an environment of its own, with the base URL of the gateway as its argument.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import openai
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class City(BaseModel):
    """A city."""

    name: str
    population: int


@langchain_tool
def get_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"22 degrees in {city}"


def chat(**options: Any) -> ChatOpenAI:
    return ChatOpenAI(base_url=sys.argv[1], api_key="sk-test", model="qwen3", max_retries=0, use_responses_api=True, **options)


def told(message: Any) -> dict[str, Any]:
    """Return a message as its reader sees it."""
    return {"text": message.text, "usage": (message.usage_metadata or {}).get("total_tokens")}


def whole() -> Any:
    return told(chat().invoke("scenario: plain"))


def stream() -> Any:
    total = None
    pieces = 0
    for piece in chat().stream("scenario: plain"):
        total = piece if total is None else total + piece
        pieces += 1
    return {**told(total), "pieces": pieces}


def asynchronous() -> Any:
    async def collect() -> str:
        return "".join([piece.text async for piece in chat().astream("scenario: plain")])

    return {"text": asyncio.run(collect())}


def reasoning() -> Any:
    message = chat(reasoning={"summary": "auto"}).invoke("scenario: reasoning")
    [thought] = [block for block in message.content_blocks if block["type"] == "reasoning"]
    return {"reasoning": thought["reasoning"], "text": message.text}


def streamed_reasoning() -> Any:
    found = ""
    text = ""
    for piece in chat(reasoning={"summary": "auto"}, output_version="v1").stream("scenario: reasoning"):
        found += "".join(block.get("reasoning", "") for block in piece.content_blocks if block["type"] == "reasoning")
        text += piece.text
    return {"reasoning": found, "text": text}


def _round_trip(model: ChatOpenAI, question: str) -> tuple[Any, Any]:
    able = model.bind_tools([get_weather])
    messages: list[Any] = [HumanMessage(question)]
    first = able.invoke(messages)
    messages += [first, *(get_weather.invoke(call) for call in first.tool_calls)]
    return first, able.invoke(messages)


def tool() -> Any:
    first, second = _round_trip(chat(), "scenario: tool")
    return {"calls": [(call["name"], call["args"]) for call in first.tool_calls], "text": second.text}


def parallel_tools() -> Any:
    first, second = _round_trip(chat(), "scenario: parallel")
    return {"calls": [(call["name"], call["args"]) for call in first.tool_calls], "text": second.text}


def streamed_tool() -> Any:
    total = None
    for piece in chat().bind_tools([get_weather]).stream("scenario: demo"):
        total = piece if total is None else total + piece
    assert total is not None
    return {"calls": [(call["name"], call["args"]) for call in total.tool_calls], "text": total.text}


def previous_response() -> Any:
    first, second = _round_trip(chat(use_previous_response_id=True), "scenario: tool Ada")
    return {"id": first.response_metadata["id"][:5], "text": second.text}


def structured() -> Any:
    parsed = chat().with_structured_output(City, method="json_schema").invoke("Which city?")
    called = chat().with_structured_output(City, method="function_calling").invoke("Which city?")
    return {"parsed": parsed.model_dump(), "called": called.model_dump()}


def refused() -> Any:
    try:
        chat().invoke("fault: overflow=vllm")
    except openai.BadRequestError as error:
        return {"kind": type(error).__name__, "status": error.status_code, "code": error.code}


def failed_stream() -> Any:
    try:
        return {"text": "".join(piece.text for piece in chat().stream("fault: drop=text"))}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


DEEDS: list[Callable[[], Any]] = [
    whole, stream, asynchronous, reasoning, streamed_reasoning, tool, parallel_tools, streamed_tool, previous_response,
    structured, refused, failed_stream,
]  # fmt: skip


results: dict[str, Any] = {}
for deed in DEEDS:
    try:
        results[deed.__name__] = deed()
    except Exception:
        results[deed.__name__] = {"thrown": traceback.format_exc()}
print(json.dumps(results))
