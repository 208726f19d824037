"""Random turns of an agent: perhaps reasoning, perhaps text, perhaps calls."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.parsers.markup_rendering import Family, Item

_PROSE = (
    "I look it up.",
    "Both are 2 < 3 & 4 > 1, so wait.",
    "Das Wetter in Zürich ist schön 😀.",
    "First line.\n\nSecond line:\n- one\n- two",
    "Take f(x) = [x, x], {k: v} or \"quoted\" 'words'.",
    "天気を調べます。",
)
_STRINGS = (
    "Rome",
    "São Paulo",
    "a b",
    "two\nlines",
    'say "hi"',
    "C:\\temp",
    "7",
    "null",
    "true",
    "a < b && c > d",
    "it's",
    "好😀",
)
_VALUES: dict[str, dict[str, Callable[[random.Random], Any]]] = {
    "get_weather": {
        "city": lambda chance: chance.choice(_STRINGS),
        "unit": lambda chance: chance.choice(("celsius", "fahrenheit")),
    },
    "book_room": {
        "code": lambda chance: chance.choice(_STRINGS),
        "people": lambda chance: chance.randint(-5, 10**6),
        "hours": lambda chance: chance.choice((0.5, -2.25, 12345.678)),
        "projector": lambda chance: chance.choice((True, False)),
        "guests": lambda chance: ["Ann", chance.choice(_STRINGS[:2])],
        "catering": lambda chance: {"menu": "soup", "vegan": chance.randint(0, 9)},
        "repeat": lambda chance: chance.choice((None, 3)),
    },
    "list_files": {},
    "write_file": {
        "path": lambda chance: f"src/{chance.choice('abc')}.py",
        "content": lambda chance: "def f(a):\n    return [a, {'k': \"v\"}]\n" * chance.randint(1, 3),
    },
}


def turn(chance: random.Random, family: Family, *, reasons: bool) -> list[Item]:
    """Draw one to five items that the family can write. `reasons`: reasoning is among what is compared."""
    items: list[Item] = []
    if reasons and family.think is not None and chance.random() < 0.6:
        items.append(("reasoning", chance.choice(_PROSE)))
    calls = [_call(chance) for _ in range(chance.choice((0, 1, 1, 2, 3)))]
    if not calls or (family.mixed and chance.random() < 0.5):
        items.append(("text", chance.choice(_PROSE)))
    return items + calls


def _call(chance: random.Random) -> Item:
    name = chance.choice(sorted(_VALUES))
    first, *others = [*_VALUES[name], ""]
    keys = [key for key in (first, *(key for key in others if chance.random() < 0.6)) if key]
    return ("call", name, {key: _VALUES[name][key](chance) for key in keys})
