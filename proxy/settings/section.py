"""What a section of the settings is, and the kinds of values in it."""

from __future__ import annotations

import json
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import NoDecode

Seconds = Annotated[float, Field(allow_inf_nan=False)]
#: YAML 1.1 reads a bare `yes` and `no` as true and false.
_FROM_YAML = BeforeValidator(lambda value: ("no", "yes")[value] if isinstance(value, bool) else value)
YesNo = Annotated[Literal["auto", "yes", "no"], _FROM_YAML]


def _split(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"not a JSON list: {error.msg}") from None
    return [part.strip() for part in value.split(",") if part.strip()]


#: A flag that may be given several times; in the environment a JSON list, or texts with commas between them.
TextList = Annotated[list[str], NoDecode, BeforeValidator(_split)]


class SettingsError(Exception):
    """A setting is wrong. The message names each one as the user wrote it, one per line, and never repeats a value."""


class Section(BaseModel):
    """Some settings that belong together: one heading of the reference. `Settings` is made of all of them."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    title: ClassVar[str]
