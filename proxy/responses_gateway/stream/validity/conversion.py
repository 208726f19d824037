"""Values of the wrong type, where the schema permits one type alone and the value says the same in it."""

from __future__ import annotations

import re
from typing import Any

from responses_gateway.stream.validity.malformed import decoded
from responses_gateway.stream.validity.schema import Steps, ToolSchema, Unchecked

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?")
_BOOLEANS = {"true": True, "false": False, "True": True, "False": False}
# Above this, not every number is an integer that floats can tell apart.
_LARGEST = 2**53
_NUMBERS = ({"integer"}, {"number"}, {"integer", "number"})
_CONTAINERS = ({"array"}, {"object"}, {"array", "object"})
# The longest list or object in a string that is decoded, in characters.
_LONGEST = 128 * 1024


class Conversion:
    """Converts the values of one call. `kinds` are those of the repairs, each once."""

    def __init__(self, schema: ToolSchema, steps: Steps, *, drops_nulls: bool) -> None:
        """`drops_nulls`: null stands for an optional property that is left out, where it is not permitted."""
        self._schema = schema
        self._steps = steps
        self._drops_nulls = drops_nulls
        self._kinds: dict[str, None] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """What was converted, by kind."""
        return tuple(self._kinds)

    def converted(self, value: Any) -> Any:
        """Return a value as the whole schema wants it, as far as it can be converted. Raise `Unchecked`."""
        return self._converted(self._schema.root, value)

    def _converted(self, schema: Any, value: Any) -> Any:
        self._steps.take()
        schema = self._schema.resolved(schema)
        if type(schema) is not dict:
            return value
        value = self._of_type(schema, value)
        for name in ("anyOf", "oneOf"):
            if name in schema and not any(self._schema.fits(one, value, self._steps) for one in schema[name]):
                value = self._of_one(schema[name], value)
        for one in schema.get("allOf", ()):
            value = self._converted(one, value)
        if type(value) is dict:
            return self._in_object(schema, value)
        if type(value) is list and schema.get("items") not in (None, {}, True):
            return [self._converted(schema["items"], item) for item in value]
        return value

    def _of_one(self, schemas: list[Any], value: Any) -> Any:
        """Return what a value is under the only one of several schemas under which it can be anything."""
        before = dict(self._kinds)
        readings: list[tuple[Any, dict[str, None]]] = []
        for schema in schemas:
            self._kinds = dict(before)
            reading = self._converted(schema, value)
            if self._schema.fits(schema, reading, self._steps):
                readings.append((reading, self._kinds))
        self._kinds = before
        if len(readings) != 1:
            return value
        found, self._kinds = readings[0]
        return found

    def _of_type(self, schema: dict[str, Any], value: Any) -> Any:
        kinds = schema.get("type")
        types = {kinds} if type(kinds) is str else set(kinds or ())
        types.discard("null")
        if type(value) is float and types == {"integer"} and value.is_integer() and abs(value) < _LARGEST:
            self._kinds["integral_number"] = None
            return int(value)
        if type(value) is not str:
            return value
        if types in _NUMBERS and (_INTEGER if types == {"integer"} else _NUMBER).fullmatch(value):
            self._kinds["decoded_scalar"] = None
            return decoded(value)
        if types == {"boolean"} and value in _BOOLEANS:
            self._kinds["decoded_scalar"] = None
            return _BOOLEANS[value]
        return self._decoded(types, value) if types in _CONTAINERS else value

    def _decoded(self, types: set[str], text: str) -> Any:
        if len(text) > _LONGEST:
            raise Unchecked
        try:
            value = decoded(text)
        except ValueError:
            return text
        if not ((type(value) is list and "array" in types) or (type(value) is dict and "object" in types)):
            return text
        self._kinds["decoded_string"] = None
        return value

    def _in_object(self, schema: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        required = schema.get("required", ())
        members: dict[str, Any] = {}
        for name, member in value.items():
            inner = properties.get(name, others)
            optional = name in properties and name not in required
            if member is None and optional and self._drops_nulls and not self._schema.fits(inner, None, self._steps):
                self._kinds["null_left_out"] = None
            else:
                members[name] = self._converted(inner, member)
        return members
