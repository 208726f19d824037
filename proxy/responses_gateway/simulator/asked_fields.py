"""Fields that a prompt asks for by name, with Python types, as DSPy does instead of giving a JSON schema."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

# `[[ ## name ## ]]` where each field follows a marker, `name` where the answer is JSON.
_MARKED = "Respond with the corresponding output fields, starting with the field "
_AS_JSON = "Respond with a JSON object in the following order of fields: "
_FIELD = re.compile(r"`(?:\[\[ ## )?(?P<name>\w+)(?: ## \]\])?`(?: \(must be formatted as a valid Python (?P<type>[^)]*)\))?")
_END = "completed"
_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "dict": "object", "list": "array", "NoneType": "null"}


def marked_fields(text: str) -> dict[str, Any] | None:
    """Return the JSON schema of the fields of an answer in which each field stands behind a marker with its name; None if the
    text does not ask for such an answer."""
    return _fields_behind(_MARKED, text)


def json_fields(text: str) -> dict[str, Any] | None:
    """Return the JSON schema of the fields of a JSON object that is asked for by the names of its fields; None if none is."""
    return _fields_behind(_AS_JSON, text)


def with_markers(values: dict[str, Any]) -> str:
    """Write values with their markers, and the marker of the end."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    parts = [f"[[ ## {name} ## ]]\n{text}\n\n" for name, text in texts.items()]
    return "".join([*parts, f"[[ ## {_END} ## ]]"])


def _fields_behind(words: str, text: str) -> dict[str, Any] | None:
    _, words_there, listed = text.rpartition(words)
    if not words_there:
        return None
    properties = {field["name"]: _schema(field["type"] or "str") for field in _FIELD.finditer(listed.partition("\n")[0])}
    properties.pop(_END, None)
    return {"type": "object", "properties": properties, "required": list(properties)}


def _schema(annotation: str) -> dict[str, Any]:
    """Return the JSON schema of a Python type; that of a text for the types that this simulator does not know."""
    kind, _, inner = annotation.removesuffix("]").partition("[")
    if kind == "Literal":
        return {"enum": list(_literals(inner))}
    schema: dict[str, Any] = {"type": _TYPES.get(kind, "string")}
    return {**schema, "items": _schema(inner)} if kind == "list" and inner else schema


def _literals(text: str) -> tuple[Any, ...]:
    try:
        return tuple(ast.literal_eval(f"({text},)"))
    except (ValueError, SyntaxError):
        return (text,)
