"""What a reported case wants, compared with what came: plain values, and `$any`, `$contains`, `$lacks`, `$is`, `$some`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

_ABSENT = "$absent"
_MISSING = object()


def differences(want: Any, value: Any, path: str = "") -> Iterator[str]:
    """Yield where a value is not as wanted. Objects may have more members than are named, lists have exactly these."""
    if want == _ABSENT:
        if value is not _MISSING and value is not None:
            yield f"{path}: {_short(value)} is there"
    elif value is _MISSING:
        yield f"{path}: missing"
    elif isinstance(want, dict) and any(name.startswith("$") for name in want):
        yield from _operators(want, value, path)
    elif isinstance(want, dict):
        if not isinstance(value, dict):
            yield f"{path}: {_short(value)}, not an object"
            return
        for name, inner in want.items():
            yield from differences(inner, value.get(name, _MISSING), f"{path}.{name}")
    elif isinstance(want, list):
        if not isinstance(value, list) or len(value) != len(want):
            yield f"{path}: {_short(value)}, wanted {_short(want)}"
            return
        for index, inner in enumerate(want):
            yield from differences(inner, value[index], f"{path}[{index}]")
    elif want != value or isinstance(want, bool) is not isinstance(value, bool):
        yield f"{path}: {_short(value)}, wanted {_short(want)}"


def _operators(want: Json, value: Any, path: str) -> Iterator[str]:
    text = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).lower()
    for name, inner in want.items():
        if name == "$any":
            fits = any(not list(differences(one, value)) for one in inner)
        elif name == "$some":
            fits = isinstance(value, list) and any(not list(differences(inner, one)) for one in value)
        elif name == "$is":
            fits = value == inner
        elif name == "$contains":
            fits = all(part.lower() in text for part in _texts(inner))
        elif name == "$lacks":
            fits = not any(part.lower() in text for part in _texts(inner))
        else:
            raise ValueError(f"unknown: {name}")
        if not fits:
            yield f"{path}: {_short(value)}, wanted {name} {_short(inner)}"


def _texts(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _short(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:600]
