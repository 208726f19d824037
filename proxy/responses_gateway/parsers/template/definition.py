"""A response template as data, read from the configuration of a tokenizer and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from responses_gateway.parsers.template.contents import Content, check_transform, content_parser
from responses_gateway.parsers.template.delimiters import Delimiter, Expression, Literals, TemplateError

_KEYS = frozenset({"version", "defaults", "fields", "start_anchor", "start_anchor_pattern"})
_FIELD_KEYS = frozenset({
    "open", "open_pattern", "close", "close_pattern", "content", "content_args", "repeats", "join", "optional", "transform",
    "transform_each",
})  # fmt: skip
REASONING_FIELDS = frozenset({"thinking", "reasoning", "reasoning_content"})
CONTENT_FIELD = "content"
CALLS_FIELD = "tool_calls"
_FIELDS = REASONING_FIELDS | {CONTENT_FIELD, CALLS_FIELD}


@dataclass(frozen=True)
class Field:
    """A part of an answer. Without `opens` it is what stands outside of all others. `parse` makes a value of its text;
    `transform` brings it into the shape of a call, or each of several if `each`."""

    name: str
    opens: Delimiter | None
    closes: Delimiter | None
    parse: Content
    transform: Any = None
    each: bool = False


@dataclass(frozen=True)
class ResponseTemplate:
    """`anchor`: behind the last one in a prompt the answer begins."""

    anchor: Delimiter
    fields: tuple[Field, ...]

    @property
    def outside(self) -> Field | None:
        """The field that has no opening."""
        return next((field for field in self.fields if field.opens is None), None)

    @property
    def reasons(self) -> bool:
        """It has a field for reasoning."""
        return any(field.name in REASONING_FIELDS for field in self.fields)

    @property
    def calls(self) -> bool:
        """It has a field for calls."""
        return any(field.name == CALLS_FIELD for field in self.fields)


def load(template: object) -> ResponseTemplate:
    """Read a template. Raises `TemplateError` for one that is not valid, or that has parts which a chat has not."""
    if not isinstance(template, Mapping):
        raise TemplateError("response_template: it must be an object")
    if template.get("version", 1) != 1 or not template.keys() <= _KEYS:
        raise TemplateError("response_template: its version is not known")
    fields = template.get("fields")
    if not isinstance(fields, Mapping) or not fields:
        raise TemplateError("response_template: it has no fields")
    if not fields.keys() <= _FIELDS:
        raise TemplateError(f"response_template: there is no place for {', '.join(sorted(fields.keys() - _FIELDS))}")
    try:
        anchor = _delimiter(template, "start_anchor", "start_anchor_pattern")
    except TemplateError as error:
        raise TemplateError(f"response_template: {error}") from None
    if anchor is None:
        raise TemplateError("response_template: it has no start_anchor")
    read = [_field(name, field) for name, field in fields.items()]
    outside = [field for field in read if field.opens is None]
    if len(outside) > 1:
        raise TemplateError("response_template: only one field may be without an opening")
    if not outside and CONTENT_FIELD not in fields:
        read.append(Field(CONTENT_FIELD, None, None, str))
    return ResponseTemplate(anchor, tuple(read))


def _field(name: str, field: object) -> Field:
    try:
        if not isinstance(field, Mapping) or not field.keys() <= _FIELD_KEYS:
            raise TemplateError("it has keys that are not known")
        opens = _delimiter(field, "open", "open_pattern")
        closes = _delimiter(field, "close", "close_pattern")
        kind = field.get("content", "text")
        transform = field.get("transform")
        check_transform(transform)
        if name != CALLS_FIELD and (kind != "text" or transform is not None):
            raise TemplateError("it cannot be streamed: it is not plain text")
        if field.get("transform_each") and transform is None:
            raise TemplateError("transform_each needs a transform")
        parse = content_parser(kind, field.get("content_args", {}))
    except TemplateError as error:
        raise TemplateError(f"response_template: {name}: {error}") from None
    return Field(name, opens, closes, parse, transform, bool(field.get("transform_each")))


def _delimiter(place: Mapping[str, Any], literal_key: str, pattern_key: str) -> Delimiter | None:
    """Read a delimiter: a literal, several, or an expression."""
    if literal_key in place and pattern_key in place:
        raise TemplateError(f"{literal_key} and {pattern_key} exclude each other")
    if pattern_key in place:
        return Expression(place[pattern_key])
    if literal_key not in place:
        return None
    literal = place[literal_key]
    literals = [literal] if isinstance(literal, str) else literal
    if not isinstance(literals, list) or not literals or not all(isinstance(text, str) and text for text in literals):
        raise TemplateError(f"{literal_key} must be a text, or several")
    return Literals(literals)
