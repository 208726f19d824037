"""What users do with LlamaIndex's `OpenAIResponses`: text, streams, agents with tools, structured answers. `sys.argv[1]` is its
URL."""

import asyncio
import json
import sys

from llama_index.core import PromptTemplate
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai import OpenAIResponses
from pydantic import BaseModel


class City(BaseModel):
    name: str
    inhabitants: int


def get_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"22 degrees in {city}"


def model() -> OpenAIResponses:
    return OpenAIResponses(model="simulator", api_base=sys.argv[1], api_key="none", context_window=131072)


def text() -> object:
    return model().complete("scenario: plain").text


def stream() -> object:
    pieces = model().stream_chat([ChatMessage(role="user", content="scenario: plain")])
    return [piece.delta for piece in pieces if piece.delta]


def tool() -> object:
    async def run() -> str:
        return str(await FunctionAgent(tools=[get_weather], llm=model()).run("What is the weather in Paris?"))

    return asyncio.run(run())


def structured() -> object:
    return model().structured_predict(City, PromptTemplate("Tell me about {city}."), city="Paris").model_dump()


DEEDS = [text, stream, tool, structured]
print(json.dumps({deed.__name__: deed() for deed in DEEDS}))
