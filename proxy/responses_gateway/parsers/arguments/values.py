"""Type parameter values that models write as plain text, by the JSON schema of the tool.

The order of attempts is that of vLLM: null, integer, number, boolean, object or array, string. A value that fits none of
the types of its schema stays a string."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring
from typing import Any

from responses_gateway.wire.json_text import refuse_constant
from responses_gateway.wire.tools import referred

_SURROGATE = re.compile("[\ud800-\udfff]")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS = {"true": "true", "false": "false", "1": "true", "0": "false"}
_ALIASES = {
    **dict.fromkeys(("str", "text", "varchar", "char", "enum"), "string"),
    **dict.fromkeys(("int", "int32", "int64", "uint", "uint32", "uint64", "long", "short", "unsigned"), "integer"),
    **dict.fromkeys(("float", "float32", "float64", "double"), "number"),
    "bool": "boolean",
    "dict": "object",
    **dict.fromkeys(("arr", "list", "sequence"), "array"),
}
_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array", type(None): "null"}
# What a schema means that names no type.
_SHAPES = {"properties": "object", "additionalProperties": "object", "items": "array", "prefixItems": "array"}
STRING = frozenset({"string"})
_MOST = 1000  # schemas within schemas, and references, that are followed


def escape(text: str) -> str:
    """Return `text` as the inside of a JSON string."""
    inside = encode_basestring(text)[1:-1]
    if inside.isascii():
        return inside
    # A lone surrogate has no UTF-8 form; as an escape it is still JSON.
    return _SURROGATE.sub(lambda half: f"\\u{ord(half.group()):04x}", inside)


def dumps(value: Any) -> str:
    """Return `value` as JSON text that can be encoded."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isascii() or not _SURROGATE.search(text) else json.dumps(value)


def types_of(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """Return the JSON types that a schema allows; "string" where it names none."""
    return frozenset().union(*map(_own_types, parts_of(schema, root))) or STRING


def parts_of(schema: Any, root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """List the schemas that a schema consists of: itself, its branches, and what local references in them stand for."""
    parts: dict[int, Mapping[str, Any]] = {}  # each once, because those that refer to each other have endless paths
    left = [schema]
    while left and len(parts) < _MOST:
        part = left.pop()
        if isinstance(part, Mapping) and id(part) not in parts:
            parts[id(part)] = part
            for key in ("anyOf", "oneOf", "allOf"):
                branches = part.get(key)
                left += branches if isinstance(branches, list) else []
            reference = part.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/"):
                left.append(referred(reference, root))
    return list(parts.values())


class ParameterTypes:
    """What the schema of a tool says of its parameters."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        properties = schema.get("properties")
        self.properties: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
        required = schema.get("required")
        names = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
        self.required = names.intersection(self.properties)
        self.expected = self.required if isinstance(required, list) else set(self.properties)
        self.doubted: set[str] = set()  # those that were left open in the value of another

    def conversion(self, key: str, groups: Mapping[str, str | None]) -> Callable[[str], str] | None:
        """Return the function that makes the value JSON; None if it is a string in any case."""
        if groups.get("text") is not None:
            return None
        if groups.get("json") is not None:
            return given
        if key not in self.properties:
            return obvious
        types = types_of(self.properties[key], self._schema)
        return None if types == STRING else lambda text: typed(text, types)


def _own_types(schema: Mapping[str, Any]) -> set[str]:
    """Return the types that a schema names itself."""
    named = schema.get("type")
    names = named if isinstance(named, list) else [named]
    types = {_ALIASES.get(name.lower(), name.lower()) for name in names if isinstance(name, str)}
    samples = schema.get("enum")
    samples = list(samples) if isinstance(samples, list) else []
    if "const" in schema:
        samples.append(schema["const"])
    if "type" not in schema:
        types.update(_KINDS[type(sample)] for sample in samples)
        types.update(kind for keyword, kind in _SHAPES.items() if keyword in schema)
    if types and schema.get("nullable") is True:
        types.add("null")
    return types


def typed(text: str, types: frozenset[str]) -> str:
    """Return the JSON text for a value written as `text`, of one of `types`."""
    bare = text.strip()
    for attempt in (_null, _number, _boolean, _structure):
        value = attempt(bare, types)
        if value is not None:
            return value
    return f'"{escape(text)}"'


def obvious(text: str) -> str:
    """Return the JSON text for a value without a schema: a string, unless it plainly is something else in JSON."""
    bare = text.strip()
    if bare in ("true", "false", "null") or _JSON_NUMBER.fullmatch(bare):
        return bare
    value = _loads(bare) if bare[:1] in ("{", "[") else None
    return f'"{escape(text)}"' if value is None else dumps(value)


def given(text: str) -> str:
    """Return the JSON text for a value that the markup itself declares to be JSON; a string if it is not."""
    if text.strip() == "null":
        return "null"
    value = _loads(text)
    return f'"{escape(text)}"' if value is None else dumps(value)


def _null(text: str, types: frozenset[str]) -> str | None:
    return "null" if "null" in types and text.lower() in ("null", "none") else None


def _number(text: str, types: frozenset[str]) -> str | None:
    if types.isdisjoint(("number", "integer")) or not _NUMBER.fullmatch(text):
        return None
    if _INTEGER.fullmatch(text) and len(text) < 4000:
        return str(int(text))
    value = float(text)
    if not math.isfinite(value):
        return None
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return repr(value) if "number" in types else None


def _boolean(text: str, types: frozenset[str]) -> str | None:
    return _WORDS.get(text.lower()) if "boolean" in types else None


def _structure(text: str, types: frozenset[str]) -> str | None:
    value = None if types.isdisjoint(("object", "array")) else _loads(text)
    if value is None or (types >= STRING and _KINDS.get(type(value)) not in types - STRING):
        return None  # where a text is allowed, `2024` or `true` is one
    return dumps(value)


def _loads(text: str) -> Any:
    """Return the value of JSON text, or of a Python literal that JSON can express; None if it is neither."""
    try:
        return json.loads(text, parse_constant=refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        pass
    try:
        value = ast.literal_eval(text.strip())
        json.dumps(value, allow_nan=False)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):  # it could not be written as JSON again
        raise ValueError(f"{text} is too large")
    return number
