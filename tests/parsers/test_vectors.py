"""Every family by example: `vectors/FAMILY.yaml` says which items a piece of markup stands for, however it is cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from markup_outcome import FAMILIES, TOOLS, Piece, agree, at_random, characters, halves, play, whole

from responses_gateway.parsers import MarkupParser, parser
from tests.thoroughness import THOROUGH

every_family = pytest.mark.parametrize("name", FAMILIES)


def new_parser(family: dict[str, Any], vector: dict[str, Any]) -> MarkupParser:
    opened = vector.get("open", False)
    return parser(family["reasoning"], family["tools"], schemas=TOOLS, thinking_open=opened)


def check(family: dict[str, Any], vector: dict[str, Any], cuts: Iterable[list[Piece]]) -> None:
    for pieces in cuts:
        outcome = play(new_parser(family, vector), pieces, vector.get("finish", "stop"))
        assert agree(outcome.items, vector["items"]), (pieces[:2], outcome)
        assert outcome.repairs == vector.get("repairs", {}), (pieces[:2], outcome)


@every_family
def test_the_markup_gives_its_items(name: str, subtests: pytest.Subtests) -> None:
    for vector in FAMILIES[name]["vectors"]:
        with subtests.test(vector["name"]):
            markup = vector["markup"]
            cuts = [whole(markup), characters(markup), *(at_random(markup, seed) for seed in range(3))]
            check(FAMILIES[name], vector, cuts)


@pytest.mark.untraced  # the test above runs the same lines; tracing them for every cut would take long
@every_family
def test_the_markup_gives_its_items_wherever_it_is_cut_in_two(name: str, subtests: pytest.Subtests) -> None:
    for vector in FAMILIES[name]["vectors"]:
        with subtests.test(vector["name"]):
            check(FAMILIES[name], vector, halves(vector["markup"], step_of(vector["markup"])))


@pytest.mark.untraced  # likewise
@every_family
def test_no_text_is_lost_when_the_output_is_cut(name: str, subtests: pytest.Subtests) -> None:
    """Cut after any character: what stood before the cut comes out, in order, and whole.

    `cut: false` in a vector: its markup turns out to be text only by what follows it.
    """
    family = FAMILIES[name]
    for vector in family["vectors"]:
        if not vector.get("cut", True):
            continue
        with subtests.test(vector["name"]):
            markup = vector["markup"]
            full = play(new_parser(family, vector), whole(markup)).prose
            due = letters_due(full, markup)
            for cut in range(0, len(markup), step_of(markup)):
                prose = play(new_parser(family, vector), whole(markup[:cut]), "length").prose
                assert prose[: due[cut]] == full[: due[cut]], (markup[:cut], prose)


def step_of(markup: str) -> int:
    """Return how far cuts are apart: a short text is cut everywhere, a long one at forty places, or at eight."""
    return max(1, len(markup) // (40 if THOROUGH else 8))


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
