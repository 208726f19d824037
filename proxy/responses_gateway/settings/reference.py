"""Describe the settings, for `serve --help` and for `docs/configuration.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ByteSize, SecretStr
from pydantic.fields import FieldInfo

from responses_gateway.extras import install_command
from responses_gateway.settings import SECTIONS


class SettingInfo(NamedTuple):
    """One setting as documented; `kind` names the type of its values (`NUMBER`) or lists them (`text|json`). A `MAPPING` has no
    flag: it is given in the file, or as JSON in the environment."""

    section: str
    name: str
    kind: str
    default: str
    description: str
    repeated: bool


_EXTRA = re.compile(r"Requires the extra `(\w+)`")
_KINDS: dict[Any, str] = {
    list[str]: "TEXT",
    str: "TEXT",
    bool: "true|false",
    int: "NUMBER",
    float: "NUMBER",
    ByteSize: "BYTES",
    Path: "PATH",
    SecretStr: "KEY",
}


def reference() -> Iterator[SettingInfo]:
    """Yield every setting in the order of the documentation."""
    for section in SECTIONS:
        for name, field in section.model_fields.items():
            kind = kind_of(field.annotation)
            repeated = field.annotation == list[str]
            yield SettingInfo(section.title, name, kind, _default_text(field.default), _on_one_line(field), repeated)


def kind_of(annotation: Any) -> str:
    """Return the kind of the values of a type. Raise `TypeError` for a type that has none: a flag for it could not work."""
    if annotation in _KINDS:
        return _KINDS[annotation]
    origin = get_origin(annotation)
    parts = get_args(annotation)
    if origin is Literal:
        return "|".join(map(str, parts))
    if origin is dict or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return "MAPPING"
    if origin in (Union, UnionType) and len(parts) == 2 and NoneType in parts:
        return kind_of(parts[0] if parts[1] is NoneType else parts[1])
    raise TypeError(f"a setting of the type {annotation} has no kind")


def _default_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, ByteSize):
        return value.human_readable(separator=" ").replace(".0 ", " ")
    return "none" if value in (None, [], {}) else str(value)


def _on_one_line(field: FieldInfo) -> str:
    """Return the description of a setting, with the command that installs the extra which it needs."""
    text = " ".join((field.description or "").split())
    return _EXTRA.sub(lambda extra: f"Requires `{install_command(extra[1])}`", text)
