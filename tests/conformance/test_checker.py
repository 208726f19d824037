"""Good streams pass; streams with one thing wrong break the rule about it and no other, and the rule has a level."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from responses_gateway.conformance.checker import RULES, check_stream
from responses_gateway.conformance.levels import LEVELS, Rule
from tests.conformance.broken_streams import BROKEN, GOOD, OPENAI
from tests.judges.streams import Event, encode

ROOT = Path(__file__).parents[2]


def broken(events: list[Event]) -> set[str]:
    return {violation.rule for violation in check_stream(encode(events))}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_stream_breaks_no_rule(name: str) -> None:
    assert check_stream(encode(GOOD[name]())) == []


@pytest.mark.parametrize(("rule", "stream"), BROKEN, ids=[f"{rule}-{n}" for n, (rule, _) in enumerate(BROKEN)])
def test_a_broken_stream_breaks_its_rule_and_no_other(rule: str, stream: Callable[[], list[Event]]) -> None:
    assert broken(stream()) == {rule}


def test_every_rule_has_a_broken_stream() -> None:
    assert {rule for rule, _ in BROKEN} | {"event_name", "done_marker"} == set(RULES)


def test_every_rule_has_a_level_and_says_why() -> None:
    assert set(RULES) == set(get_args(Rule))
    for demand in RULES.values():
        assert demand.level in LEVELS == ("breaks", "spec", "stricter")
        assert demand.text.endswith(".")
        assert demand.reason.endswith(".")


@pytest.mark.parametrize("habit", OPENAI)
def test_what_openai_itself_does_is_at_most_stricter(habit: str) -> None:
    found = check_stream(encode(OPENAI[habit](), done=False))
    assert {violation.level for violation in found} == {"stricter"}
    assert len({violation.rule for violation in found}) > 1  # not only that `[DONE]` is missing


def test_a_violation_knows_its_level() -> None:
    found = check_stream(encode(dict(BROKEN)["text_mismatch"]()))
    assert {(violation.rule, violation.level) for violation in found} == {("text_mismatch", "breaks")}


def test_the_page_has_every_rule_with_its_level() -> None:
    page = (ROOT / "docs" / "checking.md").read_text(encoding="utf-8")
    assert page == runpy.run_path(str(ROOT / "scripts" / "generate_docs.py"))["with_rules"](page), "run `make docs`"
    rules = page.partition("Level `breaks`, and why:\n\n")[2].partition("\n\n")[0]
    assert "- `text_mismatch`: " in rules
