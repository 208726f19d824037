"""Every family by example: `vectors/FAMILY.yaml` says which items a piece of markup stands for, however it is cut."""

from __future__ import annotations

from typing import Any

import pytest
from markup_outcome import FAMILIES, TOOLS, agree, at_random, characters, halves, play, whole

from responses_gateway.parsers import MarkupParser, parser

VECTORS = [
    pytest.param(family, vector, id=f"{name}-{vector['name']}")
    for name, family in FAMILIES.items()
    for vector in family["vectors"]
]


def new_parser(family: dict[str, Any], vector: dict[str, Any]) -> MarkupParser:
    opened = vector.get("open", False)
    return parser(family["reasoning"], family["tools"], schemas=TOOLS, thinking_open=opened)


@pytest.mark.parametrize(("family", "vector"), VECTORS)
def test_the_markup_gives_its_items_however_it_is_cut(family: dict[str, Any], vector: dict[str, Any]) -> None:
    markup = vector["markup"]
    reason = vector.get("finish", "stop")
    cuts = [
        whole(markup),
        characters(markup),
        *halves(markup, step_of(markup)),
        *(at_random(markup, seed) for seed in range(3)),
    ]
    for pieces in cuts:
        outcome = play(new_parser(family, vector), pieces, reason)
        assert agree(outcome.items, vector["items"]), (pieces[:2], outcome)
        assert outcome.repairs == vector.get("repairs", {}), (pieces[:2], outcome)


@pytest.mark.untraced  # the test above runs the same lines; tracing them for every cut would take long
@pytest.mark.parametrize(("family", "vector"), VECTORS)
def test_no_text_is_lost_when_the_output_is_cut(family: dict[str, Any], vector: dict[str, Any]) -> None:
    """Cut after any character: what stood before the cut comes out, in order, and whole.

    `cut: false` in a vector: its markup turns out to be text only by what follows it.
    """
    if not vector.get("cut", True):
        return
    markup = vector["markup"]
    full = play(new_parser(family, vector), whole(markup)).prose
    due = letters_due(full, markup)
    for cut in range(0, len(markup), step_of(markup)):
        prose = play(new_parser(family, vector), whole(markup[:cut]), "length").prose
        assert prose[: due[cut]] == full[: due[cut]], (markup[:cut], prose)


def step_of(markup: str) -> int:
    """Return how far cuts are apart: a short text is cut everywhere, a long one at a hundred to two hundred places."""
    return max(1, len(markup) // 100)


def letters_due(prose: str, markup: str) -> list[int]:
    """Count for each cut the letters of the prose that must have come: those that cannot stand behind the cut."""
    due = [0] * (len(markup) + 1)
    left = len(prose)
    for place in range(len(markup), 0, -1):
        due[place] = left
        if left and markup[place - 1] == prose[left - 1]:
            left -= 1
    return due


def test_every_family_has_enough_examples() -> None:
    assert {name: len(family["vectors"]) for name, family in FAMILIES.items() if len(family["vectors"]) < 10} == {}
