"""Tools in a form that every server takes, for one that has refused them as they came.

Servers read subsets of JSON Schema, each another one, and refuse the whole request for one tool: a type beside `anyOf`, or none
(Kimi), alternatives at the top (OpenAI, Anthropic), keywords outside the subset (Google, Cerebras), a length or a pattern of
which no grammar can be made (llama.cpp, LM Studio). In the plain form each schema has one type, and its members, items or
values; what else it says stands in its description."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from responses_gateway.request.fields import Object
from responses_gateway.request.loss_report import Loss
from responses_gateway.wire.errors import searched_text
from responses_gateway.wire.json_text import json_text
from responses_gateway.wire.tools import referred

SIMPLIFIED = Loss("tool", "schema", "adapted", "plain, the rest in words, where the backend refuses it as it came")
UNFORCED = Loss(
    "parameter", "tool_choice", "adapted", "the tool is offered alone, or no call is forced: the backend refuses it"
)
# The most schemas of one request that are read, because that takes 20 us each, and how deep they may be.
_MOST = 10_000
_DEEPEST = 12
# The most characters of JSON that stand in the place of references: each has all that it refers to once more.
_MOST_REFERRED = 1024 * 1024
_LONGEST = 1_000  # characters of what is told in words
# What the plain form has as well, and what says nothing.
_SENT = frozenset({
    "type", "description", "properties", "required", "items", "allOf", "anyOf", "oneOf", "$ref", "$defs", "definitions",
    "title", "$schema", "$id", "$comment",
})  # fmt: skip
# Members that schemas of one type have alone.
_OF_TYPES = {"properties": "object", "required": "object", "items": "array", "enum": "string"}
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}
_OF_LENGTH = re.compile(r"(?=.*\btoo long\b).*\bfunction\.description\b", re.DOTALL)
_OF_CHOICE = re.compile(r"tool[_ ]?choice", re.IGNORECASE)
_OF_SCHEMAS = re.compile(
    r"json.?schema|\bgrammar\b|function_?declaration|input_?schema|function_parameters|additional_?properties"
    r"|\b(?:any|one|all)_?of\b|\$(?:ref|defs|schema)\b|\b(?:tool|function)s?\b.{0,160}\b(?:schemas?|parameters|strict)\b"
    r"|\bschemas?\b.{0,160}\b(?:tool|function)s?\b",
    re.IGNORECASE | re.DOTALL,
)


def other_tools(refusal: bytes, body: Mapping[str, Any], calls_in_text: bool = False) -> Object:
    """Return the fields of a refused request in another form, if the refusal may be about its tools; else nothing. One that is
    None is left out: tools of which none may be called, unless that was said because the gateway reads `calls_in_text`."""
    text = searched_text(refusal)
    choice = body.get("tool_choice", "auto")
    if choice == "none" and not calls_in_text and _OF_CHOICE.search(text):
        return dict.fromkeys(("tools", "tool_choice", "parallel_tool_calls"))
    if choice not in ("auto", "none") and _OF_CHOICE.search(text):
        if choice == "required":
            return {"tool_choice": "auto"}
        named = choice["function"]["name"]
        return {"tools": [tool for tool in body["tools"] if tool["function"]["name"] == named], "tool_choice": "required"}
    if "tools" in body and _OF_LENGTH.match(text):
        return {"tools": [_shortened(tool) for tool in body["tools"]]}
    return {"tools": plain_tools(body["tools"])} if "tools" in body and _OF_SCHEMAS.search(text) else {}


def losses_of_tools(body: Mapping[str, Any], sent: Mapping[str, Any]) -> list[Loss]:
    """Return what a client is told of a request whose tools were given another form."""
    if "tools" not in sent:
        return []
    if sent.get("tool_choice") != body.get("tool_choice"):
        return [UNFORCED]
    return [SIMPLIFIED] if sent.get("tools") != body.get("tools") else []


def _shortened(tool: Object) -> Object:
    """Return a tool whose description may be too long with the rest of it where no server has a limit: at its parameters."""
    function = tool["function"]
    text = function.get("description") or ""
    if len(text) <= _LONGEST:
        return tool
    rest = f"{text[_LONGEST:]}\n{function['parameters'].get('description', '')}".rstrip()
    parameters = {**function["parameters"], "description": rest}
    return {**tool, "function": {**function, "description": text[:_LONGEST], "parameters": parameters}}


def plain_tools(tools: Iterable[Object]) -> list[Object]:
    """Return the tools of a chat request in the plain form, none of them strict."""
    plain = []
    reader = _PlainReader()
    for tool in tools:
        function = {name: value for name, value in tool["function"].items() if name != "strict"}
        plain.append({**tool, "function": {**function, "parameters": reader.parameters(function["parameters"])}})
    return plain


class _PlainReader:
    """Reads the schemas of the `parameters` of tools, one after the other."""

    def __init__(self) -> None:
        self._root: Object = {}
        self._left = _MOST
        self._room = _MOST_REFERRED
        self._sizes: dict[str, int] = {}  # of what the schema of this tool refers to

    def parameters(self, schema: Object) -> Object:
        """Return the schema of one tool in the plain form."""
        self._root = schema
        self._sizes = {}
        return self._plain({**schema, "type": "object"}, 0)

    def _plain(self, schema: Any, depth: int) -> Object:
        """Return a schema in the plain form, which is right for all values that the schema is right for."""
        self._left -= 1
        if not isinstance(schema, dict) or depth > _DEEPEST or self._left < 0:
            return {"type": "string"}
        whole = self._all(_listed(schema, "allOf") + self._referred(schema), depth)
        either = self._all(_listed(schema, "anyOf") or _listed(schema, "oneOf"), depth)
        words = {name: value for name, value in schema.items() if name not in _SENT and not isinstance(value, bool)}
        plain: Object = {}
        if len(either) > 1:
            words["anyOf"] = either
            plain = {name: value for name, value in either[0].items() if name in ("type", "items")}
        for part in [*whole, *either] if len(either) == 1 else whole:
            plain |= part
        values = [schema["const"]] if "const" in schema else _listed(schema, "enum")
        plain["type"] = _type_of(schema, values) or plain.get("type", "string")
        if plain["type"] == "object":
            needed = {name for name in (*plain.get("required", ()), *_listed(schema, "required")) if isinstance(name, str)}
            plain["properties"] = self._members([*whole, *either], schema.get("properties"), depth)
            plain["required"] = [name for name in plain["properties"] if name in needed]
        elif plain["type"] == "array" and ("items" in schema or "items" not in plain):
            plain["items"] = self._plain(schema.get("items"), depth + 1)
        elif values and all(isinstance(value, str) and value for value in values):
            plain["enum"] = values
            words = {name: value for name, value in words.items() if name not in ("enum", "const")}
        plain["description"] = _described(schema.get("description") or plain.get("description"), words)
        kind = plain["type"]
        fitting = {name: value for name, value in plain.items() if _OF_TYPES.get(name, kind) == kind}
        return {name: value for name, value in fitting.items() if value or name == "properties"}

    def _all(self, schemas: Iterable[Any], depth: int) -> list[Object]:
        """Return schemas in the plain form, but for null: a value may be left out."""
        return [plain for schema in schemas if (plain := self._plain(schema, depth + 1))["type"] != "null"]

    def _referred(self, schema: Object) -> list[Any]:
        """Return what a schema refers to, in a list; what has no room for that is nothing."""
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return []
        meant = referred(reference, self._root)
        if reference not in self._sizes:
            self._sizes[reference] = len(json_text(meant))
        self._room -= self._sizes[reference]
        return [meant if self._room >= 0 else None]

    def _members(self, parts: Sequence[Object], own: Any, depth: int) -> Object:
        """Return the members of an object: its own ones, and those of its parts."""
        members: Object = {}
        for part in parts:
            for name, inner in part.get("properties", {}).items():
                if members.setdefault(name, inner) != inner:
                    members[name] = {"type": inner["type"]}
        return members | {name: self._plain(inner, depth + 1) for name, inner in (own if isinstance(own, dict) else {}).items()}


def _described(description: Any, words: Object) -> str:
    """Return a description with what else is told of a schema."""
    form = f"JSON Schema: {json_text(words)}" if words else ""
    return "\n".join(filter(None, [description if isinstance(description, str) else "", form if len(form) < _LONGEST else ""]))


def _type_of(schema: Object, values: Sequence[Any]) -> str | None:
    """Return the type of a schema, the first one of several; None if it tells none."""
    kinds = schema.get("type")
    named = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)]
    if named:
        return next((kind for kind in named if kind != "null"), "null")
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema else _TYPES.get(type(values[0])) if values else None


def _listed(schema: Object, name: str) -> list[Any]:
    value = schema.get(name)
    return value if isinstance(value, list) else []
