"""What users do with DSPy, whose prompts ask for fields by name: text, typed answers, JSON, streams. `sys.argv[1]` is the URL
of the gateway."""

import asyncio
import json
import sys
from typing import Literal

import dspy

MODEL = dspy.LM("openai/simulator", api_base=sys.argv[1], api_key="none", model_type="responses", cache=False)


class City(dspy.Signature):
    """Describe a city."""

    question: str = dspy.InputField()
    name: str = dspy.OutputField()
    inhabitants: int = dspy.OutputField()
    size: Literal["small", "large"] = dspy.OutputField()
    rivers: list[str] = dspy.OutputField()


def text() -> object:
    return MODEL("scenario: plain")[0]["text"]


def typed() -> object:
    return dspy.Predict(City)(question="Tell me about Paris.").toDict()


def as_json() -> object:
    with dspy.context(adapter=dspy.JSONAdapter()):
        return dspy.Predict(City)(question="Tell me about Paris.").toDict()


def reasoned() -> object:
    return dspy.ChainOfThought("question -> answer")(question="Why is the sky blue?").toDict()


def stream() -> object:
    listener = dspy.streaming.StreamListener(signature_field_name="message")

    async def pieces() -> list[str]:
        predict = dspy.streamify(dspy.Predict("question -> message"), stream_listeners=[listener])
        chunks = [chunk async for chunk in predict(question="Say hello.")]
        return [chunk.chunk for chunk in chunks if isinstance(chunk, dspy.streaming.StreamResponse)]

    return asyncio.run(pieces())


dspy.configure(lm=MODEL)
DEEDS = [text, typed, as_json, reasoned, stream]
print(json.dumps({deed.__name__: deed() for deed in DEEDS}))
