"""A script: what the simulated model says in one answer, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Visible thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A part of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal (`delta.refusal`, as OpenAI sends it; markup has no form for it and shows it as text)."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function call; `arguments` is the JSON text exactly as the model writes it."""

    name: str
    arguments: str


Step: TypeAlias = Reasoning | Text | Refusal | Call


@dataclass(frozen=True, slots=True)
class Script:
    """The steps of one answer. `finish` overrides the finish reason that follows from the steps."""

    steps: tuple[Step, ...]
    finish: str | None = None


def script(*steps: Step, finish: str | None = None) -> Script:
    """A script of these steps; steps with empty text are left out."""
    return Script(tuple(step for step in steps if isinstance(step, Call) or step.text), finish)


def call(name: str, arguments: Mapping[str, Any]) -> Call:
    """A call with these arguments, spelled with the separators that models use."""
    return Call(name, json.dumps(arguments, ensure_ascii=False))
