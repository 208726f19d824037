"""The schema of a tool's parameters, read as it stands: by the keywords that real tools use, in a bounded number of steps.

Schemas come from strangers. So no code is made of them, nothing is fetched, and whatever is not certain to be cheap (recursion,
a pattern that may backtrack, a schema without end) is `Unchecked`: neither valid nor invalid."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

Object: TypeAlias = dict[str, Any]

# Members of schemas that are looked at in one schema, how deep they may be, and how many definitions may follow each other.
_MOST_SCHEMAS = 2_000
_DEEPEST = 32
_LONGEST_CHAIN = 12
_READING = 3  # how many steps a member costs that is looked at
# The longest pattern, in characters, and how many steps matching one may take at worst.
_LONGEST_PATTERN = 300
_MOST_MATCHING = 200_000

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: type(value) is dict,
    "array": lambda value: type(value) is list,
    "string": lambda value: type(value) is str,
    "boolean": lambda value: type(value) is bool,
    "null": lambda value: value is None,
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
}
_SCHEMAS = ("additionalProperties", "items", "propertyNames", "not", "if", "then", "else")
_MAPS = ("properties", "patternProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SIZES = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_DEFINITIONS = ("$defs", "definitions")
# Keywords that decide, and that are not looked at here.
_UNREAD = frozenset({
    "$anchor", "$dynamicRef", "$recursiveRef", "contains", "dependencies", "dependentSchemas", "maxContains", "minContains",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
# An escaped character, a class of characters, a quantifier, the beginning of a group, or any other character of a pattern.
_PIECE = re.compile(r"\\.|\[\^?(?:\\.|[^\]\\\[])+\]|[*+?]\??|\{\d*(?:,\d*)?\}\??|\(\?:|.", re.DOTALL)
# Pieces that mean something else to `re`, or only to it.
_UNLIKE = re.compile(r"\\[^\WbBdDsSwWnrtfvux]|\[.*(?:--|&&|~~|\|\|)", re.DOTALL)


class Unchecked(Exception):
    """It is not certain whether a value fits, or finding out might take too long."""


class Steps:
    """Counts steps, which take a few microseconds each. Raises `Unchecked` when there are no more."""

    __slots__ = ("left",)

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, steps: int = 1) -> None:
        """Take steps."""
        self.left -= steps
        if self.left < 0:
            raise Unchecked


class ToolSchema:
    """The schema of one tool's parameters. Raises `Unchecked` for one that is no schema, or that cannot be read here."""

    __slots__ = ("_definitions", "root")

    def __init__(self, root: Any, steps: Steps) -> None:
        """Read a schema in so many steps."""
        self.root = root
        self._definitions: dict[str, Any] = {}
        if type(root) is dict:
            for place in _DEFINITIONS:
                definitions = root.get(place, {})
                _expect(type(definitions) is dict and len(definitions) <= _MOST_SCHEMAS)
                self._definitions.update((f"#/{place}/{_escaped(name)}", schema) for name, schema in definitions.items())
        _expect_no_circle({name: list(_references(schema, steps, 0)) for name, schema in self._definitions.items()})
        for reference in _references(root, steps, 0):
            _expect(reference in self._definitions)

    def resolved(self, schema: Any) -> Any:
        """Return the schema that a reference stands for, if this is one."""
        while type(schema) is dict and "$ref" in schema and len(schema) <= 3:  # with a description, say
            schema = self._definitions[schema["$ref"]]
        return schema

    def violation(self, value: Any, steps: Steps) -> str | None:
        """Return the keyword of the whole schema that a value violates; None if it fits."""
        return self._violation(self.root, value, steps)

    def fits(self, schema: Any, value: Any, steps: Steps) -> bool:
        """Tell whether a value fits a part of the schema."""
        return self._violation(schema, value, steps) is None

    def _violation(self, schema: Any, value: Any, steps: Steps) -> str | None:
        steps.take()
        if type(schema) is bool:
            return None if schema else "false"
        if "$ref" in schema:
            violation = self._violation(self._definitions[schema["$ref"]], value, steps)
            if violation is not None:
                return violation
        if value is None and schema.get("nullable") is True:
            return None
        violation = _own_violation(schema, value, steps) or self._combined(schema, value, steps)
        if violation is None and type(value) is dict:
            violation = self._in_object(schema, value, steps)
        elif violation is None and type(value) is list:
            violation = self._in_list(schema, value, steps)
        return violation

    def _combined(self, schema: Object, value: Any, steps: Steps) -> str | None:
        for one in schema.get("allOf", ()):
            violation = self._violation(one, value, steps)
            if violation is not None:
                return violation
        if "anyOf" in schema and not any(self.fits(one, value, steps) for one in schema["anyOf"]):
            return "anyOf"
        if "oneOf" in schema and sum(self.fits(one, value, steps) for one in schema["oneOf"]) != 1:
            return "oneOf"
        if "not" in schema and self.fits(schema["not"], value, steps):
            return "not"
        if "if" in schema:
            branch = "then" if self.fits(schema["if"], value, steps) else "else"
            return self._violation(schema.get(branch, True), value, steps)
        return None

    def _in_object(self, schema: Object, value: Object, steps: Steps) -> str | None:
        properties = schema.get("properties", {})
        patterns = schema.get("patternProperties", {})
        others = schema.get("additionalProperties", True)
        names = schema.get("propertyNames", True)
        if not (properties or patterns) and others is True and names is True:
            return None
        for name, member in value.items():
            steps.take()
            violation = None if names is True else self._violation(names, name, steps)
            known = name in properties
            if violation is None and known:
                violation = self._violation(properties[name], member, steps)
            for pattern, inner in patterns.items():
                if violation is None and matches(pattern, name, steps):
                    known = True
                    violation = self._violation(inner, member, steps)
            if violation is None and not known:
                violation = "additionalProperties" if others is False else self._violation(others, member, steps)
            if violation is not None:
                return violation
        return None

    def _in_list(self, schema: Object, value: list[Any], steps: Steps) -> str | None:
        first = schema.get("prefixItems", ())
        items = schema.get("items", True)
        for at, item in enumerate(value):
            inner = first[at] if at < len(first) else items
            if inner is True and at >= len(first):
                break
            violation = self._violation(inner, item, steps)
            if violation is not None:
                return "items" if violation == "false" else violation
        if schema.get("uniqueItems") is True and len(value) > 1:
            steps.take(len(value))
            if any(type(item) in (dict, list) for item in value):
                raise Unchecked
            return None if len({(type(item) is bool, item) for item in value}) == len(value) else "uniqueItems"
        return None


# ---- keywords that look at the value alone ---------------------------------------------------------------------------------


def _own_violation(schema: Object, value: Any, steps: Steps) -> str | None:
    kinds = schema.get("type")
    if kinds is not None and not any(_TYPES[kind](value) for kind in ([kinds] if type(kinds) is str else kinds)):
        return "type"
    if "enum" in schema and not _is_among(value, schema["enum"], steps):
        return "enum"
    if "const" in schema and not _is_among(value, [schema["const"]], steps):
        return "const"
    if type(value) is str:
        violation = _wrong_size(schema, value, "minLength", "maxLength")
        if violation is None and "pattern" in schema and not matches(schema["pattern"], value, steps):
            violation = "pattern"
        return violation
    if type(value) is dict:
        steps.take(len(schema.get("required", ())))
        if any(name not in value for name in schema.get("required", ())):
            return "required"
        for name, needed in schema.get("dependentRequired", {}).items():
            steps.take(1 + len(needed))
            if name in value and any(other not in value for other in needed):
                return "dependentRequired"
        return _wrong_size(schema, value, "minProperties", "maxProperties")
    if type(value) is list:
        return _wrong_size(schema, value, "minItems", "maxItems")
    return _out_of_bounds(schema, value) if type(value) in (int, float) else None


def _wrong_size(schema: Object, value: Any, least: str, most: str) -> str | None:
    if least in schema and len(value) < schema[least]:
        return least
    return most if most in schema and len(value) > schema[most] else None


def _out_of_bounds(schema: Object, value: float) -> str | None:
    if "minimum" in schema and value < schema["minimum"]:
        return "minimum"
    if "maximum" in schema and value > schema["maximum"]:
        return "maximum"
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        return "exclusiveMinimum"
    if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
        return "exclusiveMaximum"
    factor = schema.get("multipleOf")
    if factor is not None and abs(value) < 1e15:
        quotient = value / factor
        return None if abs(quotient - round(quotient)) < 1e-9 else "multipleOf"
    return None


def _is_among(value: Any, values: list[Any], steps: Steps) -> bool:
    """Tell whether a value is one of several: `true` is not 1."""
    steps.take(1 + len(values) // 8)
    if type(value) in (dict, list):
        if any(type(one) is type(value) for one in values):
            raise Unchecked
        return False
    return any(one == value and (type(one) is bool) == (type(value) is bool) for one in values)


# ---- patterns --------------------------------------------------------------------------------------------------------------


def matches(pattern: str, text: str, steps: Steps) -> bool:
    """Tell whether a pattern of JSON Schema is found in a text. Raise `Unchecked` where that might take long."""
    # The length first, because `_prepared` keeps what it is asked.
    prepared = _prepared(pattern) if len(pattern) <= _LONGEST_PATTERN else None
    if prepared is None:
        raise Unchecked
    length = len(text) + 1
    worst = prepared.choices * length**prepared.repetitions
    if worst > _MOST_MATCHING:
        raise Unchecked
    steps.take(1 + len(pattern) + worst // 100)
    try:
        return re.search(prepared.expression, text, re.ASCII) is not None
    except (re.error, OverflowError, RecursionError):
        raise Unchecked from None


class _Pattern(NamedTuple):
    """A pattern for `re`. At worst, matching it takes `choices` times the length of the text to the power of `repetitions`."""

    expression: str
    choices: int
    repetitions: int


@lru_cache(maxsize=256)
def _prepared(pattern: str) -> _Pattern | None:
    """Return a pattern as `re` reads it; None for one that may backtrack without end (it repeats a group, looks around, or
    refers back), or that `re` reads in another way."""
    pieces: list[str] = []
    choices = 1
    repetitions = 0 if pattern.startswith("^") and "|" not in pattern else 1  # because it may match anywhere
    before = ""
    for piece in _PIECE.findall(pattern):
        if piece in ("[", "]") or _UNLIKE.match(piece):
            return None
        if piece[0] in "*+?{" and pieces:
            if before == "(" or (before == ")" and piece not in ("?", "??")):
                return None
            if piece in ("?", "??"):
                choices *= 2
            elif not re.fullmatch(r"\{\d+\}", piece):
                repetitions += 1
        choices *= 2 if piece == "|" else 1
        pieces.append(r"\Z" if piece == "$" else piece)
        before = piece
    return _Pattern("".join(pieces), choices, repetitions)


# ---- reading a schema ------------------------------------------------------------------------------------------------------


def _expect(holds: bool) -> None:
    """Raise `Unchecked` for what is no schema, or none that can be read."""
    if not holds:
        raise Unchecked


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _references(schema: Any, steps: Steps, depth: int) -> Iterator[str]:
    """Yield the references in a schema, and find out whether it is one."""
    steps.take(_READING)
    if type(schema) is bool:
        return
    _expect(type(schema) is dict and depth <= _DEEPEST and _UNREAD.isdisjoint(schema))
    _expect_keywords(schema)
    if "$ref" in schema:
        _expect(type(schema["$ref"]) is str)
        yield schema["$ref"]
    for name in _SCHEMAS:
        if name in schema:
            yield from _references(schema[name], steps, depth + 1)
    for name in _MAPS:
        for inner in schema.get(name, {}).values():
            yield from _references(inner, steps, depth + 1)
    for name in _LISTS:
        for inner in schema.get(name, ()):
            yield from _references(inner, steps, depth + 1)


def _expect_keywords(schema: Object) -> None:
    kinds = schema.get("type", [])
    kinds = [kinds] if type(kinds) is str else kinds
    _expect(type(kinds) is list and all(type(kind) is str and kind in _TYPES for kind in kinds))
    _expect("type" not in schema or kinds != [])
    _expect(all(type(schema[name]) is dict for name in (*_MAPS, "dependentRequired") if name in schema))
    _expect(all(type(schema[name]) is list for name in (*_LISTS, "enum", "required") if name in schema))
    _expect(all(type(name) is str for name in schema.get("required", ())))
    _expect(all(type(schema[name]) is int for name in _SIZES if name in schema))
    _expect(all(type(schema[name]) in (int, float) for name in _BOUNDS if name in schema))
    _expect(schema.get("multipleOf", 1) > 0 and type(schema.get("pattern", "")) is str)
    for needed in schema.get("dependentRequired", {}).values():
        _expect(type(needed) is list and all(type(name) is str for name in needed))


def _expect_no_circle(references: Mapping[str, list[str]]) -> None:
    """Raise `Unchecked` if a definition refers to itself, to one that is not there, or through too many others."""
    chains: dict[str, int] = {}

    def chain(name: str, above: int) -> int:
        _expect(name in references and above <= _LONGEST_CHAIN)
        if name not in chains:
            chains[name] = _LONGEST_CHAIN  # while it is looked at: what comes back to it is a circle
            chains[name] = 1 + max((chain(other, above + 1) for other in references[name]), default=0)
        _expect(chains[name] < _LONGEST_CHAIN)
        return chains[name]

    for name in references:
        chain(name, 0)
