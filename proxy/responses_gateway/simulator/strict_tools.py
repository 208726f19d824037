"""Strict tools: a server that enforces their schemas, one that ignores `strict`, and one whose template shows it to the model.

A simulated model writes the arguments that the user dictates (`with the arguments {…}`), whatever the schema permits."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from responses_gateway.simulator.chat_request import ChatRequest
from responses_gateway.simulator.schema import example
from responses_gateway.simulator.script import CallTool, Script, call

# `renders`: the schema is enforced, and the prompt has `strict`, as with vLLM's templates.
StrictTools: TypeAlias = Literal["enforces", "renders", "ignores"]
_DICTATION = "with the arguments "
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def read_by_model(request: ChatRequest, server: StrictTools) -> ChatRequest:
    """Return a request as its prompt has it."""
    tools = request.body.get("tools")
    if server == "renders" or not tools:
        return request
    return ChatRequest({**request.body, "tools": [_without_strict(tool) for tool in tools]})


def constrained(script: Script, request: ChatRequest, server: StrictTools) -> Script:
    """Return a script with the arguments that the user dictates, as far as the server lets them pass."""
    strict = {} if server == "ignores" else _strict_schemas(request.body.get("tools") or ())
    dictated = _dictated(request.question)
    if dictated is None and not strict:
        return script
    return replace(script, steps=tuple(_step(step, dictated, strict) for step in script.steps))


def _step(step: Any, dictated: str | None, strict: dict[str, dict[str, Any]]) -> Any:
    if not isinstance(step, CallTool):
        return step
    written = step if dictated is None else CallTool(step.name, dictated)
    schema = strict.get(step.name)
    return written if schema is None or _fits(written.arguments, schema) else call(step.name, example(schema))


def _dictated(question: str) -> str | None:
    _, marker, text = question.partition(_DICTATION)
    try:
        return text[: json.JSONDecoder().raw_decode(text)[1]] if marker else None
    except (ValueError, RecursionError):
        return None


def _strict_schemas(tools: Iterable[Any]) -> dict[str, dict[str, Any]]:
    functions = [tool["function"] for tool in tools if isinstance(tool, dict) and isinstance(tool.get("function"), dict)]
    return {one["name"]: one.get("parameters") or {"type": "object"} for one in functions if one.get("strict")}


def _fits(arguments: str, schema: dict[str, Any]) -> bool:
    """Tell whether arguments have the keys and the types of a schema: more than that no test asks for."""
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    properties = schema.get("properties") or {}
    if not isinstance(values, dict) or not set(schema.get("required") or ()) <= values.keys() <= properties.keys():
        return False
    return all(_is_permitted(value, properties[name]) for name, value in values.items())


def _is_permitted(value: Any, schema: Any) -> bool:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(kind, str):
        return True
    return isinstance(value, _TYPES.get(kind, object)) and value in schema.get("enum", [value])


def _without_strict(tool: Any) -> Any:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or "strict" not in function:
        return tool
    return {**tool, "function": {name: value for name, value in function.items() if name != "strict"}}
