"""Typed access to the fields of plain dicts: each function returns the promised type or raises the 400 that names the field."""

from __future__ import annotations

from typing import Any

import msgspec

from responses_gateway.wire.errors import ApiError, invalid_request

Object = dict[str, Any]
_OBJECTS = frozenset({dict})


class Entry(msgspec.Struct, frozen=True):
    """An item of the input: `path` is where the client put it (`input[3]`), `kind` its type."""

    path: str
    kind: str
    item: Object


def missing(param: str) -> ApiError:
    return invalid_request(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")


def wrong_type(param: str, expected: str) -> ApiError:
    return invalid_request(f"Invalid type for '{param}': expected {expected}.", param, "invalid_type")


def too_long(param: str, length: int, limit: int, what: str) -> ApiError:
    """Return the error for a list with more elements than a request may have."""
    message = f"Invalid '{param}': array too long. Expected at most {limit} {what}, but got {length} instead."
    return invalid_request(message, param, "array_above_max_length")


def text(source: Object, key: str, path: str) -> str:
    """Return a required string."""
    value = source.get(key)
    if isinstance(value, str):
        return value
    param = f"{path}.{key}"
    raise missing(param) if value is None else wrong_type(param, "a string")


def nullable_text(source: Object, key: str, path: str) -> str:
    """Return a required string; null is an empty one, because clients write it for what has no text."""
    return "" if key in source and source[key] is None else text(source, key, path)


def filled_text(source: Object, key: str, path: str) -> str:
    """Return a required string that is not empty."""
    value = source.get(key)
    if value and isinstance(value, str):
        return value
    text(source, key, path)
    raise missing(f"{path}.{key}")


def optional_text(source: Object, key: str, path: str) -> str | None:
    """Return a string, or None if it is absent or null."""
    value = source.get(key)
    if value is None or type(value) is str:
        return value
    raise wrong_type(f"{path}.{key}", "a string")


def optional_flag(source: Object, key: str, path: str) -> bool | None:
    """Return true or false, or None if it is absent or null."""
    value = source.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise wrong_type(f"{path}.{key}", "a boolean")


def optional_object(source: Object, key: str, path: str) -> Object | None:
    """Return an object, or None if it is absent or null."""
    value = source.get(key)
    if value is None or isinstance(value, dict):
        return value
    raise wrong_type(f"{path}.{key}", "an object")


def required_object(source: Object, key: str, path: str) -> Object:
    """Return a required object."""
    value = optional_object(source, key, path)
    if value is None:
        raise missing(f"{path}.{key}")
    return value


def objects(source: Object, key: str, path: str) -> list[Object]:
    """Return a list of objects; absent and null are the empty list."""
    value = source.get(key)
    return [] if value is None else object_list(value, f"{path}.{key}")


def object_list(value: Any, param: str) -> list[Object]:
    """Return `value` if it is a list of objects."""
    if type(value) is not list:
        raise wrong_type(param, "a list")
    if not set(map(type, value)) <= _OBJECTS:
        for index, element in enumerate(value):
            if not isinstance(element, dict):
                raise wrong_type(f"{param}[{index}]", "an object")
    return value


def quote(value: Any) -> str:
    """Quote a client's value for an error message, shortened to 64 characters."""
    word = str(value)
    return f"'{word[:64]}…'" if len(word) > 64 else f"'{word}'"
