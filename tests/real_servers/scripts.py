"""The scripts that the tiny model knows, as requests to the gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.real_servers.tiny_model import FOLDER

# Asked for with what the gateway never sends in this way, or that changes nothing of the answer.
_OTHER_VARIANTS = ("cont", "ids", "logprobs")


class Question(NamedTuple):
    """A script, and the request that has the model play it. `chat`: the same one to the server itself. `tokens`: how many the
    answer has."""

    name: str
    body: dict[str, Any]
    chat: dict[str, Any]
    tokens: int


def questions() -> Iterator[Question]:
    """Yield all scripts: each step of a longer task, without thinking, and cut at a limit of tokens."""
    manifest = json.loads((FOLDER.parent / "streams" / "hermes" / "manifest.json").read_text(encoding="utf-8"))
    for stream in manifest["streams"]:
        if stream["variant"] in _OTHER_VARIANTS:
            continue
        asked = stream["request"]
        body: dict[str, Any] = {"model": "tiny", "temperature": 0, "stream": True, "input": _items(asked["messages"])}
        if asked.get("tools"):
            body["tools"] = [{"type": "function", **tool["function"], "strict": False} for tool in asked["tools"]]
        if "max_tokens" in asked:
            body["max_output_tokens"] = asked["max_tokens"]
        if "chat_template_kwargs" in asked:
            body["chat_template_kwargs"] = asked["chat_template_kwargs"]
        name = " ".join(str(part) for part in (stream["scenario"], stream["step"] or "", stream["variant"]) if part)
        yield Question(name, body, asked, stream["expected"]["completion_tokens"])


def _items(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return chat messages as input items."""
    items: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            items.append({"type": "function_call_output", "call_id": call_id, "output": message["content"]})
            continue
        if message.get("reasoning"):
            content = [{"type": "reasoning_text", "text": message["reasoning"]}]
            items.append({"type": "reasoning", "summary": [], "content": content})
        if message.get("content"):
            items.append({"role": message["role"], "content": message["content"]})
        for call in message.get("tool_calls") or ():
            function = call["function"]
            items.append({"type": "function_call", "call_id": call["id"], **function})
    return items
