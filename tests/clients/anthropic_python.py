"""What a user of Anthropic's Python SDK does. Prints one JSON object: the name of each deed, and what the user got of it."""

import json
import sys
from typing import Any

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1].removesuffix("/v1"), api_key="sk-test", max_retries=0)
MODEL = "qwen3"
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
THINKING: Any = {"type": "adaptive"}


def asked(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 2048, "messages": [{"role": "user", "content": text}], **fields}


def whole() -> dict[str, Any]:
    answer = client.messages.with_raw_response.create(**asked("scenario: plain"))
    message = answer.parse()
    return {"text": message.content[0].text, "reason": message.stop_reason, "request_id": answer.headers["request-id"]}


def stream() -> dict[str, Any]:
    with client.messages.stream(**asked("scenario: reasoning", thinking=THINKING)) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_message()
    thought, text = message.content
    return {"kinds": sorted(set(kinds)), "thought": thought.thinking, "signed": bool(thought.signature), "text": text.text}


def text_stream() -> dict[str, Any]:
    with client.messages.stream(**asked("scenario: plain")) as stream:
        pieces = list(stream.text_stream)
        return {"pieces": len(pieces), "text": "".join(pieces), "final": stream.get_final_text()}


def no_thought() -> dict[str, Any]:
    message = client.messages.create(**asked("scenario: reasoning", thinking={"type": "disabled"}))
    return {"kinds": [block.type for block in message.content]}


def tools() -> dict[str, Any]:
    """Make a call, give its result, twice in one conversation: with ids that differ."""
    request = asked("scenario: parallel", tools=[WEATHER, {**WEATHER, "name": "get_time"}], thinking=THINKING)
    ids: list[str] = []
    steps = []
    for _ in range(4):
        with client.messages.stream(**request) as stream:
            message = stream.get_final_message()
        calls = [block for block in message.content if block.type == "tool_use"]
        steps.append([(call.name, call.input) for call in calls])
        ids += [call.id for call in calls]
        if not calls:
            return {"steps": steps, "ids": len(ids), "unique": len(set(ids)), "text": message.content[-1].text}
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "22 degrees"} for call in reversed(calls)]
        request["messages"] += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
    return {"steps": steps}


def tool_runner() -> dict[str, Any]:
    """Have the SDK run the tools. To a server that takes its threads it would send no more than new messages."""

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return f"22 degrees in {city}"

    advisor: Any = {"type": "advisor_20260301", "name": "advisor", "model": MODEL}
    runner = client.beta.messages.tool_runner(**asked("scenario: parallel", tools=[get_weather, advisor]))
    first, *_, last = list(runner)
    made = [[block.name, block.input] for block in first.content if block.type == "tool_use"]
    return {"calls": made, "text": last.content[-1].text}


def cut() -> dict[str, Any]:
    with client.messages.stream(**asked("scenario: reasoning", max_tokens=12, thinking=THINKING)) as stream:
        return {"reason": stream.get_final_message().stop_reason}


def count() -> dict[str, Any]:
    request = asked("scenario: plain")
    message = client.messages.create(**request)
    del request["max_tokens"]
    return {"counted": client.messages.count_tokens(**request).input_tokens, **_tokens(message)}


def models() -> dict[str, Any]:
    page = client.models.list()
    return {"ids": [model.id for model in page.data], "more": page.has_more}


def broken() -> dict[str, Any]:
    return _thrown(lambda: _final(asked("scenario: plain fault: drop")))


def invalid() -> dict[str, Any]:
    return _thrown(lambda: client.messages.create(**asked("hello", max_tokens=-1)))


def busy() -> dict[str, Any]:
    return _thrown(lambda: client.messages.create(**asked("hello fault: status=503")))


def too_long() -> dict[str, Any]:
    return _thrown(lambda: client.messages.create(**asked("hello fault: overflow=vllm")))


def _final(request: dict[str, Any]) -> Any:
    with client.messages.stream(**request) as stream:
        return stream.get_final_message()


def _tokens(message: Any) -> dict[str, Any]:
    usage = message.usage
    return {"prompt": usage.input_tokens + usage.cache_read_input_tokens, "output": usage.output_tokens}


def _thrown(deed: Any) -> dict[str, Any]:
    try:
        return {"returned": str(deed())}
    except anthropic.APIStatusError as error:
        return {"raised": type(error).__name__, "type": error.type, "message": str(error.message)}


DEEDS = [whole, stream, text_stream, no_thought, tools, tool_runner, cut, count, models, broken, invalid, busy, too_long]
results: dict[str, Any] = {}
for deed in DEEDS:
    try:
        results[deed.__name__] = deed()
    except Exception as error:
        results[deed.__name__] = {"thrown": f"{type(error).__name__}: {error}"}
print(json.dumps(results))
