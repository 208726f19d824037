"""Tools that a server is asked to hold the model to (`strict`), in a form that it can.

Servers compile schemas to grammars. The length of a text costs them seconds for each tool, a pattern may be read in another way
or fail the whole request, and both are ignored in places: they are left out of what is sent, and checked in what comes back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from responses_gateway.request.fields import Object

# Left out of the schemas that are sent.
_LEFT_OUT = frozenset({"maxLength", "minLength", "pattern", "format", "patternProperties", "propertyNames", "uniqueItems"})
# With these a schema is not enforced, or refused: its tool stays as it is.
_NOT_ENFORCED = frozenset({"allOf", "not", "if", "dependentRequired", "dependentSchemas", "contains", "$dynamicRef"})
_MAPS = frozenset({"properties", "$defs", "definitions"})
_LISTS = frozenset({"anyOf", "oneOf", "prefixItems"})
_SCHEMAS = frozenset({"items", "additionalProperties"})
# The most schemas of one request that are looked at, because other requests wait meanwhile, and how deep they may be.
_MOST = 4_000
_DEEPEST = 32
_DIGEST = 16


class _NotEnforced(Exception):
    """A schema cannot be enforced."""


def strict_tools(tools: Sequence[Any], refused: Collection[bytes]) -> list[Any] | None:
    """Return the tools of a chat request with `strict` where their schemas can be enforced and were not `refused`; None if
    that changes nothing. What a client has said about `strict` stays."""
    reader = _Reader()
    made = [reader.strict(tool, refused) for tool in tools]
    return made if any(one is not tool for one, tool in zip(made, tools, strict=True)) else None


def digest_of(tool: Object) -> bytes:
    """Return what a tool is known by: a digest of its name and its schema."""
    function = tool["function"]
    return blake2b(msgspec.json.encode([function["name"], function.get("parameters")]), digest_size=_DIGEST).digest()


class _Reader:
    """Reads the schemas of one request."""

    def __init__(self) -> None:
        self._left = _MOST

    def strict(self, tool: Any, refused: Collection[bytes]) -> Any:
        """Return a tool with `strict`, or as it is."""
        function = tool.get("function")
        if not isinstance(function, dict) or "strict" in function:
            return tool
        if refused and digest_of(tool) in refused:
            return tool
        try:
            parameters = self._schema(function.get("parameters"), 0)
        except _NotEnforced:
            return tool
        return {**tool, "function": {**function, "parameters": parameters, "strict": True}}

    def _schema(self, schema: Any, depth: int) -> Any:
        self._left -= 1
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict) or self._left < 0 or depth > _DEEPEST or not _NOT_ENFORCED.isdisjoint(schema):
            raise _NotEnforced
        reference = schema.get("$ref", "#/")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise _NotEnforced
        return {name: self._member(name, value, depth) for name, value in schema.items() if name not in _LEFT_OUT}

    def _member(self, name: str, value: Any, depth: int) -> Any:
        if name in _SCHEMAS:
            return self._schema(value, depth + 1)
        if name in _LISTS and isinstance(value, list):
            return [self._schema(inner, depth + 1) for inner in value]
        if name in _MAPS and isinstance(value, dict):
            return {key: self._schema(inner, depth + 1) for key, inner in value.items()}
        return value
