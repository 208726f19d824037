"""The cases of `tests/data/agents_cases.json`: what a model did in a turn, as answers of a backend and requests of a client."""

from __future__ import annotations

import json
from typing import Any

from tests.data_folder import DATA
from tests.server.scripted_backend import chunk

Json = dict[str, Any]

CASES: dict[str, Json] = {case["id"]: case for case in json.loads((DATA / "agents_cases.json").read_text(encoding="utf-8"))}
CODEX = {"originator": "codex_exec"}
DONE = b"data: [DONE]\n\n"


def pieces(*deltas: Json, finish: str = "stop", usage: tuple[int, int] | None = None) -> list[bytes]:
    """Return an answer of the backend."""
    chunks = [chunk({"role": "assistant", "content": ""}), *map(chunk, deltas), chunk({}, finish)]
    if usage is not None:
        counts = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
        chunks.append(chunk(None, usage=counts))
    return [*chunks, DONE]


def calling(name: str, arguments: str, number: int = 0) -> Json:
    """Return the delta of a whole call."""
    call = {"index": number, "id": f"call_{name}_{number}", "type": "function"}
    return {"tool_calls": [{**call, "function": {"name": name, "arguments": arguments}}]}


def answer_of(case: Json) -> list[bytes]:
    """Return what the backend of a case sends."""
    output = case["output"]
    if "text" in output:
        return pieces({"content": output["text"]}, finish=output.get("finish_reason", "stop"))
    return [b"data: " + json.dumps(each).encode() + b"\n\n" for each in output["chunks"]] + [DONE]


def settings_of(case: Json) -> Json:
    """Return the parsers that the text of a case needs."""
    reasoning, _, tools = case["output"].get("format", "").partition(" + ")
    return {"reasoning_parser": reasoning, "tool_call_parser": tools} if tools else {}


def request_of(case: Json) -> Json:
    """Return the request of a client of the Responses API with the tools and the history of a case."""
    items: list[Json] = []
    for message in case["messages"]:
        if message["role"] == "tool":
            items.append({"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]})
            continue
        if message["content"]:
            items.append({"type": "message", "role": message["role"], "content": message["content"]})
        for call in message.get("tool_calls", ()):
            function = call["function"]
            items.append({"type": "function_call", "call_id": call["id"], **function})
    tools = [{"type": "function", **tool.get("function", tool)} for tool in case["tools"]]
    return {"input": items, "tools": tools}
