"""The words for what is wrong with a value, where the library that checked it has its own.

Its messages speak of Python and of itself ("List should have at most 16 items after validation"). These are for people who send
JSON, or write settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# By the type of the error. The context of an error has the numbers.
_MESSAGES = {
    "extra_forbidden": "there is no such field",
    "missing": "this field is required",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "finite_number": "expected a finite number",
    "string_type": "expected a string",
    "list_type": "expected a list",
    "dict_type": "expected an object",
    "model_type": "expected an object",
    "model_attributes_type": "expected an object",
    "dict_attributes_type": "expected an object",
    "path_type": "expected a path",
    "byte_size": "expected a size in bytes, or with a unit such as 10MB",
    "byte_size_unit": "expected a size in bytes, or with a unit such as 10MB",
    "literal_error": "expected {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "expected at least {min_length} entries",
    "too_long": "expected at most {max_length} entries",
    "string_too_short": "expected at least {min_length} characters",
    "string_too_long": "expected at most {max_length} characters",
}


def problem(kind: str, context: Mapping[str, Any], otherwise: str) -> str:
    """Return what is wrong with a value. `kind` and `context` are those of pydantic's error. Its message is `otherwise`: the
    answer for errors that have no words here, such as those of our own validators."""
    message = _MESSAGES.get(kind)
    if message is None:
        return otherwise.removeprefix("Value error, ")
    try:
        return message.format_map({name: _plain(value) for name, value in context.items()})
    except KeyError:
        return otherwise


def _plain(value: Any) -> Any:
    """Write 2.0 as 2."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
