"""Schemas of tools in the form that every server takes.

JSON Schema lets be left out what servers insist on: one tool whose parameters are an object without `properties` makes LM
Studio refuse the request, OpenAI's rules want the `items` of an array, and whatever checks schemas stumbles over a null, or
over the empty list that PHP writes for an empty object. What is filled in here says what its absence says, and what is taken
out says nothing."""

from __future__ import annotations

from typing import Any

from responses_gateway.request.fields import Object

# Members of a schema whose values are schemas by name, schemas, or lists of schemas. All others are left as they are.
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_SCHEMAS = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems", "items"})
# Members that may be null: what a value is, not what is said of it.
_VALUES = frozenset({"const", "default", "example", "examples"})
_NESTED = (dict, list)  # once, because an agent's tools have hundreds of members, in each of its turns
# The most schemas of one request that are looked at, since other requests wait meanwhile, and how deep they may be.
_MOST = 10_000
_DEEPEST = 128


class SchemaReader:
    """Reads the schemas of the tools of one request."""

    def __init__(self) -> None:
        self._left = _MOST

    def parameters(self, schema: Object) -> Object:
        """Return the schema of a function's parameters, which are an object, with all that servers insist on."""
        filled = self._schema(schema, 0)
        kind = filled.get("type")
        if kind is None or (isinstance(kind, list) and "object" in kind):
            kind = "object"
        if kind != "object" or (filled.get("type") == "object" and "properties" in filled):
            return filled
        return {**filled, "type": "object", "properties": filled.get("properties", {})}

    def _schema(self, schema: Object, depth: int) -> Object:
        if self._left <= 0 or depth > _DEEPEST:
            return schema
        self._left -= 1
        filled: Object = {}
        for name, value in schema.items():
            if isinstance(value, _NESTED):
                filled[name] = self._member(name, value, depth + 1)
            elif value is not None or name in _VALUES:
                filled[name] = value
        kind = schema.get("type")
        if kind in ("object", "array") or isinstance(kind, list):
            filled.update(_missing(schema, kind))
        return filled

    def _member(self, name: str, value: Any, depth: int) -> Any:
        """Return a member of a schema that is an object or a list."""
        if len(value) > self._left:
            return value
        if isinstance(value, list):
            if not value and (name in _MAPS or name == "items"):
                return {}
            return [self._inner(schema, depth) for schema in value] if name in _LISTS else value
        if name in _MAPS:
            return {key: self._inner(schema, depth) for key, schema in value.items()}
        return self._schema(value, depth) if name in _SCHEMAS else value

    def _inner(self, schema: Any, depth: int) -> Any:
        """Return a schema; true and null allow anything."""
        return self._schema(schema, depth) if isinstance(schema, dict) else {} if schema in (True, None) else schema


def _missing(schema: Object, kind: Any) -> Object:
    """Return the members that a schema of this type should have, and has not."""
    kinds = kind if isinstance(kind, list) else (kind,)
    missing: Object = {}
    if "object" in kinds and schema.get("properties") is None:
        missing["properties"] = {}
    if "array" in kinds and schema.get("items") in (None, True) and "prefixItems" not in schema:
        missing["items"] = {}
    return missing
