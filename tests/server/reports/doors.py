"""The two protocols of clients, as a case of a report sees them: how its request is sent, and what its answer says in short."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.judges import judge_message
from tests.server.running_gateway import Answer, events_of, final_of

Json = dict[str, Any]


class Outcome(NamedTuple):
    """What came of one request. `known` has the members that `want` of a case names; `turn` is kept for later turns: the
    response or the message."""

    known: Json
    turn: Json


# ---- requests ----------------------------------------------------------------------------------------------------------


def body_of(door: str, request: Json, turns: list[Json]) -> Json:
    """Return the body for a request in short. `turns`: what came of the earlier ones."""
    tools = [_tool(door, tool) if isinstance(tool, str) else tool for tool in request.get("tools", [])]
    body: Json = {**request, **({"tools": tools} if tools else {})}
    if door == "responses":
        body.setdefault("input", "hi")
    else:
        body.setdefault("max_tokens", 1000)
        body.setdefault("messages", [{"role": "user", "content": "hi"}])
    return {name: _filled(value, turns) for name, value in body.items()}


def _tool(door: str, text: str) -> Json:
    """Return the function that `name(path, days:integer)` stands for; without brackets there is one parameter, `q`."""
    name, bracket, rest = text.partition("(")
    names = [part.strip() for part in rest.rstrip(")").split(",") if part.strip()] if bracket else ["q"]
    properties = {parameter.partition(":")[0]: {"type": parameter.partition(":")[2] or "string"} for parameter in names}
    schema = {"type": "object", "properties": properties}
    if door == "messages":
        return {"name": name, "description": f"Call {name}.", "input_schema": schema}
    return {"type": "function", "name": name, "description": f"Call {name}.", "parameters": schema}


def _filled(value: Any, turns: list[Json]) -> Any:
    """Return a value with what stands for something of an earlier turn replaced by it."""
    if isinstance(value, list):
        return [inner for entry in value for inner in _filled_entries(entry, turns)]
    if not isinstance(value, dict):
        return value
    if "$id" in value:
        return turns[value["$id"]]["id"]
    return {name: _filled(inner, turns) for name, inner in value.items()}


def _filled_entries(entry: Any, turns: list[Json]) -> list[Any]:
    if not isinstance(entry, dict):
        return [_filled(entry, turns)]
    if "$output" in entry:
        return list(turns[entry["$output"]]["output"])
    if "$results" in entry:
        calls = [item for item in turns[entry["of"]]["output"] if item["type"] == "function_call"]
        return [{"type": "function_call_output", "call_id": call["call_id"], "output": entry["$results"]} for call in calls]
    if "$assistant" in entry:
        return [{"role": "assistant", "content": turns[entry["$assistant"]]["content"]}]
    if "$tool_results" in entry:
        calls = [block for block in turns[entry["of"]]["content"] if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": entry["$tool_results"]} for call in calls]
        return [{"role": "user", "content": results}]
    return [_filled(entry, turns)]


# ---- answers -----------------------------------------------------------------------------------------------------------


def outcome_of(door: str, answer: Answer, *, streamed: bool) -> Outcome:
    """Return what an answer says in short, after its judges have accepted it."""
    known: Json = {"http": answer.status}
    losses = answer.headers.get("x-responses-gateway-losses")
    if losses is not None:
        known["losses"] = losses
    if (
        answer.headers["content-type"].startswith("application/json")
        and "error" in (answer.json or {})
        and answer.status >= 400
    ):
        return Outcome({**known, "status": "failed", "items": [], "error": answer.json["error"]}, {})
    if door == "responses":
        return _of_response({**known}, final_of(answer.body) if streamed else answer.json)
    return _of_stream(known, answer.body) if streamed else _of_message(known, answer.json)


def _of_response(known: Json, response: Json) -> Outcome:
    known |= {
        "status": response["status"],
        "items": [_item(item) for item in response["output"]],
        "usage": _usage(response["usage"]),
        "error": response["error"],
    }
    return Outcome(known, response)


def _item(item: Json) -> Json:
    if item["type"] == "message":
        return {**item, "text": "".join(part.get("text", part.get("refusal", "")) for part in item["content"])}
    if item["type"] == "reasoning":
        return {**item, "text": "".join(part["text"] for part in item.get("content") or item["summary"])}
    if item["type"] == "function_call":
        return {**item, "arguments": _parsed(item["arguments"])}
    return item


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _usage(usage: Json | None) -> Json:
    if usage is None:
        return {}
    return {**usage, **usage["input_tokens_details"], **usage["output_tokens_details"]}


def _of_stream(known: Json, body: bytes) -> Outcome:
    """Return the outcome of a stream of the Messages API, put together as its clients do."""
    assert judge_message(body) == []
    message: Json = {}
    for event in events_of(body):
        kind = event["type"]
        if kind == "message_start":
            message = {**event["message"], "content": []}
        elif kind == "content_block_start":
            message["content"].append({**event["content_block"], "json": ""})
        elif kind == "content_block_delta":
            _grow(message["content"][-1], event["delta"])
        elif kind == "message_delta":
            message = {**message, **event["delta"], "usage": {**message["usage"], **event["usage"]}}
        elif kind == "error":
            return Outcome({**known, "status": "failed", "error": event["error"]}, {})
    blocks = []
    for block in message["content"]:
        text = block.pop("json")
        blocks.append({**block, "input": json.loads(text or "{}")} if block["type"] == "tool_use" else block)
    return _of_message(known, {**message, "content": blocks})


def _grow(block: Json, delta: Json) -> None:
    members = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "json"}
    member = members[delta["type"]]
    block[member] = block.get(member, "") + delta.get("partial_json" if member == "json" else member, "")


def _of_message(known: Json, message: Json) -> Outcome:
    limits = {"max_tokens", "model_context_window_exceeded"}
    known |= {
        "status": "incomplete" if message["stop_reason"] in limits else "completed",
        "stop_reason": message["stop_reason"],
        "items": [_block(block) for block in message["content"]],
        "usage": message["usage"],
    }
    return Outcome(known, message)


def _block(block: Json) -> Json:
    if block["type"] == "tool_use":
        return {**block, "type": "function_call", "arguments": block["input"]}
    if block["type"] == "thinking":
        return {**block, "type": "reasoning", "text": block["thinking"]}
    return {**block, "type": "message"} if block["type"] == "text" else block
