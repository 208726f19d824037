"""What an agent asks: its instructions, its tools and its whole history, each time. In shape as Codex and Claude Code send it,
in text made up: a task, and then steps of a thought, now and then a word to the user, a call and its result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any, Literal

Door = Literal["responses", "messages"]
Object = dict[str, Any]

MODEL = "burst:20"
# What was seen of agents: the number of tools, and the characters of the instructions and of a tool's description.
TOOLS = 25
_INSTRUCTIONS = 18_000
_DESCRIPTION = 700
_MARK = {"type": "ephemeral"}
_WORDS = (
    "the", "file", "of", "src/server/app.py", "test", "fails", "because", "returns", "None", "in", "def", "run(self):", "é",
    "class", "\n    ", "import", "\t", '"quoted"', "line", "3141", "a", "module", "with", "path", "/tmp/x", "模型", "->",
    "{", "}",
)  # fmt: skip


def text(random: Random, length: int) -> str:
    """Return about so many characters."""
    words = random.choices(_WORDS, k=max(1, length // 6))
    return " ".join(words)


def history(items: int, size: int, seed: int) -> list[Object]:
    """Return so many items that make a request of about so many bytes. Another seed gives another history, from its first
    character on."""
    return list(_steps(items, size - _INSTRUCTIONS - TOOLS * (_DESCRIPTION + 400), seed))


def body(door: Door, items: list[Object], seed: int, *, store: bool = False, previous: str | None = None) -> bytes:
    """Return the request with a history; all have the same tools and instructions. `store`, and the id of the `previous`
    response, are for Responses alone."""
    fixed = Random(0)
    instructions = text(fixed, _INSTRUCTIONS)
    tools = [_tool(fixed, number) for number in range(TOOLS)]
    if door == "responses":
        request: Object = {
            "model": MODEL,
            "instructions": instructions,
            "input": items,
            "tools": [{"type": "function", "strict": False, **tool} for tool in tools],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "reasoning": {"effort": "medium", "summary": "auto"},
            "store": store,
            "stream": True,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": f"session-{seed}",
        }
        if previous is not None:
            request["previous_response_id"] = previous
    else:
        request = {
            "model": MODEL,
            "messages": _marked(list(_messages(items))),
            "system": [{"type": "text", "text": instructions, "cache_control": _MARK}],
            "tools": [{**tool, "input_schema": tool.pop("parameters")} for tool in tools],
            "max_tokens": 32_000,
            "thinking": {"type": "adaptive"},
            "stream": True,
        }
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode()


def _tool(random: Random, number: int) -> Object:
    properties = {f"argument_{index}": {"type": "string", "description": text(random, 60)} for index in range(4)}
    return {
        "name": f"tool_{number}",
        "description": text(random, _DESCRIPTION),
        "parameters": {"type": "object", "properties": properties, "required": ["argument_0"], "additionalProperties": False},
    }


def _steps(items: int, size: int, seed: int) -> Iterator[Object]:
    """Yield the items of a history of about so many characters: most of it is what tools returned."""
    random = Random(seed)
    rest = max(200, size // items)  # characters of an item, of which calls and words have fewer
    yield _message("user", "input_text", f"Task {seed}. {text(random, 400)}")
    number = 1
    while number < items:
        step = min(4, items - number)
        call_id = f"call_{seed}_{number}"
        if step > 1:
            yield {
                "type": "reasoning",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": text(random, rest // 4)}],
            }
        if step > 3:
            yield _message("assistant", "output_text", text(random, rest // 8))
        if step > 2:
            arguments = json.dumps({"argument_0": text(random, rest // 4), "argument_1": str(number)})
            yield {"type": "function_call", "call_id": call_id, "name": f"tool_{number % TOOLS}", "arguments": arguments}
            yield {"type": "function_call_output", "call_id": call_id, "output": text(random, rest * 3)}
        else:
            yield _message("user", "input_text", text(random, 80))
        number += step


def _message(role: str, kind: str, words: str) -> Object:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}


def _marked(messages: list[Object]) -> list[Object]:
    """Return messages with the mark of Claude Code for Anthropic's cache, which moves from turn to turn: it stands on the last
    block of the last message, so that the bytes of that message are others in the next request."""
    *before, last = messages
    *blocks, block = last["content"]
    return [*before, {**last, "content": [*blocks, {**block, "cache_control": _MARK}]}]


def _messages(history: list[Object]) -> Iterator[Object]:
    """Yield the same history as messages of the Messages API."""
    said: list[Object] = []
    for item in history:
        kind = item["type"]
        if kind == "message" and item["role"] == "user":
            yield {"role": "user", "content": [{"type": "text", "text": item["content"][0]["text"]}]}
        elif kind == "message":
            said.append({"type": "text", "text": item["content"][0]["text"]})
        elif kind == "reasoning":
            said.append({"type": "thinking", "thinking": item["content"][0]["text"], "signature": "c2lnbmVk"})
        elif kind == "function_call":
            said.append(
                {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": json.loads(item["arguments"])}
            )
            yield {"role": "assistant", "content": said}
            said = []
        else:
            result = {"type": "tool_result", "tool_use_id": item["call_id"], "content": item["output"]}
            yield {"role": "user", "content": [result]}
