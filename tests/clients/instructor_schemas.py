"""What users do with Instructor: they ask for an object. `sys.argv[1]` is the gateway's URL."""

import json
import sys

import instructor
from openai import OpenAI
from pydantic import BaseModel


class City(BaseModel):
    name: str
    inhabitants: int


def structured() -> object:
    client = instructor.from_openai(OpenAI(base_url=sys.argv[1], api_key="none"), mode=instructor.Mode.RESPONSES_TOOLS)
    city = client.responses.create(model="simulator", input="Tell me about Paris.", response_model=City)
    return city.model_dump()


print(json.dumps({"structured": structured()}))
