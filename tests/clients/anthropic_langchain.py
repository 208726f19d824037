"""What a user of `ChatAnthropic` does. Prints one JSON object: the name of each deed, and what the user got of it."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import anthropic
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool as langchain_tool
from pydantic import BaseModel

THINKING = {"type": "enabled", "budget_tokens": 1024}


class City(BaseModel):
    """A city."""

    name: str
    population: int


@langchain_tool
def get_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"22 degrees in {city}"


def chat(**options: Any) -> ChatAnthropic:
    base_url = sys.argv[1].removesuffix("/v1")
    return ChatAnthropic(base_url=base_url, api_key="sk-test", model="qwen3", max_tokens=4096, max_retries=0, **options)


def joined(pieces: Any) -> Any:
    """Return the sum of the pieces of a stream."""
    first, *others = pieces
    for piece in others:
        first += piece
    return first


def whole() -> Any:
    message = chat().invoke("scenario: plain")
    return {"text": message.text, "usage": message.usage_metadata["total_tokens"]}


def stream() -> Any:
    pieces = list(chat(thinking=THINKING).stream("scenario: reasoning"))
    message = joined(pieces)
    thoughts = [block["reasoning"] for block in message.content_blocks if block["type"] == "reasoning"]
    usage = message.usage_metadata["total_tokens"]
    return {"reasoning": "".join(thoughts), "text": message.text, "pieces": len(pieces), "usage": usage}


def tool() -> Any:
    able = chat(thinking=THINKING).bind_tools([get_weather])
    messages: list[Any] = [HumanMessage("scenario: parallel")]
    first = joined(able.stream(messages))
    messages += [first, *(get_weather.invoke(call) for call in first.tool_calls)]
    return {"calls": [(call["name"], call["args"]) for call in first.tool_calls], "text": able.invoke(messages).text}


def count() -> Any:
    messages = [HumanMessage("scenario: plain")]
    used = chat().invoke(messages).usage_metadata["input_tokens"]
    return {"counted": chat().get_num_tokens_from_messages(messages), "used": used}


def structured() -> Any:
    return chat().with_structured_output(City).invoke("Which city?").model_dump()


def refused() -> Any:
    try:
        chat().invoke("fault: overflow=vllm")
    except anthropic.BadRequestError as error:
        return {"status": error.status_code, "message": str(error)}


def failed_stream() -> Any:
    try:
        return {"text": "".join(piece.text for piece in chat().stream("fault: drop=text"))}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


DEEDS: list[Callable[[], Any]] = [whole, stream, tool, count, structured, refused, failed_stream]


results: dict[str, Any] = {}
for deed in DEEDS:
    try:
        results[deed.__name__] = deed()
    except Exception:
        results[deed.__name__] = {"thrown": traceback.format_exc()}
print(json.dumps(results))
