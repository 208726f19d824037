"""Scripts: what the simulated model says in one answer, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Think:
    """Reasoning that the client sees."""

    text: str


@dataclass(frozen=True, slots=True)
class Say:
    """Text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """A refusal, in OpenAI's field `refusal`; as text where the output is raw markup."""

    text: str


@dataclass(frozen=True, slots=True)
class CallTool:
    """A function call; `arguments` is the JSON text exactly as the model writes it."""

    name: str
    arguments: str


Step: TypeAlias = Think | Say | Refuse | CallTool


@dataclass(frozen=True, slots=True)
class Script:
    """The steps of one answer. `finish` overrides the finish reason that follows from them."""

    steps: tuple[Step, ...]
    finish: str | None = None


def script(*steps: Step, finish: str | None = None) -> Script:
    """Make a script of these steps, without steps that have empty text."""
    return Script(tuple(step for step in steps if isinstance(step, CallTool) or step.text), finish)


def call(name: str, arguments: Mapping[str, Any]) -> CallTool:
    """Make a call with these arguments, written with the separators that models use."""
    return CallTool(name, json.dumps(arguments, ensure_ascii=False))
