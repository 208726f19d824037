"""Check the attributes of a file against the filters of a request."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


def matches(attributes: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    """Tell whether attributes fulfil a condition that was checked when it was read. A file without the attribute does not, so
    that nothing is shown that was to be kept out."""
    kind = condition["type"]
    if kind == "and":
        return all(matches(attributes, member) for member in condition["filters"])
    if kind == "or":
        return any(matches(attributes, member) for member in condition["filters"])
    if condition["key"] not in attributes:
        return False
    return _compare(kind, attributes[condition["key"]], condition["value"])


def _compare(kind: str, value: Any, wanted: Any) -> bool:
    if kind == "eq":
        return _same(value, wanted)
    if kind == "ne":
        return not _same(value, wanted)
    if kind in ("in", "nin"):
        among = isinstance(wanted, list) and any(_same(value, entry) for entry in wanted)
        return among is (kind == "in")
    try:
        return _ORDERS[kind](value, wanted)
    except TypeError:
        return False


def _same(value: Any, wanted: Any) -> bool:
    """Compare values; true is not 1."""
    return bool(value == wanted) and isinstance(value, bool) is isinstance(wanted, bool)
