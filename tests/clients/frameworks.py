"""What users do with frameworks above the OpenAI SDK: structured answers, agents with tools. `sys.argv[1]` is its URL."""

import asyncio
import json
import sys

from agno.agent import Agent as AgnoAgent
from agno.models.openai import OpenAIResponses
from openai import OpenAI
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

URL = sys.argv[1]
MODEL = "simulator"


class City(BaseModel):
    name: str
    inhabitants: int


def get_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"22 degrees in {city}"


def prompted_json() -> object:
    """Ask for JSON by a schema in the prompt, as frameworks do for models without structured output."""
    prompt = f"Answer with JSON that fits this schema:\n```json\n{json.dumps(City.model_json_schema())}\n```"
    response = OpenAI(base_url=URL, api_key="none").responses.create(model=MODEL, instructions=prompt, input="Paris?")
    return City.model_validate_json(response.output_text).model_dump()


def pydantic_model() -> OpenAIResponsesModel:
    return OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=URL, api_key="none"))


def pydantic_ai_text() -> object:
    return Agent(pydantic_model()).run_sync("scenario: plain").output


def pydantic_ai_tool() -> object:
    return Agent(pydantic_model(), tools=[get_weather]).run_sync("What is the weather in Paris?").output


def pydantic_ai_structured() -> object:
    city = Agent(pydantic_model(), output_type=City).run_sync("Tell me about Paris.").output
    return city.model_dump()


def pydantic_ai_stream() -> object:
    async def stream() -> list[str]:
        async with Agent(pydantic_model()).run_stream("scenario: plain") as result:
            return [piece async for piece in result.stream_text(delta=True, debounce_by=None)]

    return asyncio.run(stream())


def agno_model() -> OpenAIResponses:
    return OpenAIResponses(id=MODEL, base_url=URL, api_key="none")


def agno_text() -> object:
    return AgnoAgent(model=agno_model(), telemetry=False).run("scenario: plain").content


def agno_tool() -> object:
    return AgnoAgent(model=agno_model(), tools=[get_weather], telemetry=False).run("What is the weather in Paris?").content


DEEDS = [
    prompted_json,
    pydantic_ai_text,
    pydantic_ai_tool,
    pydantic_ai_structured,
    pydantic_ai_stream,
    agno_text,
    agno_tool,
]
print(json.dumps({deed.__name__: deed() for deed in DEEDS}))
