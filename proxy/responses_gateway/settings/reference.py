"""Describe the settings, for `serve --help` and for `docs/configuration.md`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import ByteSize, SecretStr

from responses_gateway.settings import SECTIONS, ApiKey, BackendDetails, BackendPool, McpServerDetails, ModelParsers
from responses_gateway.settings.keys import Team


class SettingInfo(NamedTuple):
    """One setting as documented; `kind` names the type of its values (`NUMBER`) or lists them (`text|json`). A `MAPPING` has no
    flag: it is given in the file, or as JSON in the environment."""

    section: str
    name: str
    kind: str
    default: str
    description: str
    repeated: bool


_KINDS: dict[Any, str] = {
    list[str]: "TEXT",
    dict[str, ModelParsers]: "MAPPING",
    dict[str, ApiKey]: "MAPPING",
    dict[str, Team]: "MAPPING",
    dict[str, int]: "MAPPING",
    dict[str, BackendDetails]: "MAPPING",
    dict[str, BackendPool]: "MAPPING",
    dict[str, McpServerDetails]: "MAPPING",
    dict[str, str]: "MAPPING",
    SecretStr | None: "KEY",
    bool: "true|false",
    str: "TEXT",
    str | None: "TEXT",
    int: "NUMBER",
    int | None: "NUMBER",
    float: "NUMBER",
    ByteSize: "BYTES",
    ByteSize | None: "BYTES",
    Path | None: "PATH",
}


def reference() -> Iterator[SettingInfo]:
    """Yield every setting in the order of the documentation."""
    for section in SECTIONS:
        for name, field in section.model_fields.items():
            kind = _KINDS.get(field.annotation) or "|".join(map(str, get_args(field.annotation)))
            repeated = field.annotation == list[str]
            yield SettingInfo(section.title, name, kind, _default_text(field.default), field.description or "", repeated)


def _default_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, ByteSize):
        return value.human_readable(separator=" ").replace(".0 ", " ")
    return "none" if value in (None, [], {}) else str(value)
