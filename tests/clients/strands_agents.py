"""What users do with Strands Agents: text, streams, tools, structured answers. `sys.argv[1]` is the URL of the gateway."""

import asyncio
import json
import sys

import strands
from pydantic import BaseModel
from strands.models.openai_responses import OpenAIResponsesModel


class City(BaseModel):
    name: str
    inhabitants: int


@strands.tool
def get_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"22 degrees in {city}"


def agent(**options: object) -> strands.Agent:
    model = OpenAIResponsesModel(client_args={"base_url": sys.argv[1], "api_key": "none"}, model_id="simulator")
    return strands.Agent(model=model, callback_handler=None, **options)


def text() -> object:
    return str(agent()("scenario: plain"))


def stream() -> object:
    async def pieces() -> list[str]:
        return [event["data"] async for event in agent().stream_async("scenario: plain") if "data" in event]

    return asyncio.run(pieces())


def tool() -> object:
    return str(agent(tools=[get_weather])("What is the weather in Paris?"))


def conversation() -> object:
    same = agent()
    same("scenario: plain")
    return str(same("scenario: plain again"))


def structured() -> object:
    return agent()("Tell me about Paris.", structured_output_model=City).structured_output.model_dump()


DEEDS = [text, stream, tool, conversation, structured]
print(json.dumps({deed.__name__: deed() for deed in DEEDS}))
