"""Make up a value that fits a JSON schema: always the same value for the same schema."""

from __future__ import annotations

from typing import Any

from responses_gateway.wire.tools import referred

_DEPTH = 8
# example strings, by words in the name of the property
_SAMPLES = {
    "city": "Paris",
    "location": "Paris",
    "country": "France",
    "unit": "celsius",
    "email": "ada@example.com",
    "url": "https://example.com/",
    "path": "notes.txt",
    "file": "notes.txt",
    "query": "weather in Paris",
    "word": "gateway",
    "title": "A simulated conversation",
    "name": "Ada",
    "date": "2026-01-31",
    "time": "12:00:00",
    "timezone": "Europe/Paris",
    "language": "English",
    "message": "Hello from the simulator.",
    "text": "Hello from the simulator.",
    "cmd": "echo hello",
    "command": "echo hello",
}
_FORMATS = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "email": "ada@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def example(schema: Any, name: str = "", root: Any = None, depth: int = 0) -> Any:
    """Make a value for `schema` (a dict, or True for anything). Required properties are always there, optional ones only near
    the root. Supports type, enum, const, default, properties, items, anyOf/oneOf/allOf, `$ref` inside the document, and the
    limits of strings, numbers and arrays, but not patterns. Raises `ValueError` if the properties of a schema are invalid."""
    root = schema if root is None else root
    schema = _resolved(schema, root)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = _kind(schema)
    if kind == "object":
        return _object(schema, root, depth)
    if kind == "array":
        return _array(schema, name, root, depth)
    if kind in ("integer", "number"):
        return _number(schema, kind)
    if kind == "boolean":
        return True
    return None if kind == "null" else _string(schema, name)


def _resolved(schema: Any, root: Any, depth: int = 0) -> dict[str, Any]:
    if not isinstance(schema, dict) or depth > _DEPTH:
        return {}
    if isinstance(schema.get("$ref"), str):
        return _resolved(referred(schema["$ref"], root), root, depth + 1)
    merged = {key: value for key, value in schema.items() if key not in ("allOf", "anyOf", "oneOf")}
    for part in schema.get("allOf") or ():
        resolved = _resolved(part, root, depth + 1)
        merged["properties"] = {**merged.get("properties", {}), **resolved.get("properties", {})}
        merged["required"] = [*merged.get("required", ()), *resolved.get("required", ())]
        merged = {**resolved, **{key: value for key, value in merged.items() if value}}
    choices = [_resolved(part, root, depth + 1) for part in schema.get("anyOf") or schema.get("oneOf") or ()]
    chosen = next((choice for choice in choices if choice.get("type") != "null"), choices[0] if choices else {})
    return {**chosen, **merged}


def _kind(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((entry for entry in kind if entry != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema else "string"


def _object(schema: dict[str, Any], root: Any, depth: int) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    required = schema.get("required") or ()
    if not isinstance(properties, dict):
        raise ValueError("Invalid JSON schema: 'properties' must be an object.")
    if not isinstance(required, list | tuple) or not all(isinstance(key, str) for key in required):
        raise ValueError("Invalid JSON schema: 'required' must be a list of strings.")
    wanted = [key for key in properties if key in required or (depth < 2 and not required)]
    wanted += [key for key in required if key not in properties]
    if depth > _DEPTH:
        return {}
    return {key: example(properties.get(key, True), key, root, depth + 1) for key in wanted}


def _array(schema: dict[str, Any], name: str, root: Any, depth: int) -> list[Any]:
    if depth > _DEPTH:
        return []
    minimum = int(schema.get("minItems") or 0)
    length = max(minimum, min(1, int(schema.get("maxItems", 1))))
    return [example(schema.get("items", True), name, root, depth + 1) for _ in range(length)]


def _number(schema: dict[str, Any], kind: str) -> int | float:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    step = 1 if kind == "integer" else 0.5
    value = 3 if low is None else low + (step if "exclusiveMinimum" in schema else 0)
    if high is not None and value > high:
        value = high - (step if "exclusiveMaximum" in schema else 0)
    return int(value) if kind == "integer" else float(value)


def _string(schema: dict[str, Any], name: str) -> str:
    text = _FORMATS.get(str(schema.get("format"))) or _sample(name)
    text = text.ljust(int(schema.get("minLength") or 0), ".")
    longest = schema.get("maxLength")
    return text if longest is None else text[: int(longest)]


def _sample(name: str) -> str:
    return next((text for key, text in _SAMPLES.items() if key in name.lower()), "example")
