"""What is known of the calls that a request permits: how valid each one is, and what is handed over in its place.
Values of the wrong type are converted where the schema permits one type alone and the value says the same in it.

A call is repaired only if its client would refuse it, and if what is handed over is valid; any other goes out as written."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from responses_gateway.stream.validity.malformed import MeantObject, decoded, read_malformed
from responses_gateway.stream.validity.schema import Steps, ToolSchema, Unchecked

Validity: TypeAlias = Literal["valid", "invalid_json", "schema", "unknown_name", "unchecked"]
# Steps for one call, and for all calls of a response together: some 20 and 50 ms.
_STEPS_OF_A_CALL = 6_000
_STEPS = 15_000
_LONGEST = 1024 * 1024  # arguments that are longer are not checked, in bytes
# The repairs that change the arguments of a call of the client's tools.
REPAIRS = frozenset({
    "control_character", "decoded_scalar", "decoded_string", "extra_bracket", "fence", "integral_number", "invalid_escape",
    "missing_bracket", "null_left_out", "python_literal", "stringified_arguments", "trailing_comma", "trailing_text",
})  # fmt: skip

_any_object = msgspec.json.Decoder(dict[str, Any])
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?")
_BOOLEANS = {"true": True, "false": False, "True": True, "False": False}
# Above this, not every number is an integer that floats can tell apart.
_LARGEST = 2**53
_NUMBERS = ({"integer"}, {"number"}, {"integer", "number"})
_CONTAINERS = ({"array"}, {"object"}, {"array", "object"})
_LONGEST_VALUE = 128 * 1024  # the longest list or object in a string that is decoded, in characters


class CheckedCall(NamedTuple):
    """How valid a call was as the model wrote it, with the keyword that it violates; the arguments to hand over, and what of
    them was repaired, by kind."""

    validity: Validity
    arguments: str
    keyword: str = ""
    repairs: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The validity, and the keyword if there is one."""
        return f"{self.validity}:{self.keyword}" if self.keyword else self.validity


class CallRules:
    """The tools of one request. `repairs`: calls that the client would refuse are repaired, so that their arguments are held
    until they are whole."""

    __slots__ = ("_drops_nulls", "_left", "_parameters", "_schemas", "_tools", "repairs")

    def __init__(self, tools: Sequence[Any], *, repairs: bool, drops_nulls: bool) -> None:
        """`tools` are those of the chat request. `drops_nulls`: the client refuses null in the place of what may be absent."""
        self.repairs = repairs
        self._tools = tools
        self._drops_nulls = drops_nulls
        self._parameters: dict[str, Any] | None = None  # of each tool, once a call came
        self._schemas: dict[str, ToolSchema | None] = {}
        self._left = Steps(_STEPS)

    def requires_arguments(self, name: str) -> bool:
        """Tell whether a call without arguments is left as it is: where calls are repaired, and a tool requires some."""
        return self.repairs and self.has_required(name)

    def has_required(self, name: str) -> bool:
        """Tell whether a tool requires arguments."""
        parameters = self._of(name)
        return type(parameters) is dict and parameters.get("required", []) != []

    def check(self, name: str, arguments: str, *, ended: bool) -> CheckedCall:
        """Return what becomes of a call. `ended`: the model has ended it, and no limit."""
        parameters = self._of(name)
        if parameters is None:
            return CheckedCall("unknown_name", arguments)
        value = _read(arguments)
        steps = Steps(min(_STEPS_OF_A_CALL, self._left.left))
        most = steps.left
        try:
            return self._checked(name, parameters, arguments, value, steps, ended=ended)
        except (Unchecked, RecursionError, ArithmeticError):  # of numbers beyond those of floats
            return CheckedCall("invalid_json" if value is None else "unchecked", arguments)
        finally:
            self._left.left -= most - max(0, steps.left)

    def _checked(
        self, name: str, parameters: Any, arguments: str, value: dict[str, Any] | None, steps: Steps, *, ended: bool
    ) -> CheckedCall:
        if len(arguments) > _LONGEST:
            raise Unchecked
        schema = self._schema(name, parameters, steps)
        if value is None:
            checked = CheckedCall("invalid_json", arguments)
        else:
            keyword = schema.violation(value, steps)
            if keyword is None:
                return CheckedCall("valid", arguments)
            checked = CheckedCall("schema", arguments, keyword)
        return self._repaired(checked, schema, value, steps) if self.repairs and ended else checked

    def _of(self, name: str) -> Any:
        """Return the parameters of a tool; None for a name that is none's."""
        if self._parameters is None:
            functions = [tool["function"] for tool in self._tools if "function" in tool]
            schemas = {function["name"]: function.get("parameters") for function in functions}
            self._parameters = {name: True if parameters is None else parameters for name, parameters in schemas.items()}
        return self._parameters.get(name)

    def _schema(self, name: str, parameters: Any, steps: Steps) -> ToolSchema:
        if name not in self._schemas:
            self._schemas[name] = None
            self._schemas[name] = ToolSchema(parameters, steps)
        schema = self._schemas[name]
        if schema is None:
            raise Unchecked
        return schema

    def _repaired(self, checked: CheckedCall, schema: ToolSchema, value: Any, steps: Steps) -> CheckedCall:
        """Return the call with the arguments that were meant, if there is one reading of them, and it is valid."""
        try:
            reading = read_malformed(checked.arguments, steps) if value is None else MeantObject(decoded(checked.arguments), ())
        except ValueError:  # a key stands twice
            return checked
        if reading is None:
            return checked
        conversion = Conversion(schema, steps, drops_nulls=self._drops_nulls)
        value = conversion.converted(reading.value)
        repairs = (*reading.kinds, *conversion.kinds)
        if not repairs or schema.violation(value, steps) is not None:
            return checked
        try:
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            text.encode()
        except (ValueError, RecursionError):  # half a surrogate pair, or a number that is none
            return checked
        return checked._replace(arguments=text, repairs=repairs)


def _read(arguments: str) -> dict[str, Any] | None:
    """Return the object that arguments are; None if they are none."""
    try:
        return _any_object.decode(arguments)
    except (ValueError, RecursionError):
        return None


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
        meaning, self._kinds = readings[0]
        return meaning

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
        if len(text) > _LONGEST_VALUE:
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
